// A page that carries its network: what is drawn is routed here, in a thread of its own, and shown.

import { computed, reanswered } from "./answer.js";
import { Desk, NEUTRAL } from "./desk.js";
import { doubtOf } from "./doubts.js";
import { chooserInput, show, showImages, stepChild, takeImage } from "./page.js";
import { answers, noun, RIGHT, WRONG, wrongOf } from "./panels.js";
import { paste, photograph } from "./picture.js";
import { follow, resume } from "./share.js";
import { redraw } from "./shell.js";
import { now, state } from "./state.js";
import { ask, newest, thread } from "./thread.js";
import { $, fill, fixed, sentence } from "./tools.js";
import { stored, unpacked } from "./trace.js";
import { words } from "./words.js";

export const network = stored.network;
export const BEND = 0.25; // added to a number of the longest capsule, or taken away, at most
export const EMPTY = { at: null, label: null, name: "" };
export const arrivals = []; // functions that follow an answer, each called with it and with {label, blank}
export const shelf = stored.images.map(shelved); // images to try
const [, high, wide] = network.shape,
  TOPS = Math.min(3, stored.parents.length),
  REST = 350; // milliseconds after which a drawing is taken to be done
let top1; // the longest parent of the newest answer
state.layer = lastLayer(network);
state.shown = EMPTY;
stored.looks &&= network.layers.length === 1; // saliency.js goes back from primary capsules

// Ends of the last layer's edges, as the page has them; the network's arrays stay in its thread.
function lastLayer({ layers }) {
  const { src, dst, prior, weight, ...rest } = layers.at(-1),
    whole = ({ data }) => new Int32Array(data.buffer),
    learnedPrior = prior && new Float32Array(prior.data.buffer);
  return { ...rest, src: whole(src), dst: whole(dst), dim: weight.shape[2], learnedPrior };
}

// The edges of the last layer that a stored image keeps.
function edgesOf({ src, dst }) {
  const place = (e) => state.layer.src[e] * state.layer.parents + state.layer.dst[e],
    places = new Map([...state.layer.src.keys()].map((e) => [place(e), e]));
  return src.map((child, at) => places.get(child * state.layer.parents + dst[at]));
}

function shelved(each, n) {
  const name = stored.parents[each.label]?.name;
  return { name: name ?? `image ${n}`, classes: [each.label], pixels: each.pixels, wrong: name && wrongOf(stored, each) };
}

const findLooks = stored.looks && !network.decoder ? newest(thread(), "saliency", addLooks) : null; // it takes a second
const explain = newest(ask, "explain", (answer, about) => showAnswer(answer, about));
const bendDecoded = newest(ask, "decode", ({ pictures: [picture] }, of) => of === top1 && showPixels($("#bend > canvas"), picture));

export function showPixels(canvas, data) {
  paste(canvas, photograph({ shape: network.shape, data }));
}

const options = { shape: network.shape, ...network.desk, overlaps: network.objects > 1 };
state.desk = new Desk($("#sheet canvas"), options, () => changed(), snapshot);

// Lay an image of the shelf on the desk, without showing it yet.
export function layOut(at) {
  const { name, classes, pixels } = shelf[at];
  chooserInput(at).parentElement.scrollIntoView({ block: "nearest", inline: "center" });
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
    for (const input of document.querySelectorAll("#images input")) input.checked = false;
  }
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
    pairs = network.objects > 1 && state.desk.lines.length ? words.always(noun(), network.objects) : "",
    text = { blank: words.blank, short: words.short(names.at(-1), network.limits.most) + pairs, unlike: words.unlike(network.limits.most) }[doubt] ?? pairs;
  $("#doubts").hidden = !text;
  if ($("#doubts").textContent !== text) $("#doubts").textContent = text; // a screen reader reads each change aloud
  if (page !== null) {
    const one = unpacked(stored, page),
      images = Object.assign([...stored.images], { [page]: reanswered(one, answer, state.layer, stored, edgesOf(one)) }),
      k = stored.epochs.indexOf(epoch);
    show({ ...stored, start: page, images }, r, k < 0 ? stored.epochs.length - 1 : k);
  } else {
    show({ ...stored, start: 0, epochs: [network.epoch], images: [drawnImage(about, answer)] }, r);
  }
  clearTimeout(resting);
  resting = setTimeout(() => rest(about), REST);
  showBend(answer.tops[0]);
  const mark = label === null || blank ? "" : answer.tops[0].parent === label ? ` ${RIGHT}` : ` ${WRONG}`;
  $("#verdict").textContent = blank ? "" : words.readAs(names, doubt) + mark;
  if (moment) {
    resume(moment);
    bendBy(moment.bend);
  }
  for (const arrival of arrivals) arrival(answer, { label, blank });
}

// The decoder's pictures of as many of the longest capsules as an image shows objects, one over the other.
function reconstructionOf({ tops }) {
  if (!network.decoder || tops.length < network.objects) return null;
  const [first, ...others] = tops.slice(0, network.objects).map(({ picture }) => picture);
  return first.map((value, x) => Math.min(255, others.reduce((sum, picture) => sum + picture[x], value)));
}

let resting = 0;
function drawnImage({ saliency, data, label }, answer) {
  const spots = saliency && { shape: [state.layer.children, high, wide], data: saliency };
  return computed({ ...answer, saliency: spots }, state.layer, stored, { shape: network.shape, data }, label);
}

// The drawing is done: what takes longer than an answer is asked.
function rest(about) {
  about.rested = true;
  if (about.page === null) findLooks?.({ pixels: about.data }, about);
  redraw();
}

// Take where children look into the image that it is asked of.
function addLooks({ saliency }, about) {
  if (about !== state.asked) return;
  state.trace.images[0] = drawnImage({ ...about, saliency }, state.routed);
  takeImage(now.n);
}

// The sliders of the longest capsule.
function showBend(longest) {
  top1 = longest;
  const { parent, capsule } = top1;
  $("#capsule").textContent = words.capsuleOf(state.trace.parents[parent].name, capsule.length);
  fill($("#numbers"), capsule.length, "div", (row, d) => {
    row.innerHTML = '<label></label><input type="range" step="0.01"><output></output>';
    const [label, input] = row.children;
    Object.assign(input, { min: -BEND, max: BEND });
    label.textContent = words.number(d + 1);
    label.htmlFor = input.id = `number-${d + 1}`;
    input.addEventListener("input", vary);
  });
  goBack();
}

function varied() {
  return top1.capsule.map((value, d) => value + Number($(`#number-${d + 1}`).value));
}

function vary() {
  const capsule = varied();
  capsule.forEach((value, d) => ($(`#number-${d + 1} + output`).textContent = fixed(value, 2)));
  if (network.decoder) bendDecoded({ capsules: [{ parent: top1.parent, capsule }] }, top1);
  follow();
}

// {number, from 1: hundredths added to it}, or null where the capsule is as it is.
export function bentBy() {
  const added = [...document.querySelectorAll("#numbers input")].map(({ value }) => Math.round(100 * value)),
    bent = added.map((hundredths, d) => [d + 1, hundredths]).filter(([, hundredths]) => hundredths !== 0);
  return bent.length ? Object.fromEntries(bent) : null;
}

function bendBy(added) {
  for (const [number, hundredths] of Object.entries(added)) $(`#number-${number}`).value = hundredths / 100;
  if (bentBy()) vary();
}

function goBack() {
  for (const input of document.querySelectorAll("#numbers input")) input.value = 0;
  varied().forEach((value, d) => ($(`#number-${d + 1} + output`).textContent = fixed(value, 2)));
  if (top1.picture) showPixels($("#bend > canvas"), top1.picture);
}

for (const [id, most] of [
  ["right", Math.round(wide / 4)],
  ["down", Math.round(high / 4)],
  ["thick", Math.round(2 * network.desk.stroke) / 4],
]) {
  Object.assign($(`#${id}`), { min: -most, max: most });
}
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
$("#back").addEventListener("click", () => {
  goBack();
  vary();
  follow();
});
$("#votes canvas").addEventListener("keydown", stepChild);
$("#child").hidden = true; // the softmax has it
$("main").classList.add("live");
$("#bend").hidden = !network.decoder;
$("#seen figcaption").textContent = words.seenSize(wide, high);

show(stored);
$("#hint").textContent = words.hint(noun(), network.objects);
showImages(shelf, stored.start, takeShelved);
takeShelved(stored.start);
