// What both pages do alike: time and its sliders, the choice, light and dark. A page has draw(), which draws the moment
// `now`, and renew(), which follows a change of colours.

const still = matchMedia("(prefers-reduced-motion: reduce)"),
  systemNight = matchMedia("(prefers-color-scheme: dark)");
const STEP = 900,
  MOVE = 450; // milliseconds from step to step of a play, and of them in motion
const now = { n: 0, k: 0, r: 0, parent: null, child: null, matrix: false, hovered: null, playing: null, last: "iterations" };
const NOTHING = { parent: null, child: null }; // a choice of nothing
const extras = []; // what other files draw after the page: each is called with a parent, the chosen or the longest
const renewals = []; // what other files do when the colours have changed
let trace,
  image,
  look,
  waiting = false;

// Draw everything at the next frame.
function redraw() {
  if (!image) return; // the data aren't read yet
  if (!waiting) requestAnimationFrame(() => ((waiting = false), draw()));
  waiting = true;
}

function choose(selection) {
  Object.assign(now, selection);
  redraw();
}

// Go to whole places of time, within what there is.
function go({ k = now.k, r = now.r }) {
  stop();
  now.k = Math.min(trace.epochs.length - 1, Math.max(0, Math.round(k)));
  now.r = Math.min(trace.iterations - 1, Math.max(0, Math.round(r)));
  redraw();
}

function stop() {
  if (now.playing) cancelAnimationFrame(now.playing.frame);
  now.playing = null;
}

// Play from here to the end, or from the start where this is the end.
function play(over) {
  const axis = over === "epochs" ? "k" : "r",
    end = (over === "epochs" ? trace.epochs.length : trace.iterations) - 1;
  const from = Math.round(now[axis]) >= end ? 0 : Math.round(now[axis]);
  stop();
  now.last = over;
  now.playing = { over };
  let started = null;
  const tick = (time) => {
    started ??= time;
    const steps = Math.floor((time - started) / STEP),
      into = (time - started - steps * STEP - (STEP - MOVE)) / MOVE;
    const part = still.matches || into <= 0 ? 0 : (1 - Math.cos(Math.PI * into)) / 2;
    now[axis] = Math.min(end, from + steps + part);
    if (now[axis] >= end) stop();
    else now.playing.frame = requestAnimationFrame(tick);
    draw();
  };
  now[axis] = from;
  now.playing.frame = requestAnimationFrame(tick);
}

function toggle(over) {
  if (now.playing) go({});
  else play(over);
}

function drawIteration() {
  const step = Math.round(now.r) + 1;
  $("#iteration").value = step;
  $("#iterations output").replaceChildren(`${words.of(step, trace.iterations)} `, small(step > trace.trained ? words.beyond : ""));
  for (const slider of document.querySelectorAll("#time .slider")) {
    slider.querySelector("button").setAttribute("aria-pressed", now.playing?.over === slider.id);
  }
}

for (const slider of document.querySelectorAll("#time .slider")) {
  slider.querySelector("button").addEventListener("click", () => toggle(slider.id));
}
$("#iteration").addEventListener("input", (event) => go({ r: event.target.value - 1 }));
$("#clear").addEventListener("click", () => choose(NOTHING));

// Keys of the whole page; a control keeps those it has a use for.
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("input, select") && key.startsWith("Arrow")) return;
  if (target.matches("button, summary, select, [type=radio]") && key === " ") return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (by && event.shiftKey) go({ k: Math.round(now.k) + by });
  else if (by) go({ r: Math.round(now.r) + by });
  else if (key === " ") toggle(now.last);
  else if (key === "Escape") choose({ ...NOTHING, hovered: null });
  else return;
  event.preventDefault();
});

$("#as-matrix").addEventListener("click", () => choose({ matrix: !now.matrix, hovered: null }));

// Light or dark is the system's, or what the reader has chosen, which the browser remembers where it can.
function isNight() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : systemNight.matches;
}

function recalled(name) {
  try {
    return localStorage.getItem(`graphcaps-${name}`);
  } catch {
    return null; // a browser that keeps nothing for files
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(`graphcaps-${name}`, value);
  } catch {
    // as above
  }
}

// What a page draws with: the colours of its style, and of the parents.
function lookWith(colors) {
  const css = getComputedStyle(document.documentElement),
    value = (name) => css.getPropertyValue(`--${name}`).trim(),
    named = Object.fromEntries(["paper", "ink", "muted", "faint", "shade", "accent"].map((name) => [name, value(name)]));
  const parents = colors.map((color) => (isNight() ? lighter(color, named.paper) : color));
  return { ...named, parents, glow: channels(value("glow")), font: `12px ${css.fontFamily}` };
}

if (["light", "dark"].includes(recalled("theme"))) document.documentElement.dataset.theme = recalled("theme");
$("#theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isNight() ? "light" : "dark";
  remember("theme", document.documentElement.dataset.theme);
  renew();
});
systemNight.addEventListener("change", renew);

for (const element of document.querySelectorAll("[data-word]")) element.innerHTML = words[element.dataset.word];
for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", words[element.dataset.label]);
$("#how dl").innerHTML = words.reading.map(([term, text]) => `<div><dt>${term}</dt> <dd>${text}</dd></div>`).join("");
$("#article").innerHTML = words.article.map((text) => `<p>${text}</p>`).join("");
new ResizeObserver(redraw).observe(document.body);
