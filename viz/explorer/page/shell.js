// The common part of both pages: time, the curve that is dragged along it, the choice, doors, light and dark, and cards
// that explain terms.

import { NOTHING, now, state } from "./state.js";
import { $, channels, fixed, lighter } from "./tools.js";
import { words } from "./words.js";

export const still = matchMedia("(prefers-reduced-motion: reduce)");
const systemNight = matchMedia("(prefers-color-scheme: dark)");
const LONGEST = 5500, // milliseconds of a play
  STEP = 1100; // and of a step of it, at most
export const drawings = []; // functions that draw the moment `now`, in this order
export const renewals = []; // functions that follow a change of colours
let waiting = false;

export function draw() {
  for (const drawing of drawings) drawing();
}

function renew() {
  if (state.image) for (const renewal of renewals) renewal(); // else the data aren't read yet
}

// The child under the pointer, the chosen one, or the one that was pulled last; or null.
export function spokenOf() {
  return now.hovered?.child ?? now.child ?? (state.pulledLast in state.held ? state.pulledLast : null);
}

export function childName(child) {
  return now.pinned[child] || words.child(child);
}

// A child in a table of children.
export function shortName(child) {
  return now.pinned[child] || words.tag(child);
}

// Draw everything at the next frame.
export function redraw() {
  if (!state.image) return; // the data aren't read yet
  if (!waiting) requestAnimationFrame(() => ((waiting = false), draw()));
  waiting = true;
}

// Show lines of text beside the pointer, within the graph.
export function drawTip(linesOf) {
  const tip = $("#tip"),
    { x, y } = now.hovered ?? {},
    { clientWidth: wide, clientHeight: high } = $(".stage");
  tip.hidden = x === undefined || Boolean(state.graph.pull);
  if (tip.hidden) return;
  tip.textContent = linesOf(now.hovered).join("\n");
  tip.style.left = `${Math.max(0, Math.min(x + 14, wide - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, y + 18 + tip.offsetHeight > high ? y - tip.offsetHeight - 10 : y + 18)}px`;
}

export function choose(selection) {
  Object.assign(now, selection);
  redraw();
}

// The logit of a child and a parent, or that it stands for a pull.
export function writtenLogit(b, child, parent, digits = 2) {
  return state.held[child] === parent ? words.pulled : fixed(b, digits);
}

// Go to whole places of time, within what there is.
export function go({ k = now.k, r = now.r }) {
  stop();
  now.k = Math.min(state.trace.epochs.length - 1, Math.max(0, Math.round(k)));
  now.r = Math.min(state.trace.iterations - 1, Math.max(0, Math.round(r)));
  redraw();
}

export function stop() {
  if (now.playing) cancelAnimationFrame(now.playing.frame);
  now.playing = null;
}

// Go along an axis of time, "r" or "k", in fractions on the way, or in steps where motion is to be reduced.
export function travel(over, axis, to, milliseconds, after = () => {}) {
  stop();
  const from = now[axis];
  now.playing = { over };
  let started = null;
  const tick = (time) => {
    started ??= time;
    const part = milliseconds ? Math.min(1, (time - started) / milliseconds) : 1,
      place = from + (to - from) * part;
    now[axis] = still.matches ? Math.round(place) : place;
    if (part < 1) now.playing.frame = requestAnimationFrame(tick);
    else now.playing = null;
    draw();
    if (part === 1) after();
  };
  now.playing.frame = requestAnimationFrame(tick);
}

// Play what `over` names from here to its end, or from its start where this is the end: "rounds" up to the answer, "beyond"
// from there, or "epochs".
function play(over) {
  const [axis, start, end] = {
    rounds: ["r", 0, state.trace.trained - 1],
    beyond: ["r", state.trace.trained - 1, state.trace.iterations - 1],
    epochs: ["k", 0, state.trace.epochs.length - 1],
  }[over];
  const here = Math.round(now[axis]);
  now[axis] = here < start || here >= end ? start : here;
  travel(over, axis, end, Math.min(LONGEST, STEP * (end - now[axis])));
}

export function toggle(over) {
  if (now.playing) go({});
  else play(over);
}

export function drawRound() {
  const r = Math.round(now.r);
  $("#iteration").max = state.trace.iterations;
  $("#iteration").value = r + 1;
  $("#iteration").setAttribute("aria-valuetext", words.round(r + 1, state.trace.trained));
  $("#entropy output").textContent = words.round(r + 1, state.trace.trained);
  $("#play").textContent = now.playing?.over === "rounds" ? "Pause" : "Play";
  $("#beyond").hidden = state.trace.trained >= state.trace.iterations;
  $("#beyond").textContent = now.playing?.over === "beyond" ? "Pause" : "Beyond";
  for (const [id, over] of [["#play", "rounds"], ["#beyond", "beyond"]]) $(id).setAttribute("aria-pressed", now.playing?.over === over);
}

$("#play").addEventListener("click", () => toggle("rounds"));
$("#beyond").addEventListener("click", () => toggle("beyond"));
$("#iteration").addEventListener("input", (event) => go({ r: event.target.value - 1 }));
$("#clear").addEventListener("click", () => choose(NOTHING));

// Dragging along the curve goes through the rounds; where it ends, the nearest one is shown.
function scrub({ offsetX, pointerId }) {
  if (!state.curve || !$("#entropy canvas").hasPointerCapture(pointerId)) return;
  stop();
  now.r = Math.min(state.trace.iterations - 1, Math.max(0, state.curve.roundAt(offsetX)));
  redraw();
}
$("#entropy canvas").addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  $("#entropy canvas").setPointerCapture(event.pointerId);
  scrub(event);
});
$("#entropy canvas").addEventListener("pointermove", scrub);
$("#entropy canvas").addEventListener("lostpointercapture", () => go({}));

// Keys of the whole page; a control keeps those it has a use for.
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("input, select") && key.startsWith("Arrow")) return;
  if (target.matches("button, summary, select, [type=radio], #name") && key === " ") return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (by && event.shiftKey) go({ k: Math.round(now.k) + by });
  else if (by) go({ r: Math.round(now.r) + by });
  else if (key === " ") toggle("rounds");
  else if (key === "Escape") choose({ ...NOTHING, hovered: null });
  else return;
  event.preventDefault();
});

// Up and down choose the one before and after it in a list.
export function step(event, order, chosen, take) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!by || !order.length) return;
  event.preventDefault();
  const from = chosen === null ? (by > 0 ? -1 : order.length) : order.indexOf(chosen);
  take(order[(from + by + order.length) % order.length]);
}

// Behind each door is a drawer below the screen; one is open at a time.
const doors = [...document.querySelectorAll("#doors [aria-controls]")].filter((door) => $(`#${door.getAttribute("aria-controls")}`) || door.remove());
export function openDrawer(name) {
  for (const door of doors) {
    const id = door.getAttribute("aria-controls");
    door.setAttribute("aria-expanded", id === name);
    $(`#${id}`).hidden = id !== name;
  }
  redraw();
}
for (const door of doors) {
  door.addEventListener("click", () => {
    const name = door.getAttribute("aria-controls"),
      open = door.ariaExpanded === "true";
    openDrawer(open ? null : name);
    if (open) return;
    const behavior = still.matches ? "instant" : "smooth";
    requestAnimationFrame(() => scrollBy({ top: $(`#${name}`).getBoundingClientRect().top - 14, behavior })); // once it is drawn
  });
}

// Light or dark is the system's, or what the reader has chosen.
function isNight() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : systemNight.matches;
}

// The look that a page draws with: the colours of its style, and of the parents.
export function lookWith(colors) {
  const css = getComputedStyle(document.documentElement),
    value = (name) => css.getPropertyValue(`--${name}`).trim(),
    named = Object.fromEntries(["paper", "ink", "muted", "faint", "shade", "accent", "first", "second", "rest"].map((name) => [name, value(name)]));
  const parents = colors.map((color) => (isNight() ? lighter(color, named.paper) : color));
  return { ...named, parents, glow: channels(value("glow")), family: css.fontFamily, font: `12px ${css.fontFamily}` };
}

$("#theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isNight() ? "light" : "dark";
  renew();
});
systemNight.addEventListener("change", renew);

for (const element of document.querySelectorAll("[data-word]")) element.innerHTML = words[element.dataset.word];
for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", words[element.dataset.label]);
$("#how dl").innerHTML = words.reading.map(([term, text]) => `<div><dt>${term}</dt> <dd>${text}</dd></div>`).join("");
new ResizeObserver(redraw).observe(document.body);

let spoken = null; // the element whose card is shown

function showCard(element) {
  hideCard();
  spoken = element;
  const card = $("#card"),
    { left, top, bottom } = element.getBoundingClientRect();
  const { term } = element.dataset;
  card.textContent = words.terms[term][1];
  choose({ term });
  card.hidden = false;
  for (const same of document.querySelectorAll(`[data-term="${term}"], [data-shows~="${term}"]`)) same.classList.add("lit");
  element.setAttribute("aria-describedby", "card");
  const { clientWidth: wide, clientHeight: high } = document.documentElement;
  card.style.left = `${Math.max(8, Math.min(left, wide - card.offsetWidth - 8))}px`;
  card.style.top = `${bottom + card.offsetHeight < high ? bottom : Math.max(0, top - card.offsetHeight)}px`;
}

function hideCard() {
  spoken?.removeAttribute("aria-describedby");
  spoken = null;
  if (now.term) choose({ term: null });
  for (const same of document.querySelectorAll(".lit")) same.classList.remove("lit");
  $("#card").hidden = true;
}

const termOf = ({ target }) => (target instanceof Element ? target.closest("[data-term]") : null);
document.addEventListener("pointerover", (event) => {
  const element = termOf(event);
  if (element) showCard(element);
  else if (spoken && spoken !== document.activeElement && event.target !== $("#card")) hideCard();
});
document.addEventListener("focusin", (event) => (termOf(event) ? showCard(termOf(event)) : spoken && hideCard()));
// Escape closes a card that the focus is on; else it is the page's.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || !spoken) return;
    if (spoken === document.activeElement) event.stopImmediatePropagation();
    hideCard();
  },
  { capture: true },
);
document.addEventListener("scroll", () => spoken && showCard(spoken), { passive: true });

for (const [term, [textContent]] of Object.entries(words.terms)) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent });
  button.dataset.term = term;
  $("#terms").append(button);
}
