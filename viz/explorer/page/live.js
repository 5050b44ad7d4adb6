// A page that carries its network: what is drawn is routed here, in a thread of its own, and shown.

import { computed, doubtOf, reanswered } from "./answer.js";
import { Desk, NEUTRAL } from "./desk.js";
import { chooserInput, show, showImages, stepChild } from "./page.js";
import { answers, noun, RIGHT, WRONG, wrongOf } from "./panels.js";
import { paste, photograph } from "./picture.js";
import { resume } from "./share.js";
import { redraw } from "./shell.js";
import { edgeTo, now, state } from "./state.js";
import { $, fixed, sentence } from "./tools.js";
import { stored, unpacked } from "./trace.js";
import { words } from "./words.js";

let underway = 0; // questions without an answer

// Ask a thread with the network: ask(kind, question) is a promise of its answer.
function thread() {
  const url = URL.createObjectURL(new Blob([$("#worker").textContent], { type: "text/javascript" })),
    worker = new Worker(url),
    waiting = new Map();
  let count = 0;
  let broken = null;
  worker.onmessage = ({ data: { id, ...answer } }) => {
    waiting.get(id)?.(answer);
    waiting.delete(id);
  };
  worker.onerror = ({ message }) => {
    broken = message || words.threadStopped;
    waiting.forEach((done) => done({ error: broken }));
    waiting.clear();
  };
  const ask = (kind, question) =>
    new Promise((done) => {
      if (broken) return done({ error: broken });
      waiting.set(++count, done);
      worker.postMessage({ id: count, kind, ...question });
    });
  ask("load", { network: stored.network }).then(({ error }) => error && trouble(error));
  return ask;
}

function trouble(error) {
  $("#trouble").hidden = !error;
  if (error) $("#trouble").textContent = words.cantAnswer(error);
}

// A function that asks one question at a time. While one is answered, only the newest other one waits.
export function newest(ask, kind, arrived) {
  let waiting = null,
    running = false;
  return async (question, about) => {
    waiting = { question, about };
    if (running) return;
    running = true;
    expectAnswers(1);
    try {
      while (waiting) {
        const asked = waiting;
        waiting = null;
        const { error, ...answer } = await ask(kind, asked.question);
        if (error || kind === "explain") trouble(error);
        if (!error) arrived(answer, asked.about);
      }
    } finally {
      running = false;
      expectAnswers(-1);
    }
  };
}

function expectAnswers(more) {
  underway += more;
  $("main").setAttribute("aria-busy", underway > 0);
}

export const ask = thread();

export const network = stored.network;
export const EMPTY = { at: null, label: null, name: "" };
export const arrivals = []; // functions that follow an answer, each called with it and with {label, blank, moment}
export const shelf = stored.images.map(shelved); // images to try
const [, high, wide] = network.shape,
  TOPS = Math.min(3, stored.parents.length),
  REST = 350; // milliseconds after which a drawing is taken to be done
state.layer = lastLayer(network);
state.shown = EMPTY;

// Ends of the last layer's edges, as the page has them; the network's arrays stay in its thread.
function lastLayer({ layers }) {
  const { src, dst, prior, weight, ...rest } = layers.at(-1),
    whole = ({ data }) => new Int32Array(data.buffer),
    learnedPrior = prior && new Float32Array(prior.data.buffer);
  return { ...rest, src: whole(src), dst: whole(dst), dim: weight.shape[2], learnedPrior };
}

function shelved(each, n) {
  const name = stored.parents[each.label]?.name;
  return { name: name ?? `image ${n}`, classes: [each.label], pixels: each.pixels, wrong: name && wrongOf(stored, each) };
}

const explain = newest(ask, "explain", (answer, about) => showAnswer(answer, about));

export function showPixels(canvas, data) {
  paste(canvas, photograph({ shape: network.shape, data }));
}

const options = { shape: network.shape, ...network.desk, overlaps: network.objects > 1 };
state.desk = new Desk($("#sheet canvas"), options, () => changed(), snapshot);

// Lay an image of the shelf on the desk, without showing it yet.
export function layOut(at) {
  const { name, classes, pixels } = shelf[at];
  const { offsetLeft, offsetWidth, parentElement: row } = chooserInput(at).parentElement;
  row.scrollLeft = offsetLeft - (row.clientWidth - offsetWidth) / 2; // not the page
  state.shown = { at, label: classes.length === 1 ? classes[0] : null, name: /^image \d/.test(name) ? sentence(`test ${name}`) : words.testImageOf(name) };
  state.held = {};
  Object.assign(state.desk, { picture: photograph(pixels), lines: [], adjust: { ...NEUTRAL } });
}

function takeShelved(at) {
  if (state.desk.lines.length || Object.keys(state.held).length) state.desk.remember();
  layOut(at);
  changed();
}

// A function that puts what lies on the desk now on it again. Sliders that move the same sheet move `adjust` itself, so
// they stay where they are; another sheet brings its own.
function snapshot() {
  const { picture, lines, adjust, past } = state.desk,
    previous = [state.shown, state.held];
  return () => {
    [state.shown, state.held] = previous;
    if (state.shown.at !== null) chooserInput(state.shown.at).checked = true;
    Object.assign(state.desk, { picture, lines, adjust, past });
    changed();
  };
}

// Let a child go where it was pulled: to a parent, to none with LET_GO, or with null by its own votes.
export function hold(child, parent) {
  state.desk.remember();
  const { [child]: _, ...others } = state.held;
  state.held = parent === null ? others : { ...others, [child]: parent };
  state.pulledLast = child;
  changed();
}

// The desk has changed: show it, and ask what the network makes of it.
export function changed(moment = null) {
  const empty = !state.desk.picture && !state.desk.lines.length;
  if (!state.desk.picture) {
    state.shown = { ...EMPTY, name: empty ? "" : words.drawing };
  }
  if (state.shown.at === null) for (const input of document.querySelectorAll("#images input")) input.checked = false;
  if (!state.shown.typed && document.activeElement !== $("#typed")) $("#typed").value = "";
  if (empty) state.held = {};
  const altered = state.desk.lines.length > 0 || Object.values(state.desk.adjust).some((value) => value !== 0),
    { label, at } = state.shown,
    data = state.desk.pixels(),
    page = at !== null && !altered && !Object.keys(state.held).length ? at : null; // an unchanged image of the trace
  explain({ pixels: data, rounds: stored.iterations, tops: TOPS, held: state.held }, { count: ++state.questions, label, page, data, moment });
  $("#shown").textContent = at !== null && altered ? words.changed(state.shown.name) : state.shown.name;
  $("#hint").hidden = !empty;
  for (const [id, value] of Object.entries(state.desk.adjust)) {
    $(`#${id}`).value = value;
    $(`#${id} + output`).textContent = fixed(value, id === "turn" ? 0 : 2) + (id === "turn" ? "°" : "");
  }
  $("#undo").setAttribute("aria-disabled", !state.desk.past.length); // it keeps the focus
  state.desk.draw(data, empty ? null : state.desk.tinted);
  showPixels($("#seen canvas"), data);
}

function showAnswer(answer, about) {
  const { label, page, data, moment } = about,
    epoch = moment?.epoch ?? state.trace.epochs[Math.round(now.k)],
    r = state.routed ? Math.round(now.r) : stored.trained - 1;
  state.routed = answer;
  state.asked = about;
  const lengths = [...answer.states[state.layer.iterations - 1].lengths].sort((a, b) => b - a),
    doubt = doubtOf(network, data, lengths, reconstructionOf(answer)),
    blank = doubt === "blank";
  $("main").classList.toggle("blank", blank);
  const names = answers([...answer.states[state.layer.iterations - 1].lengths]).map((parent) => stored.parents[parent].name),
    text = { blank: words.blank, unlike: words.unlike(network.limits.most) }[doubt] ?? "";
  $("#doubts").hidden = !text;
  if ($("#doubts").textContent !== text) $("#doubts").textContent = text; // a screen reader reads each change aloud
  if (page !== null) {
    const one = unpacked(stored, page),
      edges = one.src.map((child, at) => edgeTo(one.dst[at], child)),
      images = stored.images.with(page, reanswered(one, answer, state.layer, stored, edges)),
      k = stored.epochs.indexOf(epoch);
    show({ ...stored, start: page, images }, r, k < 0 ? stored.epochs.length - 1 : k);
  } else {
    show({ ...stored, start: 0, epochs: [network.epoch], images: [drawnImage(about, answer)] }, r);
  }
  clearTimeout(resting);
  resting = setTimeout(() => rest(about), REST);
  const mark = label === null || blank || !names.length ? "" : answer.tops[0].parent === label ? ` ${RIGHT}` : ` ${WRONG}`;
  $("#verdict").textContent = blank ? "" : words.readAs(names, doubt, noun()) + mark;
  if (moment) resume(moment);
  for (const arrival of arrivals) arrival(answer, { label, blank, moment });
}

// The decoder's pictures of as many of the longest capsules as an image shows objects, one over the other.
function reconstructionOf({ tops }) {
  if (!network.decoder || tops.length < network.objects) return null;
  const [first, ...others] = tops.slice(0, network.objects).map(({ picture }) => picture);
  return first.map((value, x) => Math.min(255, others.reduce((sum, picture) => sum + picture[x], value)));
}

let resting = 0;
function drawnImage({ data, label }, answer) {
  return computed(answer, state.layer, stored, { shape: network.shape, data }, label);
}

// The drawing is done: what takes longer than an answer is asked.
function rest(about) {
  about.rested = true;
  redraw();
}

for (const [id, size] of [["right", wide], ["down", high]]) Object.assign($(`#${id}`), { min: -Math.round(size / 4), max: Math.round(size / 4) });
for (const id of Object.keys(state.desk.adjust)) {
  $(`#${id}`).addEventListener("input", ({ target }) => {
    state.desk.adjust[id] = Number(target.value);
    changed();
  });
}
$("#clean").addEventListener("click", () => state.desk.clear());
$("#undo").addEventListener("click", () => state.desk.undo());
document.addEventListener("keydown", (event) => {
  const { key, ctrlKey, metaKey, altKey, shiftKey, target } = event;
  if (target.matches("#name") || !(ctrlKey || metaKey) || altKey || shiftKey || key.toLowerCase() !== "z") return;
  event.preventDefault();
  state.desk.undo();
});
$("#votes canvas").addEventListener("keydown", stepChild);
$("#child").hidden = true; // the softmax has it
$("main").classList.add("live");
$("#seen figcaption").textContent = words.seenSize(wide, high);

show(stored);
$("#hint").textContent = words.hint(noun(), network.objects);
showImages(shelf, stored.start, takeShelved);
takeShelved(stored.start);
