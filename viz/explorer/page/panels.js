// The parts of the page around the graph: each shows the moment `now` of `image` in words, numbers and bars.

import { rgbOf } from "./graph.js";
import { drawPhoto, paste, tint } from "./picture.js";
import { OTHERS } from "./ribbons.js";
import { childName, choose, drawRound, writtenLogit } from "./shell.js";
import { now, state } from "./state.js";
import { $, decision, fill, fixed, indexOfLargest, lighter, sentence, setBar } from "./tools.js";
import { at } from "./trace.js";
import { words } from "./words.js";

export const WRONG = "✗";
export const RIGHT = "✓";
const DEAD = "†";
const MOST_ROWS = 24, // parents that all have a row where their loads are shown
  LEAST_SIDE = 12, // pixels of a parent's picture
  LARGEST_SIDE = 96,
  ROW = 24, // pixels of a row without a picture
  ROOMY = 60; // pixels of a picture beside which an old length has room

// Pictures of children and parents are known of the last epoch alone.
export function isLastEpoch() {
  return Math.round(now.k) === state.trace.epochs.length - 1;
}

// The parent that an image of a trace's JSON was taken for, or "". The network's answer is the longest
// parent after the rounds of training.
export function wrongOf({ trained, parents, threshold }, each) {
  const lengths = each.lengths.at(-1)[trained - 1],
    longest = indexOfLargest(lengths);
  return lengths[longest] > threshold && isWrong(each, longest, parents) ? parents[longest].name : "";
}

export function isWrong({ label }, longest, parents = state.trace.parents) {
  return label in parents && label !== longest;
}

// The parents that the network names, in their order: as many of the longest as an image has objects, as far as they are
// longer than the network's threshold.
export function answers(lengths, objects = state.trace.network?.objects ?? 1) {
  const { threshold } = state.trace,
    order = [...lengths.keys()].sort((a, b) => lengths[b] - lengths[a] || a - b);
  return order.slice(0, objects).filter((j) => lengths[j] > threshold).sort((a, b) => a - b);
}

// child -> [parent, or null while undecided; coupling; whether it chooses] of its largest coupling at a moment.
export function choicesAt(moment) {
  const { src, dst, choices } = state.image,
    c = at(state.image.c, moment),
    best = new Map();
  src.forEach((child, e) => c[e] <= c[best.get(child)] || best.set(child, e));
  for (const [child, e] of best) {
    const { chooses, undecided } = decision(c[e], choices.get(child));
    best.set(child, [undecided ? null : dst[e], c[e], chooses]);
  }
  return best;
}

// The children and the columns of parents from top to bottom, as the answer has them: the parents that are named outside,
// the others between them, in one column unless all are asked for; children by the mean place of their shares.
export function ordered() {
  const answer = { k: Math.round(now.k), r: state.trace.trained - 1 },
    lengths = at(state.image.lengths, answer),
    named = answers(lengths),
    linked = [...new Set(state.image.dst)].sort((a, b) => a - b),
    loads = Boolean(state.trace.dead),
    all = now.all || (loads && linked.length <= MOST_ROWS),
    before = beforePulls()?.order;
  const outer = loads ? [] : before?.outer ?? named,
    contending = answers(lengths, named.length + 1), // the named parents and the longest other one
    asked = [now.parent, ...contending, ...Object.values(state.held)].filter((j) => linked.includes(j) && !outer.includes(j)),
    inner = all ? linked.filter((j) => !outer.includes(j)) : [...new Set(asked)].sort((a, b) => a - b),
    others = linked.filter((j) => !outer.includes(j) && !inner.includes(j)),
    columns = [...outer.slice(0, 1), ...inner, ...(others.length ? [OTHERS] : []), ...outer.slice(1)];
  const place = meanPlaces(at(state.image.c, answer), loads ? linked : [...outer.slice(0, 1), OTHERS, ...outer.slice(1)]);
  return {
    choices: choicesAt(answer),
    named,
    outer,
    all,
    loads,
    others,
    columns,
    parents: columns.filter((j) => j !== OTHERS),
    children: before?.children ?? [...state.image.order].sort((a, b) => place(a) - place(b)),
  };
}

// {lengths, order} of the answer before ribbons were pulled, or null where none is.
export function beforePulls() {
  if (!Object.keys(state.held).length || !state.unpulled?.data.every((value, x) => value === state.asked.data[x])) return null;
  return { order: state.unpulled.order, lengths: state.unpulled.states[Math.round(now.r)].lengths };
}

// The mean place of each child's shares among columns.
function meanPlaces(c, columns) {
  const sums = new Map();
  state.image.src.forEach((child, e) => {
    const place = columns.indexOf(columns.includes(state.image.dst[e]) ? state.image.dst[e] : OTHERS);
    sums.set(child, (sums.get(child) ?? 0) + c[e] * place);
  });
  return (child) => sums.get(child) ?? 0;
}

// A question, and how many children choose which parent at this moment.
export function drawTitle(blank) {
  const [k, r] = [Math.round(now.k), Math.round(now.r)],
    counts = Array(state.trace.parents.length).fill(0);
  for (const [parent, , chooses] of choicesAt({ k, r }).values()) if (chooses) counts[parent]++;
  const all = state.image.chosen?.(k, r) ?? counts, // of children that aren't shown too
    given = [...all.keys()].filter((j) => all[j]).sort((a, b) => all[b] - all[a]),
    counted = given.map((j) => [state.trace.parents[j].name, all[j]]),
    title = words.title(noun(), state.trace.network?.objects ?? 1, blank ? null : counted, state.image.chosen ? state.image.linked.length : state.image.order.length);
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

// The rows of the parents beside their bars, each with its picture by the decoder, where there is one; and the row of the
// others, which shows them.
export function drawParents(lengths, longest, { blank, untrained, wrong }) {
  const { columns, named, others } = state.order,
    before = beforePulls(),
    largest = state.trace.parents.some(({ name }) => name.length > 3) ? 72 : LARGEST_SIDE, // a word needs room beside it
    side = Math.max(LEAST_SIDE, Math.min(largest, $(".stage").clientHeight / columns.length - 8)),
    pictured = !blank && isLastEpoch() && state.decoder;
  $("#parents").style.setProperty("--side", `${side}px`);
  $("#parents").classList.toggle("filtered", now.parent !== null);
  const [name, value, mark, unseen, was] = ["name", "value", "mark", "unseen", "was"].map((part) => `<span class="${part}"></span>`),
    html = `<button type="button"><canvas hidden></canvas>${name} ${value} ${mark}${unseen}${was}</button>`;
  fill($("#parents"), columns.length, html, (row) => {
    row.addEventListener("click", () => {
      const parent = Number(row.dataset.parent);
      choose(parent === OTHERS ? { all: true } : { parent: now.parent === parent ? null : parent });
    });
  });
  const places = state.graph.labels((j) => (j === OTHERS ? 2 * ROW : pictured ? side + 6 : ROW));
  columns.forEach((j, at) => {
    const row = $("#parents").children[at],
      part = (name) => row.querySelector(`.${name}`),
      dead = state.trace.dead?.[Math.round(now.k)][Math.round(now.r)][j],
      picture = (pictured && state.decoder.pictureOf(j)) || null,
      shown = j === OTHERS ? "" : blank ? "" : words.amount(lengths[j]);
    row.dataset.parent = j;
    row.title = j === OTHERS ? words.unfold : state.trace.parents[j].name;
    row.style.setProperty("--of", j === OTHERS ? state.look.rest : state.look.parents[j]);
    row.style.top = `${places[at].y}px`;
    row.style.height = `${places[at].tall}px`;
    row.classList.toggle("longest", named.includes(j) && !blank && !untrained);
    row.classList.toggle("others", j === OTHERS);
    row.classList.toggle("target", (state.graph.pull?.to ?? now.hovered?.parent) === j);
    row.setAttribute("aria-pressed", j === now.parent);
    row.querySelector("canvas").hidden = !picture;
    if (picture) paste(row.querySelector("canvas"), picture);
    part("name").textContent = j === OTHERS ? words.others(others.length, noun(), Math.max(...others.map((other) => lengths[other])), columns.length === 1) : state.trace.parents[j].name;
    part("value").textContent = shown;
    part("mark").textContent = dead ? DEAD : wrong ? { [longest]: WRONG, [state.image.label]: RIGHT }[j] ?? "" : "";
    part("was").textContent = side >= ROOMY && before && shown && shown !== words.amount(before.lengths[j]) ? words.was(before.lengths[j]) : "";
    part("unseen").textContent = words.marks(named.includes(j), wrong && j === longest, wrong && j === state.image.label, dead);
  });
}

// The lines of the tip at a child or an edge.
export function tipLines({ child, parent, edge }) {
  const name = childName(child);
  if (parent === OTHERS) return [words.givesOthers(name, state.order.others.length)];
  if (edge === undefined) return [sentence(name), words.tipChild(at(state.image.entropy, now)[child].toFixed(3))];
  const share = at(state.image.c, now)[edge];
  return [words.gives(name, share, state.trace.parents[parent].name), ...words.tipEdge(...numbersAt(now)(edge))];
}

// A function that gives the numbers of an edge at a moment: c, b and agreement; of a softmax without votes c alone.
function numbersAt(moment) {
  const [c, b, agreement] = ["c", "b", "agreement"].map((name) => state.image[name] && at(state.image[name], moment));
  return (edge) => [fixed(c[edge], 3), ...(agreement ? [writtenLogit(b[edge], state.image.src[edge], state.image.dst[edge]), fixed(agreement[edge], 2)] : [])];
}

// The image, its strokes in the colours of the parents that get them, and the field of the child that is spoken of.
export function drawImage() {
  const child = now.hovered?.child ?? now.child,
    { fields } = state.trace,
    parents = now.parent === null ? state.order.named : [now.parent],
    [, height, width] = state.image.pixels.shape,
    lit = parents.map((j) => rgbOf(lighter(rgbOf(state.look.parents[j]), "#000000", 0)));
  let tinted = null,
    note = "";
  const maps = parents.length ? state.decoder?.painted(parents, now) : null;
  if (maps) tinted = tint(maps, lit, height, width);
  if (maps && Math.round(now.r)) note = words.colors(noun(), parents.length > 1) + (["ink", "votes"].includes(now.screen) ? "" : words.greyRibbons(words.plurals[noun()]));
  const frame = child !== null && fields ? fields.places[fields.of[child]] : null;
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
  state.graph.canvas.setAttribute("aria-label", words.graphLabel(words.children(state.order.children.length), words.parents(state.order.parents.length), chosen));
  const answer = blank ? words.noAnswer : words.longestIs(state.trace.parents[longest].name, words.amount(lengths[longest]), wrong);
  const text = `${place}: ${untrained ? words.untrained : answer}.${chosen}`;
  if (!now.playing && $("#status").textContent !== text) $("#status").textContent = text;
}
