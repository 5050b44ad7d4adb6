// The article: screens of text beside the stage, which shows what the screen on view speaks of. Its numbers are those of the
// image on the sheet. A screen is entered by scrolling, by a link, or with the keys J and K.

import { isOnePass } from "./formulas.js";
import { PICTURED } from "./graph.js";
import { arrivals, changed, hold, layOut, network } from "./live.js";
import { LET_GO } from "./layer.js";
import { beforePulls, choicesAt, noun } from "./panels.js";
import { childName, choose, drawings, redraw, shortName, still, travel } from "./shell.js";
import { edgeTo, NOTHING, now, state } from "./state.js";
import { $, fill, fixed, sentence, thousands } from "./tools.js";
import { stored } from "./trace.js";
import { screens } from "./words.js";

const texts = screens,
  leave = (selector) => document.querySelectorAll(selector).forEach((part) => part.remove());
if (isOnePass(state.layer.routing)) leave(":is([data-screen=round], [data-screen=agreement], [data-screen=routing], [data-screen=without]).step");
if (state.layer.learnedPrior) leave(":is([data-screen=round], [data-screen=without]).step, .zero"); // shares start unequal
if (state.layer.routing !== "dynamic") leave(".by-agreement");
const pictured = Boolean(network.decoder) && stored.children <= PICTURED;
if (!pictured) leave(".pictured");
document.body.classList.toggle("decoded", pictured);
const steps = [...document.querySelectorAll(".step")];
export const SCREENS = steps.map((step) => step.dataset.screen);
const last = stored.trained - 1,
  PROMPT = 900, // milliseconds
  RING = 5, // pixels of the side of the ink in the ring
  UNCHANGED = 0.02, // of a length
  FEW = 3, // parts that a sentence lists
  SHARED = 1 / 3; // of the ink's colour, from which it belongs to both
let gliding = 0,
  equalShown = false; // whether the screen without routing shows equal shares

if (new URLSearchParams(location.search).has("embed")) document.body.dataset.embed = ""; // the stage alone
for (const part of document.querySelectorAll(".live:not(#guess)")) part.hidden = false; // drawGuess shows that

function glide(r, milliseconds = PROMPT, after = () => {}) {
  clearTimeout(gliding);
  travel("screen", "r", r, still.matches || r === now.r ? 0 : milliseconds, after);
}

// On the first screen, strokes take sides again and again, once the reader has guessed.
function loop() {
  if (now.screen !== "ink") return;
  now.r = 0;
  redraw();
  gliding = setTimeout(() => asks() || glide(last, 3200, () => !still.matches && (gliding = setTimeout(loop, 4000))), PROMPT);
}

// The child that gives most to a parent in the answer.
function strongestFor(parent) {
  const { c } = (beforePulls() ? state.unpulled : state.routed).states[last];
  return state.order.children.reduce((best, child) => (c[edgeTo(parent, child)] > c[edgeTo(parent, best)] ? child : best));
}

const second = () => state.order.outer.at(-1);
const name = (parent) => stored.parents[parent]?.name ?? "";
const length = (r, parent) => state.routed.states[r].lengths[parent];

const ENTER = {
  ink: loop,
  votes: () => glide(0),
  round: () => glide(0),
  agreement() {
    choose({ child: strongestFor(second()) });
    glide(subject().turn + 1);
  },
  routing() {
    now.r = 0;
    glide(last, 2500);
  },
  silence: () => glide(last),
  without: () => showEqual(true),
  yours: () => glide(last),
};

function showEqual(equal) {
  $("#equal").textContent = equal ? texts.showRouting : texts.showEqual;
  equalShown = equal;
  glide(equal ? 0 : last);
}

// Show a screen. The article is about as many things as the network can name: a sheet with fewer gives way to the first image.
export function enter(screen) {
  if (screen === now.screen) return;
  const before = now.screen;
  now.screen = screen;
  document.body.dataset.screen = screen;
  for (const step of steps) step.classList.toggle("on", step.dataset.screen === screen);
  clearTimeout(gliding);
  if (!state.routed) return screen === "ink" || loop();
  if (before === "silence" && Object.keys(state.held).length) release();
  if (screen !== "yours" && state.order.named.length < Math.min(2, network.objects)) {
    layOut(stored.start);
    changed();
  }
  if (screen !== "yours") choose({ ...NOTHING, all: false });
  ENTER[screen]();
}

export function scrollToScreen(screen) {
  steps[SCREENS.indexOf(screen)].scrollIntoView({ block: "start", behavior: "instant" });
}

function release() {
  state.held = {};
  changed();
}

// The child that the screens speak of, the chosen one or the strongest, its parent, and the round in which it turns most.
function subject() {
  const parent = second(),
    child = now.child ?? strongestFor(parent),
    { states } = state.routed,
    share = (r, j) => states[r].c[edgeTo(j, child)],
    best = state.order.named.reduce((most, j) => (share(last, j) > share(last, most) ? j : most), parent),
    gain = (r) => share(r + 1, best) - share(r, best),
    turn = [...Array(last).keys()].reduce((most, r) => (gain(r) > gain(most) ? r : most));
  const edge = edgeTo(best, child),
    shares = [turn, turn + 1].map((r) => fixed(states[r].c[edge], 2)),
    logits = [turn, turn + 1].map((r) => fixed(states[r].b[edge], 2));
  return { child, parent: best, turn, agreement: fixed(states[turn].agreement[edge], 2), shares, logits };
}

function lengths(r, parents = state.order.named) {
  return parents.map((j) => texts.long(name(j), fixed(length(r, j), 2))).join(texts.and);
}

const percent = (share, digits = 0) => fixed(100 * share, digits);

// What stands in the text of each screen, about the image on the sheet.
const LIVE = {
  roundLengths() {
    const { named } = state.order,
      ends = [named.map(name).join(texts.and), named.map((j) => fixed(length(0, j), 2)).join(texts.and), fixed(Math.ceil(100 * Math.max(...state.order.others.map((j) => length(0, j)))) / 100, 2)];
    return named.length > 1 ? texts.roundLengths(...ends) : texts.roundLength(...ends);
  },
  agreement() {
    const { child, parent, turn, agreement, shares, logits } = subject();
    return texts.agreement(turn + 1, childName(child), name(parent), agreement, ...shares, turn + 2, ...logits);
  },
  a: () => subject().agreement,
  b: () => subject().logits[1],
  c: () => subject().shares[1],
  now: () => texts.now(Math.round(now.r) + 1, lengths(Math.round(now.r)), stored.trained),
  most() {
    const largest = [...choicesAt({ k: now.k, r: last })],
      spread = largest.filter(([, [, , chooses]]) => !chooses).map(([child]) => shortName(child)),
      rest = spread.length > FEW ? texts.spreadMany(spread.length) : spread.length ? texts.spread(spread.join(", "), spread.length === 1) : "";
    return texts.most(largest.length - spread.length, largest.length, noun(), rest, largest.length - spread.length === 1);
  },
  ask() {
    const parent = second(),
      child = strongestFor(parent),
      { c } = (beforePulls() ? state.unpulled : state.routed).states[last];
    return texts.ask(sentence(childName(child)), percent(c[edgeTo(parent, child)]), name(parent), name(state.order.outer[0]));
  },
  equalLengths() {
    const top = (r) => [...state.routed.states[r].lengths.keys()].sort((a, b) => length(r, b) - length(r, a)).slice(0, state.order.named.length).sort((a, b) => a - b);
    return texts.equalLengths(lengths(0, top(0)), lengths(last)) + (top(0).join() === top(last).join() ? texts.sameNames : texts.otherNames);
  },
  fails: () => (alone ? texts.fails(percent(alone, 1)) : ""),
  rank: (rank = shown_ranks?.[state.shown.at]) => (rank ? texts.rank(rank) : ""),
  limits: () => (gain ? texts.limits(...[...gain, cnn].map((part) => percent(part, 2)), gain[1] < 0) : ""),
};

// What routing is worth, measured: rows of a text, a value with equal shares, and one with routing.
const { equal_shares: pairs, trained_with_equal_shares: control, singles_alone_above_threshold: alone, routing_gain: gain, cnn_accuracy: cnn, test_accuracy, shown_ranks } = network.measured ?? {},
  rate = (part) => `${percent(part, 2)} %`,
  ends = (...values) => values.map((value) => fixed(value, 2)).join(", "),
  rows = [
    pairs && [texts.switchedOff(thousands(pairs.pairs)), rate(pairs.right_with_equal_shares / pairs.pairs), rate(pairs.right / pairs.pairs)],
    pairs && [texts.ends, ends(pairs.second_with_equal_shares, pairs.third_with_equal_shares), ends(pairs.second, pairs.third)],
    control && [texts.trained, rate(control), rate(test_accuracy)],
  ].filter(Boolean);
if (!rows.length) leave("#measured");
else if ($("#measured")) fill($("#measured tbody"), rows.length, "<tr><td></td><td></td><td></td></tr>", ({ cells }, at) => rows[at].forEach((text, n) => (cells[n].textContent = text)));

// Write the numbers into the screen on view, or for a printer into all.
function writeNumbers(within = ".step.on") {
  if (!state.routed || !state.order.named.length || state.order.named.length < Math.min(2, network.objects)) return false;
  for (const part of document.querySelectorAll(`${within} [data-live]`)) {
    const text = String(LIVE[part.dataset.live]());
    if (part.textContent !== text) part.textContent = text;
  }
  return true;
}
addEventListener("beforeprint", () => writeNumbers(".step"));

function drawArticle() {
  if (!writeNumbers()) return;
  if (now.screen === "silence") drawSilence();
  if (now.screen === "ink") drawGuess();
}

$("#equal")?.addEventListener("click", () => showEqual(!equalShown));

// The guess: whose is the ink where both pictures of the answer are strong?
let guess = { of: null, answered: false }; // the answer, the place of the ring, and the first parent's part of its colour

// Whether a guess is awaited, or the pictures that the question needs.
function asks() {
  return pictured && state.order.named.length > 1 && !("embed" in document.body.dataset) && !(guess.of === state.routed && guess.answered);
}

function findInk() {
  const [, high, wide] = network.shape,
    pixels = state.image.pixels.data,
    maps = state.decoder?.painted(state.order.named, { k: now.k, r: last });
  if (!maps || maps.length < 2) return null;
  const around = (of, x, y) => {
    let sum = 0;
    for (let dy = 0; dy < RING; dy++) for (let dx = 0; dx < RING; dx++) sum += of((y + dy) * wide + x + dx);
    return sum;
  };
  let best = { both: 0 };
  for (let y = 0; y + RING <= high; y++) {
    for (let x = 0; x + RING <= wide; x++) {
      const both = around((p) => pixels[p] * Math.min(maps[0][p], maps[1][p]), x, y);
      if (both > best.both) best = { both, x, y };
    }
  }
  if (!best.both) return { share: null };
  const [one, two] = maps.map((map) => around((p) => pixels[p] * map[p] ** 2, best.x, best.y));
  return { ...best, share: one / (one + two), high, wide };
}

function drawGuess() {
  if (guess.of !== state.routed) {
    const ink = findInk();
    if (!ink) return;
    guess = { of: state.routed, answered: ink.share === null, ...ink };
    $("#guess").hidden = $("#ring").hidden = guess.answered;
    if (guess.answered) return loop();
    $("#guess .says").textContent = "";
    [...$("#guess .choices").children].forEach((button, at) => {
      button.textContent = at < 2 ? texts.guess(name(state.order.named[at])) : texts.both;
      button.className = ["first", "second", ""][at];
    });
    const { x, y, wide, high } = guess,
      side = (2 * RING) / wide;
    Object.assign($("#ring").style, { left: `${(100 * (x + RING / 2)) / wide - 50 * side}%`, top: `${(100 * (y + RING / 2)) / high - 50 * side}%`, width: `${100 * side}%` });
  }
}

[...$("#guess .choices").children].forEach((button, at) => {
  button.addEventListener("click", () => {
    const shares = [guess.share, 1 - guess.share],
      [more, less] = shares[0] > shares[1] ? [0, 1] : [1, 0],
      names = state.order.named.map(name),
      right = shares[less] > SHARED ? 2 : more;
    guess.answered = true;
    clearTimeout(gliding);
    loop();
    $("#guess .says").textContent = texts.guessed(percent(shares[more]), names[more], percent(shares[less]), names[less]) + (right === at ? texts.youAgree : texts.youDiffer);
  });
});

// Predict what happens to the other whole if the strongest part falls silent; then see.
let predicted = null;

for (const button of document.querySelectorAll("#predict button")) {
  button.textContent = texts[button.value];
  button.addEventListener("click", () => {
    predicted = button.value;
    const child = strongestFor(second());
    if (state.held[child] !== LET_GO) hold(child, LET_GO);
    else redraw();
  });
}
$("#heard")?.addEventListener("click", () => {
  predicted = null;
  release();
});

function drawSilence() {
  const silent = Object.keys(state.held).map(Number),
    before = silent.length ? beforePulls() : null;
  $("#heard").hidden = !silent.length;
  let text = "";
  if (before && state.asked.count === state.questions) {
    const old = state.unpulled.states[last].lengths,
      named = state.order.outer, // those before
      by = length(last, named[0]) - old[named[0]],
      happened = by > UNCHANGED ? "grows" : by < -UNCHANGED ? "falls" : "stays";
    text = texts.silenced(silent.map(shortName).join(", "), named.map((j) => texts.goes(name(j), fixed(old[j], 2), fixed(length(last, j), 2))).join(texts.and));
    if (silent.length === 1 && predicted) text += texts[predicted === happened ? "right" : "wrong"] + texts[`because${sentence(happened)}`](name(named[0]));
    $("#again").hidden = false;
  }
  if ($("#silenced").textContent !== text) $("#silenced").textContent = text;
}

// On the screen of silence, a click on a strip silences its child, or lets it be heard.
function silences(child) {
  if (now.screen !== "silence") return false;
  hold(child, state.held[child] === LET_GO ? null : LET_GO);
  return true;
}
state.silences = silences;
state.graph.drawsVotes = () => now.screen === "votes" && state.graph.pictures?.size;

drawings.push(drawArticle);

// The first answer starts the screen, and so does a link to it that names no round.
let entered = false;
arrivals.push((_, { moment }) => {
  if (!state.order.named.length || (entered && (!moment || now.screen === "yours" || moment.iteration))) return;
  if (!moment?.iteration) ENTER[now.screen]();
  entered = true;
});

// Where a screen comes to rest, which its link needn't hold.
export function usual() {
  if (now.screen === "agreement" && state.routed && state.order.named.length) {
    const child = strongestFor(second());
    return { r: now.child === child ? subject().turn + 1 : null, child };
  }
  return { r: ["votes", "round", "without"].includes(now.screen) || (now.screen === "ink" && asks()) ? 0 : last, child: null };
}

// Links to screens, also where the page stands within another one, as in a notebook.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element && event.target.closest('a[href^="#screen="]');
  if (!link) return;
  event.preventDefault();
  scrollToScreen(link.getAttribute("href").slice("#screen=".length));
});

// A stroke on the sheet leads to the last screen.
$("#sheet canvas").addEventListener("pointerdown", () => now.screen !== "yours" && scrollToScreen("yours"));

addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
  const by = { j: 1, k: -1 }[key];
  if (!by || ctrlKey || metaKey || altKey || target.matches("input:not([type=range]), select")) return;
  const next = SCREENS[SCREENS.indexOf(now.screen) + by];
  if (next) scrollToScreen(next);
});

const margin = matchMedia("(max-width: 760px)").matches ? "-72% 0px -26% 0px" : "-49% 0px -49% 0px";
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) enter(target.dataset.screen);
}, { rootMargin: margin });
if (!("embed" in document.body.dataset)) for (const step of steps) seen.observe(step);
