// The state of the page as text for the end of a link, "image=3&turn=-20&iteration=2&child=5", and back. Every part may be
// missing. Whoever sends a link may have written anything into it, so only what fits this page is taken.
//
//   screen     of the article
//   image      place in the chooser, from 0       draw       lines on the desk, packed      type   signs that were typed
//   turn, right, down   sliders                   iteration, epoch, child, parent   as the page names them
//   compare    "dynamic.3.uniform.1": two routings and their iterations
//   view       "all": undecided children too
//   pull       "5.2.7.-": child 5 is held by parent 2, child 7 votes for none
//   bend       "5.20.16.-8": numbers of the longest capsule, from 1, and what is added to each, in hundredths
//   pin        "5~top bar~7~": children 5 and 7 stay in sight, 5 is called top bar
// and of the graph's page:
//   node, other, capsule   what is chosen
//   cut, add   "5.2.7.2": the edges from node 5 to 2 and from 7 to 2        hold   "5.2.1": that edge is held by capsule 1
//
// The address follows what the page shows, is read at the start, and is copied by a button. What a page can show is its
// subject's: recorded.js's images, or what lies on live.js's desk.
//   limits           what the parts of a link may hold, where it differs from other pages
//   read()           the parts of the state that are the subject's
//   restore(state, moment)   show it, and then this moment: resume(moment)

import { choose, drawings, stop } from "./shell.js";
import { now, state } from "./state.js";
import { $ } from "./tools.js";
import { stored } from "./trace.js";
import { screens, words } from "./words.js";

const LONGEST_TEXT = 60000; // letters
const FARTHEST = 2048; // pixels that a line may leave the middle of the sheet
const LONGEST_NAME = 12; // letters of a child's name
const WHOLE = /^\d{1,7}$/;

// Lines of points on a grid of 1 / GRID pixels as "8w.-5k.1.0~7.7": of each line its first point, then the steps from point
// to point, in base 36.
function packedLines(lines, grid) {
  const step = ([x, y], at, points) => (at ? [x - points[at - 1][0], y - points[at - 1][1]] : [x, y]),
    packed = (line) => line.map((point) => point.map((value) => Math.round(grid * value))).flatMap(step);
  return lines.map((line) => packed(line).map((number) => number.toString(36)).join(".")).join("~");
}

// The lines, or null where the text isn't what packedLines gives.
function unpackedLines(text, grid) {
  if (!/^(-?[0-9a-z]{1,4}\.-?[0-9a-z]{1,4}([.~](?!$)|$))*$/.test(text)) return null;
  const lines = text.split("~").filter(Boolean).map((line) => {
    const steps = line.split(".").map((number) => parseInt(number, 36) / grid);
    let [x, y] = [0, 0];
    return Array.from({ length: steps.length / 2 }, (_, at) => [(x += steps[2 * at]), (y += steps[2 * at + 1])]);
  });
  return lines.flat(2).every((value) => Math.abs(value) <= FARTHEST) ? lines : null;
}

// The value of each part of the text, or null if it doesn't fit. `limits` has images, iterations, epochs,
// children, parents, grid where there is a desk, sliders {name: most}, bend {numbers, most} where there is a decoder, and
// the names of routings.
const PARTS = {
  screen: (text, { screens }) => (screens?.includes(text) ? text : null),
  image: (text, { images }) => wholeBelow(text, images),
  type: (text, { grid }) => (grid && /^\S.{0,2}$/u.test(text) ? text : null),
  draw: (text, { grid }) => (grid ? unpackedLines(text, grid) : null),
  ...Object.fromEntries(["turn", "right", "down"].map((name) => [name, (text, { sliders }) => within(text, sliders[name])])),
  iteration: (text, { iterations }) => (text === "0" ? null : wholeBelow(text, iterations + 1)),
  epoch: (text, { epochs }) => (WHOLE.test(text) && epochs.includes(Number(text)) ? Number(text) : null),
  child: (text, { children }) => wholeBelow(text, children),
  parent: (text, { parents }) => wholeBelow(text, parents),
  view: (text) => (text === "all" ? text : null),
  pull: (text, { children, parents }) =>
    pairs(text, ".", (key) => wholeBelow(key, children), (value) => (value === "-" ? -1 : wholeBelow(value, parents))),
  pin: (text, { children }) =>
    pairs(text, "~", (key) => wholeBelow(key, children), (name) => (name.length <= LONGEST_NAME ? name : null)),
  node: (text, { nodes }) => wholeBelow(text, nodes),
  other: (text, { nodes }) => wholeBelow(text, nodes),
  capsule: (text, { capsules }) => wholeBelow(text, capsules),
  cut: (text, { nodes }) => tuples(text, [nodes, nodes]),
  add: (text, { nodes }) => tuples(text, [nodes, nodes]),
  hold: (text, { nodes, capsules }) => tuples(text, [nodes, nodes, capsules]),
  compare: (text, { routings, iterations }) => {
    const [one, rounds, other, more, ...rest] = text.split("."),
      counts = [rounds, more].map((count) => (count === "0" ? null : wholeBelow(count ?? "", iterations + 1)));
    if (rest.length || ![one, other].every((name) => routings.includes(name)) || counts.includes(null)) return null;
    return [one, other].map((routing, side) => ({ routing, iterations: counts[side] }));
  },
  bend: (text, { bend }) =>
    bend ? pairs(text, ".", (key) => wholeBelow(key, bend.numbers + 1) || null, (value) => within(value, bend.most) || null) : null,
};

// "5.20.16.-8" as {5: 20, 16: -8} if no key or value is null and no key comes twice.
function pairs(text, separator, keyOf, valueOf) {
  const parts = text.split(separator),
    found = {};
  for (let at = 0; at < parts.length; at += 2) {
    const key = keyOf(parts[at]),
      value = at + 1 < parts.length ? valueOf(parts[at + 1]) : null;
    if (key === null || value === null || key in found) return null;
    found[key] = value;
  }
  return found;
}

// "5.2.7.2" as [[5, 2], [7, 2]] if each number is below its end.
function tuples(text, ends) {
  const numbers = text.split(".").map((part, at) => wholeBelow(part, ends[at % ends.length])),
    size = ends.length;
  if (numbers.includes(null) || numbers.length % size) return null;
  return Array.from({ length: numbers.length / size }, (_, at) => numbers.slice(at * size, (at + 1) * size));
}

function wholeBelow(text, end) {
  return WHOLE.test(text) && Number(text) < end ? Number(text) : null;
}

function within(text, most = -1) {
  return /^-?\d{1,4}(\.\d{1,4})?$/.test(text) && Math.abs(Number(text)) <= most ? Number(text) : null;
}

// {part: value}, or null where any part is unknown, doubled, out of range or damaged.
function parsedState(text, limits) {
  if (text.length > LONGEST_TEXT) return null;
  const state = {};
  for (const [name, value] of new URLSearchParams(text)) {
    const read = Object.hasOwn(PARTS, name) && !Object.hasOwn(state, name) ? PARTS[name](value, limits) : null;
    if (read === null) return null;
    state[name] = read;
  }
  return state;
}

// The text of {part: value}; parts that are null or undefined are left out.
function stateText(state, { grid }) {
  const text = {
    ...state,
    type: state.type && encodeURIComponent(state.type),
    draw: state.draw && packedLines(state.draw, grid),
    compare: state.compare?.map(({ routing, iterations }) => `${routing}.${iterations}`).join("."),
    bend: state.bend && Object.entries(state.bend).flat().join("."),
    pull: state.pull && Object.entries(state.pull).flat().join(".").replaceAll("-1", "-"),
    pin: state.pin && Object.entries(state.pin).flat().map(encodeURIComponent).join("~"),
  };
  for (const name of ["cut", "add", "hold"]) text[name] = state[name]?.length ? state[name].flat().join(".") : null;
  const parts = Object.entries(text).filter(([, value]) => value !== null && value !== undefined);
  return parts.map(([name, value]) => `${name}=${value}`).join("&");
}

// A link ends in a seal of its text and of the page's data, so that one that was cut short, changed, or made for another
// page isn't taken for the sender's. The name of a screen alone needs none.
const SEAL = /^(.*)&seal=([0-9a-z]+)$/s,
  PLAIN = /^screen=[a-z]+$/;

function hashed(text, start = 2166136261) {
  return [...text].reduce((hash, letter) => Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0, start);
}

function sealed(text) {
  return !subject.sealed || !text || PLAIN.test(text) ? text : `${text}&seal=${hashed(text, subject.seal).toString(36)}`;
}

// The text within a seal, or null where the seal is missing or broken.
function unsealed(text) {
  const [, inner = text] = SEAL.exec(text) ?? [];
  return sealed(inner) === text ? inner : null;
}

const SETTLED = 400; // milliseconds without a change after which the address follows

let subject,
  written = "", // what stands in the address, without "#"
  settling = 0;

// The state as text; "" where the page is as it opened.
function stateNow() {
  const k = Math.round(now.k),
    r = Math.round(now.r),
    { child, parent, all, pinned = {} } = subject.limits.children ? now : {};
  const usual = subject.usual?.() ?? { r: state.trace.trained - 1, child: null };
  const epoch = k === state.trace.epochs.length - 1 ? null : state.trace.epochs[k],
    iteration = r === usual.r ? null : r + 1;
  const view = all ? "all" : null;
  const pin = Object.keys(pinned ?? {}).length ? pinned : null;
  if (subject.isForeign?.()) return "";
  return sealed(stateText({ ...subject.read(), iteration, epoch, child: child === usual.child ? null : child, parent, view, pin }, subject.limits));
}

// Go to {iteration, epoch, child, parent, view, pin}, as far as the image on the page has them.
export function resume({ iteration = state.trace.trained, epoch = state.trace.epochs.at(-1), child = null, parent = null, view = null, pin = {} }) {
  stop();
  const k = state.trace.epochs.indexOf(epoch);
  choose({
    k: k < 0 ? state.trace.epochs.length - 1 : k,
    r: Math.min(iteration, state.trace.iterations) - 1,
    child: state.image.order?.includes(child) ? child : null,
    parent,
    all: view === "all",
    pinned: pin,
  });
}

function linkNow() {
  const text = stateNow();
  return location.href.split("#")[0] + (text && `#${text}`);
}

// Write the page's state into the address as soon as nothing changes for a while and no answer is pending: a link shows
// its answer.
export function follow() {
  clearTimeout(settling);
  settling = setTimeout(() => {
    if (now.playing || $("main").getAttribute("aria-busy") === "true") return follow();
    const text = stateNow();
    if (text === written || location.hash.slice(1) !== written) return; // the latter is read first: hashchange is coming
    try {
      history.replaceState(null, "", linkNow());
      written = text;
    } catch {
      // a browser that allows no change of addresses here, or no more of them for now
    }
  }, SETTLED);
}

// Show what the link in the address holds, where it fits this page.
function readAddress() {
  const text = location.hash.slice(1);
  if (text === written) return;
  const inner = unsealed(text),
    state = inner === null ? null : parsedState(inner, subject.limits);
  written = text;
  Object.assign($("#unread"), { hidden: state !== null, textContent: state === null ? words.doesntFit : "" });
  if (state === null) return; // nor is it written over
  const { iteration, epoch, child, parent, view, pin, ...rest } = state;
  subject.restore(rest, { iteration, epoch, child, parent, view, pin });
}

export function note(text) {
  $("#note").textContent = text;
}

// Copy to the clipboard, or where a browser refuses it, offer a field whose text is selected.
async function copyLink() {
  if (subject.isForeign?.()) return note(screens.noLink);
  if (stateNow().length > LONGEST_TEXT) return note(words.tooLong);
  const link = linkNow(),
    copied = await navigator.clipboard?.writeText(link).then(() => true, () => false);
  Object.assign($("#link"), { hidden: copied, value: link });
  if (!copied) $("#link").select();
  const where = location.protocol === "file:" ? words.thisMachine : "";
  note((copied ? words.linkCopied : words.linkInField) + where);
}

// Called when the page is first drawn.
export function share(what) {
  const { iterations, epochs, children, parents } = stored,
    usual = { iterations, epochs, children, parents: parents?.length, sliders: {}, routings: [] };
  const made = [stored.title, ...stored.source, ...(stored.parents ?? []).map(({ name }) => name), stored.children, stored.edges],
    weights = stored.network?.layers.at(-1).weight.data.subarray(0, 64) ?? [];
  subject = { ...what, seal: hashed([...made, ...weights].join()), limits: { ...usual, ...what.limits } };
  document.documentElement.dataset.seal = subject.seal;
  drawings.push(follow);
  $("#copy").addEventListener("click", copyLink);
  addEventListener("hashchange", readAddress);
  if (location.hash) readAddress();
}
