// What lies behind a capsule, in pictures. The decoder draws a child as its vote for the parent that it chooses, and a parent
// as its capsule in each round. Sliders bend the longest capsule.

import { PICTURED, rgbOf } from "./graph.js";
import { arrivals, ask, network, newest, showPixels } from "./live.js";
import { photograph, raster } from "./picture.js";
import { follow } from "./share.js";
import { drawings, redraw } from "./shell.js";
import { edgesFrom, edgeTo, lengthOf, now, parentAt, state, voteOf } from "./state.js";
import { $, fill, fixed } from "./tools.js";
import { at } from "./trace.js";
import { words } from "./words.js";

let known = { of: null, pictures: new Map(), portraits: null }, // an answer's pictures, bytes by "c CHILD PARENT" or "r ROUND PARENT"
  pending = null; // the list of names that were asked for last

const decodeAll = newest(ask, "decode", ({ pictures }, { of, names }) => {
  if (of !== known.of) return;
  names.forEach((name, at) => known.pictures.set(name, pictures[at]));
  redraw();
});

function squashedVote(e) {
  const vote = voteOf(e),
    n = lengthOf(vote);
  return Array.from(vote, (value) => (value * n) / (1 + n * n));
}

// The parent that a child chooses after the rounds of training, or the one it couples with most.
function chosenBy(child) {
  const { c } = state.routed.states[state.layer.iterations - 1];
  return state.order.choices.get(child)?.[0] ?? state.layer.dst[edgesFrom(child).reduce((best, e) => (c[e] > c[best] ? e : best))];
}

// Everything that can be shown of this answer now, as [name, parent, capsule].
function decodable() {
  const children = state.order.children.length <= PICTURED ? state.order.children : [],
    here = Math.round(now.r),
    rounds = [here, ...[...Array(state.trace.iterations).keys()].filter((r) => r !== here)];
  return [
    ...rounds.slice(0, 1).flatMap((r) => state.order.parents.map((j) => [`r ${r} ${j}`, j, [...parentAt(r, j)]])),
    ...children.map((child) => [child, chosenBy(child)]).map(([child, j]) => [`c ${child} ${j}`, j, squashedVote(edgeTo(j, child))]),
    ...(state.asked.rested ? rounds.slice(1) : []).flatMap((r) => state.order.parents.map((j) => [`r ${r} ${j}`, j, [...parentAt(r, j)]])),
  ];
}

// Ask for what is missing, once; and let the children's pictures be what is known.
function decodeShown() {
  if (!state.routed || now.k !== state.trace.epochs.length - 1) return;
  if (known.of !== state.routed) {
    known = { of: state.routed, pictures: new Map(), portraits: known.portraits };
    for (const { parent, picture } of state.routed.tops) known.pictures.set(`r ${state.layer.iterations - 1} ${parent}`, picture);
  }
  const missing = decodable().filter(([name]) => !known.pictures.has(name)),
    names = missing.map(([name]) => name),
    question = `${state.questions} ${names.join()}`;
  if (names.length && question !== pending) {
    pending = question;
    decodeAll({ capsules: missing.map(([, parent, capsule]) => ({ parent, capsule })) }, { of: state.routed, names });
  }
}

// Pictures of the children's votes, as far as they are known.
function portraitsByDecoder() {
  if (!state.routed || known.of !== state.routed) return known.portraits ?? null; // until the new ones are drawn
  const found = state.order.children.map((child) => [child, inked(known.pictures.get(`c ${child} ${chosenBy(child)}`))]);
  return (known.portraits = new Map(found.filter(([, picture]) => picture)));
}

// The picture of a parent at this moment, or null.
function pictureOf(j) {
  return known.of === state.routed ? inked(known.pictures.get(`r ${Math.round(now.r)} ${j}`)) : null;
}

// A picture by the decoder as ink on the page's paper.
function inked(picture) {
  if (!picture) return null;
  const { shape } = network;
  if (shape[0] === 3) return photograph({ shape, data: picture });
  const ink = rgbOf(state.look.ink);
  return raster(shape[1], shape[2], (x) => [...ink, picture[x]]);
}

const DRAWN = 0.35, // pixels this light count as drawn
  LITTLE = 0.1; // of all that children could give beyond chance: if parents receive less, colours stay pale

// Maps of the parents' pictures for tint(), as strong as children have moved to them from equal shares: viz/routing/tint.py.
function paintedByDecoder(parents, moment) {
  const pictures = parents.map((j) => known.pictures.get(`r ${Math.round(moment.r)} ${j}`));
  if (known.of !== state.routed || pictures.includes(undefined) || now.k !== state.trace.epochs.length - 1) return null;
  const { src, dst, choices } = state.image,
    beyond = (r) => {
      const sums = parents.map(() => 0);
      at(state.image.c, { k: moment.k, r }).forEach((value, e) => (sums[parents.indexOf(dst[e])] += Math.max(0, value - 1 / choices.get(src[e]))));
      return sums;
    };
  const all = [...choices.values()].reduce((sum, count) => sum + 1 - 1 / count, 0),
    full = Math.max(LITTLE * all, ...beyond(state.trace.trained - 1)),
    here = beyond(moment.r),
    top = Math.max(...here);
  return pictures.map((picture, at) => Float64Array.from(picture, (byte) => (Math.sqrt(here[at] * top) / full) * Math.min(1, byte / 255 / DRAWN)));
}

if (network.decoder) {
  drawings.push(decodeShown);
  state.decoder = { portraits: portraitsByDecoder, pictureOf, painted: paintedByDecoder };
}

// The sliders of the longest capsule, which bend the decoder's drawing.
export const BEND = 0.25; // added to a number of the longest capsule, or taken away, at most
let longest; // the longest parent of the newest answer

const bendDecoded = newest(ask, "decode", ({ pictures: [picture] }, of) => of === longest && showPixels($("#bend > canvas"), picture));

function showBend({ tops: [top] }, { moment }) {
  longest = top;
  $("#capsule").textContent = words.capsuleOf(state.trace.parents[top.parent].name, top.capsule.length);
  const html = '<div><label></label><input type="range" step="0.01"><output></output></div>';
  fill($("#numbers"), top.capsule.length, html, ({ children: [label, input] }, d) => {
    Object.assign(input, { min: -BEND, max: BEND });
    label.textContent = words.number(d + 1);
    label.htmlFor = input.id = `number-${d + 1}`;
    input.addEventListener("input", vary);
  });
  goBack();
  for (const [number, hundredths] of Object.entries(moment?.bend ?? {})) $(`#number-${number}`).value = hundredths / 100;
  if (bentBy()) vary();
}

// The capsule as its sliders bend it, whose numbers stand beside them.
function bentCapsule() {
  const capsule = longest.capsule.map((value, d) => value + Number($(`#number-${d + 1}`).value));
  capsule.forEach((value, d) => ($(`#number-${d + 1} + output`).textContent = fixed(value, 2)));
  return capsule;
}

function vary() {
  const capsule = bentCapsule();
  if (network.decoder) bendDecoded({ capsules: [{ parent: longest.parent, capsule }] }, longest);
  follow();
}

// {number, from 1: hundredths added to it}, or null where the capsule is as it is.
export function bentBy() {
  const added = [...document.querySelectorAll("#numbers input")].map(({ value }) => Math.round(100 * value)),
    bent = added.map((hundredths, d) => [d + 1, hundredths]).filter(([, hundredths]) => hundredths !== 0);
  return bent.length ? Object.fromEntries(bent) : null;
}

function goBack() {
  for (const input of document.querySelectorAll("#numbers input")) input.value = 0;
  bentCapsule();
  if (longest.picture) showPixels($("#bend > canvas"), longest.picture);
}

$("#back").addEventListener("click", () => {
  goBack();
  follow();
});
$("#bend").hidden = !network.decoder;
arrivals.push(showBend);
