// The page: its controls, and show(trace), which draws a trace wherever it comes from.
// Called by recorded.js for a trace, and by live.js for a trace and after each answer of the network.

import { drawEntropy } from "./charts.js";
import { PICTURED } from "./graph.js";
import { drawChildTable, drawImage, drawNumbers, drawParents, drawTime, drawTitle, isLastEpoch, isWrong, noun, ordered, tipLines, WRONG } from "./panels.js";
import { paste, photograph } from "./picture.js";
import { OTHERS, Ribbons } from "./ribbons.js";
import { childName, choose, drawings, drawTip, go, lookWith, redraw, renewals, spokenOf, step, stop, toggle } from "./shell.js";
import { now, state } from "./state.js";
import { $, channels, indexOfLargest } from "./tools.js";
import { at, unpacked } from "./trace.js";
import { words } from "./words.js";

const graph = (state.graph = new Ribbons($(".stage > canvas")));

// Draw a trace, at round r and epoch k from 0. A selection stays where the new one has the same child or parent.
export function show(data, r = data.trained - 1, k = data.epochs.length - 1) {
  if (now.playing?.over !== "screen") stop(); // a screen of the article goes on to its round
  state.trace = data;
  now.n = Math.min(state.trace.start, state.trace.images.length - 1);
  now.k = Math.min(k, state.trace.epochs.length - 1);
  if (!now.playing) now.r = Math.min(r, state.trace.iterations - 1);
  if (now.parent >= state.trace.parents.length) now.parent = null;
  $("#epochs").hidden = state.trace.epochs.length < 2;
  $("#epoch").max = state.trace.epochs.length - 1;
  $("#sheet").hidden = !state.trace.images[0].pixels;
  $("#desk").hidden = !state.trace.images[0].pixels && state.trace.images.length < 2;
  $("main").classList.toggle("unpictured", $("#sheet").hidden);
  colored = null;
  takeImage(now.n);
}

// The chooser: `images` have a name, pixels or null, and the parent that a wrong answer took them for; pick(n) is called
// with the one chosen.
export function showImages(images, chosen, pick) {
  $("#images").hidden = images.length < 2;
  images.forEach(({ name, pixels, wrong }, n) => {
    const label = document.createElement("label");
    label.innerHTML = '<input type="radio" name="image"><canvas></canvas><span></span>';
    const [input, canvas, caption] = label.children;
    input.addEventListener("change", () => pick(n));
    input.checked = n === chosen;
    canvas.hidden = !pixels;
    if (pixels) paste(canvas, photograph(pixels));
    caption.textContent = wrong ? `${name} ${WRONG} ${wrong}` : name;
    caption.title = wrong ? words.takenFor(name, wrong) : name;
    $(".thumbs").append(label);
  });
}

// The control that chooses image n.
export function chooserInput(n) {
  return document.querySelectorAll("#images input")[n];
}

export function takeImage(n) {
  now.n = n;
  state.image = unpacked(state.trace, n);
  state.image.choices = new Map();
  for (const child of state.image.src) state.image.choices.set(child, (state.image.choices.get(child) ?? 0) + 1);
  if (!state.image.order.includes(now.child)) now.child = null;
  now.hovered = null;
  state.photo = state.image.pixels && photograph(state.image.pixels);
  $("#lead").textContent = words.lead(noun(), Boolean(state.photo));
  const columns = words.columns(Boolean(state.trace.network?.decoder), words.plurals[noun()]);
  columns.forEach((text, at) => ($("#columns").children[at].textContent = text));
  $("#source").textContent = [state.trace.title, ...state.trace.source].join(" · ");
  $("#shown-edges").textContent =
    state.image.order.length < state.trace.children ? words.someChildren(state.image.order.length, state.trace.children) : "";
  redraw();
}

let colored = null; // the parents that have colours now, as text

// The parents that are named are blue and orange, and more of them as the trace has it; the others are grey, the longest the
// darkest. The parents of loads have the trace's colours.
function recolor({ outer: named, loads }, lengths) {
  const key = named.join();
  if (key === colored) return;
  colored = key;
  const given = state.trace.parents.map(({ color }) => color),
    { first, second, rest, muted, parents, ...look } = lookWith(given),
    rank = [...lengths.keys()].sort((a, b) => lengths[b] - lengths[a]),
    grey = (j) => {
      const part = (rank.indexOf(j) / lengths.length) * 0.8,
        [dark, light] = [muted, rest].map(channels);
      return `rgb(${dark.map((channel, k) => Math.round(channel + part * 0.5 * (light[k] - channel))).join(" ")})`;
    };
  const colorOf = (j) => (loads ? parents[j] : named.includes(j) ? [first, second][named.indexOf(j)] ?? parents[named.indexOf(j)] : grey(j));
  state.look = { ...look, rest, muted, named: loads ? [...given.keys()] : named, parents: given.map((_, j) => colorOf(j)) };
}

function drawPage() {
  const c = at(state.image.c, now),
    lengths = at(state.image.lengths, now);
  state.order = ordered();
  recolor(state.order, at(state.image.lengths, { k: Math.round(now.k), r: state.trace.trained - 1 }));
  const longest = indexOfLargest(lengths);
  state.parentShown = now.parent ?? state.order.choices.get(spokenOf())?.[0] ?? longest;
  const blank = $("main").classList.contains("blank"), // set by live.js for an empty sheet
    untrained = state.trace.epochs.length > 1 && state.trace.epochs[Math.round(now.k)] === 0, // the longest parent means nothing
    verdict = { blank, untrained, wrong: isWrong(state.image, longest) && !untrained && !blank };
  $(".stage").style.setProperty("--least", `${24 * state.order.columns.length}px`);
  graph.take(state.image, state.order, state.order.children.length <= PICTURED && isLastEpoch() ? (state.decoder?.portraits() ?? null) : null);
  graph.draw(c, now, now.hovered, state.look);
  drawTitle(blank);
  drawTime();
  drawParents(lengths, longest, verdict);
  drawTip(tipLines);
  if (state.photo) drawImage();
  const chosenColor = (child) => state.look.parents[state.order.choices.get(child)?.[0]];
  state.curve = drawEntropy($("#entropy canvas"), state.trace, state.image, now, chosenColor, state.look);
  drawNumbers(longest, lengths, verdict);
  $("#clear").hidden = now.parent === null && now.child === null;
  $("#all").hidden = state.order.loads || (!now.all && !state.order.others.length);
  $("#all").textContent = now.all ? words.fold : words.unfold;
  $("#all").setAttribute("aria-pressed", now.all);
  drawPin();
  if (!$("#why").hidden) drawChildTable(c);
}

// Pin the chosen child, which then stays in sight, and name it.
function drawPin() {
  const { child, pinned } = now;
  $("#pins").hidden = child === null;
  if (child === null) return;
  $("#pin").textContent = words.pin(childName(child), child in pinned);
  $("#pin").setAttribute("aria-pressed", child in pinned);
  $("#name").hidden = !(child in pinned);
  Object.assign($("#name"), { placeholder: words.name, ariaLabel: words.nameOf(words.child(child)) });
  if (document.activeElement !== $("#name")) $("#name").value = pinned[child] ?? "";
}

$("#pin").addEventListener("click", () => {
  const { [now.child]: name, ...others } = now.pinned;
  choose({ pinned: name === undefined ? { ...others, [now.child]: "" } : others });
});
$("#name").addEventListener("input", ({ target }) => {
  choose({ pinned: { ...now.pinned, [now.child]: target.value.replaceAll("~", "") } });
});
$("#epoch").addEventListener("input", (event) => go({ k: Number(event.target.value) }));
$("#epochs button").addEventListener("click", () => toggle("epochs"));
$("#all").addEventListener("click", () => choose({ all: !now.all, hovered: null }));

graph.canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
  if (graph.pull) return;
  const under = graph.under(x, y, now);
  choose({ hovered: under && { ...under, x, y } });
});
graph.canvas.addEventListener("pointerleave", () => choose({ hovered: null }));
graph.canvas.addEventListener("click", ({ offsetX: x, offsetY: y }) => {
  if (graph.pulled) return (graph.pulled = false); // the end of a pull isn't a click
  const under = graph.under(x, y, now);
  if (!under) choose({ child: null, parent: null });
  else if (state.silences(under.child)) return;
  else if (under.parent === undefined || under.parent === OTHERS) choose({ child: under.child === now.child ? null : under.child });
  else if (under.child === now.child && under.parent === now.parent) choose({ child: null, parent: null });
  else choose({ child: under.child, parent: under.parent });
});
graph.canvas.addEventListener("keydown", stepChild);

export function stepChild(event) {
  step(event, state.order.children, now.child, (child) => choose({ child, hovered: null }));
}

drawings.push(drawPage);
renewals.push(() => {
  colored = null;
  takeImage(now.n);
});
