// The parts of the page around the graph: each shows the moment `now` of `image` in words, numbers and bars.

import { rgbOf } from "./graph.js";
import { drawPhoto, paste, tint } from "./picture.js";
import { childName, choose, drawRound, writtenLogit } from "./shell.js";
import { now, state } from "./state.js";
import { $, fill, fixed, indexOfLargest, leastToChoose, lighter, sentence, setBar } from "./tools.js";
import { at } from "./trace.js";
import { words } from "./words.js";

export const WRONG = "✗";
export const RIGHT = "✓";
const DEAD = "†";
const ENOUGH = 0.3, // share of a pixel that must belong to parents for their full colour
  MOST_ROWS = 24, // parents that all have a row where their loads are shown
  LEAST_SIDE = 12, // pixels of a parent's picture
  LARGEST_SIDE = 104,
  ROOMY = 60; // pixels of a picture beside which an old length has room

// Pictures of children and parents are known of the last epoch alone.
export function isLastEpoch() {
  return Math.round(now.k) === state.trace.epochs.length - 1;
}

// The parent that an image of a trace's JSON was taken for, or "". The network's answer is the longest
// parent after the rounds of training.
export function wrongOf({ trained, parents }, each) {
  const longest = indexOfLargest(each.lengths.at(-1)[trained - 1]);
  return isWrong(each, longest, parents) ? parents[longest].name : "";
}

export function isWrong({ label }, longest, parents = state.trace.parents) {
  return label in parents && label !== longest;
}

// The parents that are the answer: of several objects as many of the longest.
export function answers(lengths) {
  const order = [...lengths.keys()].sort((a, b) => lengths[b] - lengths[a] || a - b);
  return order.slice(0, state.trace.network?.objects ?? 1);
}

// child -> [parent, coupling] of its largest coupling at a moment; the parent is null while the child is undecided.
function choicesAt(moment) {
  const { src, dst, choices } = state.image,
    c = at(state.image.c, moment),
    best = new Map();
  src.forEach((child, e) => c[e] <= c[best.get(child)] || best.set(child, e));
  for (const [child, e] of best) {
    best.set(child, [c[e] > leastToChoose(choices.get(child)) ? dst[e] : null, c[e]]);
  }
  return best;
}

// The children and parents shown: those that decide after the rounds of training and the parents they choose, or all. The
// order is that of the pictures: by the mean place of the parents, weighed by the couplings.
export function folded() {
  const answer = { k: Math.round(now.k), r: state.trace.trained - 1 },
    choices = choicesAt(answer),
    decided = state.image.order.filter((child) => choices.get(child)[0] !== null || child in state.held || child in now.pinned || child === now.child),
    chosen = new Set([...answers(at(state.image.lengths, answer)), ...decided.map((child) => choices.get(child)[0]), ...Object.values(state.held), now.parent]),
    linked = new Set(state.image.dst),
    parents = [...state.trace.parents.keys()].filter((j) => linked.has(j) || chosen.has(j)),
    place = meanPlaces(at(state.image.c, answer), chosen);
  const old = beforePulls()?.fold ?? { children: [], parents: [] }, // stay where they were
    joined = (some, more) => [...some, ...more.filter((each) => !some.includes(each))],
    shown = joined(old.children, decided.sort((a, b) => place(a) - place(b))),
    all = now.all || !shown.length;
  return {
    choices,
    all,
    undecided: state.image.order.length - shown.length,
    children: all ? state.image.order : shown,
    parents: all || (state.trace.dead && parents.length <= MOST_ROWS) ? parents : joined(old.parents, parents.filter((j) => chosen.has(j))),
  };
}

// {lengths, fold} of the answer before lines were pulled, or null where none is.
export function beforePulls() {
  if (!Object.keys(state.held).length || !state.unpulled?.data.every((value, x) => value === state.asked.data[x])) return null;
  return { fold: state.unpulled.fold, lengths: state.unpulled.states[Math.round(now.r)].lengths };
}

// The mean place of each child's parents among those that are `shown`, weighed by couplings c.
function meanPlaces(c, shown) {
  const weights = new Map();
  state.image.src.forEach((child, e) => {
    const [weight, sum] = weights.get(child) ?? [0, 0];
    if (shown.has(state.image.dst[e])) weights.set(child, [weight + c[e], sum + c[e] * state.image.dst[e]]);
  });
  return (child) => (weights.has(child) ? weights.get(child)[1] / weights.get(child)[0] : state.trace.parents.length);
}

// A question, and how many children choose which parent at this moment.
export function drawTitle(blank) {
  const [k, r] = [Math.round(now.k), Math.round(now.r)],
    counts = Array(state.trace.parents.length).fill(0);
  for (const [parent] of choicesAt({ k, r }).values()) if (parent !== null) counts[parent]++;
  const all = state.image.chosen?.(k, r) ?? counts, // of children that aren't shown too
    chosen = [...all.keys()].filter((j) => all[j]).sort((a, b) => all[b] - all[a]),
    named = chosen.map((j) => [state.trace.parents[j].name, all[j]]),
    title = words.title(noun(), state.trace.network?.objects ?? 1, blank ? null : named, state.image.chosen ? state.image.linked.length : state.image.order.length);
  if ($("h1").textContent !== title) $("h1").textContent = title;
}

// The noun that the parents stand for.
export function noun() {
  if (!state.photo) return words.parent;
  return state.trace.parents.every(({ name }) => /^\d$/.test(name)) ? "digit" : "class";
}

export function drawTime() {
  const epoch = state.trace.epochs[Math.round(now.k)];
  drawRound();
  $("#epoch").value = Math.round(now.k);
  $("#epochs output").textContent = words.of(epoch, state.trace.epochs.at(-1)) + (epoch === 0 ? `, ${words.untrained}` : "");
  $("#epochs button").setAttribute("aria-pressed", now.playing?.over === "epochs");
}

// The rows of the parents shown, each with its picture by the decoder, where there is one.
export function drawParents(lengths, longest, { blank, untrained, wrong }) {
  const answer = blank || untrained ? [] : answers(lengths),
    before = beforePulls(),
    largest = state.trace.parents.some(({ name }) => name.length > 3) ? 72 : LARGEST_SIDE, // a word needs room beside it
    side = Math.max(LEAST_SIDE, Math.min(largest, $(".stage").clientHeight / state.fold.parents.length - 8));
  $("#parents").style.setProperty("--side", `${side}px`);
  $("#parents").classList.toggle("filtered", now.parent !== null);
  const [dot, name, value, unseen, bar, was] = ["dot", "name", "value", "unseen", "bar", "was"].map((part) => `<span class="${part}"></span>`),
    html = `<button type="button"><canvas hidden></canvas>${dot} ${name} ${value}${unseen}${bar}${was}</button>`;
  fill($("#parents"), state.fold.parents.length, html, (row) => {
    row.addEventListener("click", () => choose({ parent: now.parent === Number(row.dataset.parent) ? null : Number(row.dataset.parent) }));
  });
  state.fold.parents.forEach((j, at) => {
    const row = $("#parents").children[at],
      { name } = state.trace.parents[j],
      dead = state.trace.dead?.[Math.round(now.k)][Math.round(now.r)][j],
      value = blank ? "" : words.amount(lengths[j]),
      picture = blank || !isLastEpoch() ? null : state.decoder?.pictureOf(j) ?? null;
    row.dataset.parent = j;
    row.title = name;
    row.style.setProperty("--of", state.look.parents[j]);
    row.classList.toggle("longest", answer.includes(j));
    row.classList.toggle("target", (state.graph.pull?.to ?? now.hovered?.parent) === j);
    row.setAttribute("aria-pressed", j === now.parent);
    row.querySelector("canvas").hidden = !picture;
    if (picture) paste(row.querySelector("canvas"), picture);
    row.querySelector(".dot").textContent = dead ? DEAD : wrong ? { [longest]: WRONG, [state.image.label]: RIGHT }[j] ?? "" : "";
    row.querySelector(".name").textContent = name;
    row.querySelector(".value").textContent = value;
    row.querySelector(".bar").style.setProperty("--share", blank ? 0 : lengths[j]);
    row.querySelector(".was").textContent = side >= ROOMY && before && value !== words.amount(before.lengths[j]) ? words.was(before.lengths[j]) : "";
    row.querySelector(".unseen").textContent = words.marks(answer.includes(j), wrong && j === longest, wrong && j === state.image.label, dead);
  });
}

// The lines of the tip at a child or an edge.
export function tipLines({ child, parent, edge }) {
  const name = childName(child);
  if (edge === undefined) return [sentence(name), words.tipChild(at(state.image.entropy, now)[child].toFixed(3))];
  const share = at(state.image.c, now)[edge];
  return [words.gives(name, share, state.trace.parents[parent].name), ...words.tipEdge(...numbersAt(now)(edge))];
}

// A function that gives the numbers of an edge at a moment: c, b and agreement; of a softmax without votes c alone.
function numbersAt(moment) {
  const [c, b, agreement] = ["c", "b", "agreement"].map((name) => state.image[name] && at(state.image[name], moment));
  return (edge) => [fixed(c[edge], 3), ...(agreement ? [writtenLogit(b[edge], state.image.src[edge], state.image.dst[edge]), fixed(agreement[edge], 2)] : [])];
}

// The image, its strokes in the colours of the parents that get them; or those that move the child under the pointer.
export function drawImage() {
  const child = now.hovered?.child ?? now.child,
    { fields } = state.trace,
    parents = now.parent === null ? state.fold.parents : [now.parent],
    [, height, width] = state.image.pixels.shape,
    lit = parents.map((j) => rgbOf(lighter(state.trace.parents[j].color, "#000000")));
  let tinted = null,
    note = "";
  if (child !== null && state.heat && isLastEpoch()) {
    tinted = tint([state.heat.spot(child)], [state.look.glow], 255, height, width);
    note = words.glowOfChild(childName(child));
  } else {
    const maps = state.decoder?.painted(parents, now) ?? state.heat?.maps(parents, now);
    if (maps) tinted = tint(maps, lit, ENOUGH, height, width);
    if (maps) note = words.colors;
  }
  const frame = child !== null && fields && !state.heat ? fields.places[fields.of[child]] : null;
  if (frame) note = words.frame(frame[2], frame[3], childName(child));
  if (state.desk) state.desk.show(tinted, frame);
  else drawPhoto($("#sheet canvas"), state.photo, tinted, frame);
  $("#sheet canvas").title = note;
  if ($("#ink").textContent !== note) $("#ink").textContent = note;
  const truth = state.trace.parents[state.image.label]?.name;
  $("#sheet canvas").setAttribute("aria-label", `${words.sheet(truth)} ${note}`);
}

export function drawChildTable(c) {
  if ($("#child").hidden) return;
  const { child } = now,
    edges = [...state.image.src.keys()].filter((edge) => state.image.src[edge] === child);
  $("#child table").hidden = child === null;
  $("#child h2").textContent = child === null ? words.oneChild : words.divides(childName(child));
  $("#child p").textContent = child === null ? words.chooseChild : words.sumsTo1(at(state.image.entropy, now)[child].toFixed(3));
  const numbers = numbersAt(now);
  fill($("#child tbody"), edges.length, '<tr><td></td><td><span class="bar"></span></td><td></td><td></td><td></td></tr>');
  edges.forEach((edge, at) => {
    const { cells } = $("#child tbody").rows[at],
      parent = state.image.dst[edge];
    cells[0].textContent = state.trace.parents[parent].name;
    setBar(cells[1].firstChild, c[edge], state.look.parents[parent]);
    numbers(edge).forEach((text, column) => (cells[2 + column].textContent = text));
  });
}

export function drawNumbers(longest, lengths, { blank, untrained, wrong }) {
  const mean = at(state.image.meanEntropy, now),
    { level, choices } = state.trace,
    undecided = choices ? `ln ${choices} = ${level.toFixed(2)}` : words.onAverage(level.toFixed(2));
  $("#mean").textContent = words.meanEntropy(mean.toFixed(2), undecided);
  $("#entropy canvas").setAttribute("aria-label", `${$("#entropy h2").textContent}. ${$("#mean").textContent}`);
  const place = words.moment(Math.round(now.r) + 1, state.trace.epochs[Math.round(now.k)]);
  const chosen = now.child === null ? "" : words.isSelected(childName(now.child));
  state.graph.canvas.setAttribute("aria-label", words.graphLabel(words.children(state.fold.children.length), words.parents(state.fold.parents.length), chosen));
  const answer = blank ? words.noAnswer : words.longestIs(state.trace.parents[longest].name, words.amount(lengths[longest]), wrong);
  const text = `${place}: ${untrained ? words.untrained : answer}.${chosen}`;
  if (!now.playing && $("#status").textContent !== text) $("#status").textContent = text;
}
