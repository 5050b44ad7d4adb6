// The origin of a coupling in this image's numbers: one edge's logit, one child's softmax, one iteration in its four
// lines, as the loops of tests/oracle.py have them. Numbers are those of the newest answer.

import { Curve, surface } from "./charts.js";
import { childName, choose, drawings, go, redraw, spokenOf, writtenLogit } from "./shell.js";
import { dot, edgesFrom, edgeTo, lengthOf, now, parentAt, state, strengthOf, sumAt, voteOf } from "./state.js";
import { $, fill, fixed, sentence, setBar } from "./tools.js";
import { VoteView } from "./votes.js";
import { words } from "./words.js";

const view = new VoteView($("#votes canvas"));
export const explanations = []; // functions that explain more, each called with the subject and the iteration
export const own = {}; // what a page adds: outputLine(parent, r) in place of squash, and rule(usual, e, r) of a logit

// The child that couples most strongly with a parent after the iterations of training, among those drawn.
function strongestOf(parent) {
  const { c } = state.routed.states[state.layer.iterations - 1],
    edges = state.image.order.map((child) => edgeTo(parent, child)).filter((e) => e !== undefined);
  return edges.length ? state.layer.src[edges.reduce((best, e) => (c[e] > c[best] ? e : best))] : null;
}

// The edge that is spoken of: of the child that is, or of the one that couples most strongly with the parent.
function subjectOf(parent) {
  const { hovered } = now,
    child = spokenOf() ?? strongestOf(parent);
  if (child === null) return null;
  const { c } = state.routed.states[state.layer.iterations - 1],
    edge = edgeTo(hovered?.parent ?? parent, child) ?? edgesFrom(child).reduce((best, e) => (c[e] > c[best] ? e : best));
  return { child, edge, parent: state.layer.dst[edge] };
}

// The learned prior logit of an edge, or 0.
function priorOf(e) {
  return state.layer.learnedPrior ? state.layer.learnedPrior[e] : 0;
}

// The beginning of a formula, in letters and in numbers, if there is a prior.
function priorLetters() {
  return state.layer.learnedPrior ? `${words.prior} + ` : "";
}
function started(e) {
  return priorLetters() && `${fixed(priorOf(e), 3)} + `;
}

export function plus(value) {
  return `${value < 0 && fixed(value, 3) !== fixed(0, 3) ? "\u2212" : "+"} ${fixed(Math.abs(value), 3)}`;
}

// Numbers of any size: 0.137, 12.4, 3.1 × 10^5.
function short(value) {
  if (value !== 0 && (value >= 1e5 || value < 1e-3)) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits} × 10^${Number(power)}`.replace("-", "\u2212");
  }
  return value >= 1000 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(3);
}

// The terms of an edge's logit: the formula in letters (`start`: with the number that it starts from), in numbers, a
// note, and the vector that the vote is held against, with its name.
const RULES = {
  dynamic: (e, r) => {
    const { b, agreement } = state.routed.states[r],
      v = parentAt(r, state.layer.dst[e]);
    return {
      letters: "b + ⟨û, v⟩",
      start: `${fixed(b[e], 3)} + ⟨û, v⟩`,
      numbers: `${fixed(b[e], 3)} ${plus(agreement[e])} = ${fixed(b[e] + agreement[e], 3)}`,
      note: words.added(r, r === state.layer.iterations - 1),
      against: v,
      called: "v",
    };
  },
  spherical: (e, r) => {
    const { c, b } = state.routed.states[r],
      j = state.layer.dst[e],
      s = sumAt(j, c),
      size = lengthOf(s),
      mu = s.map((value) => (size > 0 ? value / size : 0)),
      strength = strengthOf(j),
      along = dot(voteOf(e), mu);
    return {
      letters: `${priorLetters()}κ/ρ · ⟨û, s/‖s‖⟩`,
      numbers: `${started(e)}${fixed(strength, 3)} · ${fixed(along, 3)} = ${fixed(priorOf(e) + strength * along, 3)}`,
      note: words.replaced(fixed(b[e], 3), r),
      against: mu,
      called: "s/‖s‖",
    };
  },
  attention: (e) => {
    const { b } = state.routed.states[0],
      all = sumAt(state.layer.dst[e]),
      product = fixed(dot(voteOf(e), all), 3);
    return {
      letters: `${priorLetters()}⟨û, Σ û⟩ / √${state.layer.dim}`,
      numbers: `${started(e)}${product} / ${fixed(Math.sqrt(state.layer.dim), 3)} = ${fixed(b[e], 3)}`,
      note: words.computedOnce,
      against: all,
      called: "Σ û",
    };
  },
  uniform: (e, r) => {
    const { b, agreement } = state.routed.states[0];
    return {
      letters: state.layer.learnedPrior ? words.prior : "0",
      numbers: fixed(b[e], 3),
      note: words.unused(fixed(agreement[e], 3)),
      against: parentAt(r, state.layer.dst[e]),
      called: "v",
    };
  },
};

function ruleOf(e, r) {
  const rule = RULES[state.layer.routing](e, r);
  return own.rule ? own.rule(rule, e, r) : rule;
}

export function isOnePass(routing) {
  return routing === "attention" || routing === "uniform";
}

const SOFTMAX = "c = e^b / Σ e^b";

// The numbers of an edge's softmax, or that a pull sets it.
function softmaxNumbers(edge, { b, c }) {
  const child = state.layer.src[edge],
    total = edgesFrom(child).reduce((sum, e) => sum + Math.exp(b[e]), 0);
  return state.held[child] >= 0 ? words.setTo(fixed(c[edge], 0)) : `${short(Math.exp(b[edge]))} / ${short(total)} = ${fixed(c[edge], 3)}`;
}

// The line after the sum, as [name, formula, numbers].
export function squashLine(parent, r) {
  const n = lengthOf(sumAt(parent, state.routed.states[r].c)),
    numbers = `${fixed(n * n, 3)} / ${fixed(1 + n * n, 3)} = ${fixed(state.routed.states[r].lengths[parent], 3)}`;
  return ["squash", "‖v‖ = ‖s‖² / (1 + ‖s‖²)", numbers];
}

// One iteration as [name, formula, numbers, panel that shows it], in the order in which they are computed.
function linesOf({ edge, parent }, r) {
  const { letters, numbers } = ruleOf(edge, r),
    pulled = state.held[state.layer.src[edge]] === parent,
    n = lengthOf(sumAt(parent, state.routed.states[r].c)),
    { name } = state.trace.parents[parent],
    count = state.layer.dst.reduce((sum, j) => sum + (j === parent), 0);
  const lines = [
    ["softmax", SOFTMAX, softmaxNumbers(edge, state.routed.states[r]), "#softmax"],
    ["sum", "s = Σ c û", `${words.votesFor(count, name)}: ‖s‖ = ${fixed(n, 3)}`, "#votes"],
    [...(own.outputLine ?? squashLine)(parent, r), "#votes"],
  ];
  const agreement = ["agreement", `b ← ${letters}`, pulled ? words.setTo(1) : numbers, "#edge"];
  return state.layer.routing === "attention" ? [agreement, ...lines] : [...lines, agreement];
}

function drawLines(subject, r) {
  const lines = linesOf(subject, r);
  $("#lines-head").textContent = words.pass(isOnePass(state.layer.routing), r + 1, childName(subject.child), state.trace.parents[subject.parent].name);
  Object.assign($("#round"), { max: state.trace.iterations, value: r + 1 });
  fill($("#lines ol"), lines.length, '<li><strong></strong> <span class="letters"></span> <span class="numbers"></span></li>');
  lines.forEach((texts, at) => {
    const item = $("#lines ol").children[at];
    item.dataset.panel = texts[3];
    [...item.children].forEach((part, k) => raised(part, k ? texts[k] : words.lines[texts[0]]));
    item.firstChild.dataset.term = { softmax: "coupling", sum: "vote" }[texts[0]] ?? texts[0];
  });
}

// A text whose ^ raises what follows it, up to a blank.
function raised(element, text) {
  const parts = text.split(/\^([\w\u2212]+)/);
  const nodes = parts.map((part, at) => (at % 2 ? Object.assign(document.createElement("sup"), { textContent: part }) : part));
  element.replaceChildren(...nodes);
}

function drawEdge({ child, edge, parent }, r) {
  const { letters, start = letters, numbers, note, against, called } = ruleOf(edge, r),
    pulled = state.held[child] === parent,
    { name } = state.trace.parents[parent],
    vote = voteOf(edge),
    sizes = [lengthOf(vote), lengthOf(against)],
    product = dot(vote, against);
  $("#edge h3").textContent = `${sentence(childName(child))} → ${name}`;
  raised($("#edge .formula"), pulled ? words.setTo(1) : `b = ${start} = ${numbers}`);
  $("#edge .against").textContent = words.ofParent(called, name);
  $("#edge .own").style.setProperty("--of", state.look.parents[parent]);
  const cosine = sizes[0] * sizes[1] > 0 ? product / (sizes[0] * sizes[1]) : 0;
  const written = (value) => fixed(value, 3),
    numbersOf = [written(cosine), sizes.map(written), written(product)];
  $("#edge > figcaption").textContent = words.bars(state.layer.dim, called, ...numbersOf, pulled ? "" : note);
  const pairs = [...vote].map((value, d) => `${fixed(value, 2)}${words.and}${fixed(against[d], 2)}`).join("; ");
  $("#edge > canvas").setAttribute("aria-label", words.pairs(called, name, pairs));
  drawBars($("#edge > canvas"), vote, against, state.look.parents[parent]);
}

// Two vectors' numbers as bars over one another, and their products below.
function drawBars(canvas, vote, against, color) {
  const { context, width, height } = surface(canvas),
    room = width / vote.length,
    most = (x) => Math.max(1e-12, ...Array.from(x, Math.abs));
  const [upper, lower] = [0.36 * height, 0.85 * height];
  const bars = (numbers, middle, reach, share, paint) =>
    numbers.forEach((value, d) => {
      const tall = (value * reach) / most(numbers);
      paint(value, room * (d + (1 - share) / 2), middle - Math.max(0, tall), room * share, Math.abs(tall));
    });
  const filled = (style) => (value, ...box) => {
    context.fillStyle = style(value);
    context.fillRect(...box);
  };
  for (const middle of [upper, lower]) filled(() => state.look.faint)(0, 0, middle - 0.5, width, 1);
  bars(against, upper, 0.34 * height, 0.8, filled(() => color));
  bars(vote, upper, 0.34 * height, 0.4, (value, ...box) => {
    filled(() => state.look.paper)(value, ...box);
    Object.assign(context, { strokeStyle: state.look.ink, lineWidth: 2 });
    context.strokeRect(...box);
  });
  const products = Array.from(vote, (value, d) => value * against[d]);
  bars(products, lower, 0.13 * height, 0.6, filled((value) => (value > 0 ? state.look.accent : state.look.muted)));
}

function drawSoftmax({ child, edge }, r) {
  const { b, c } = state.routed.states[r],
    edges = edgesFrom(child);
  $("#softmax h3").textContent = words.softmaxOf(childName(child));
  raised($("#softmax .formula"), `${SOFTMAX}${state.held[child] >= 0 ? ": " : " = "}${softmaxNumbers(edge, state.routed.states[r])}`);
  fill($("#softmax tbody"), edges.length, '<tr><td></td><td></td><td></td><td><span class="bar"></span></td><td></td></tr>');
  edges.forEach((e, at) => {
    const row = $("#softmax tbody").rows[at],
      parent = state.layer.dst[e];
    row.classList.toggle("chosen", e === edge);
    row.cells[0].textContent = state.trace.parents[parent].name;
    row.cells[1].textContent = writtenLogit(b[e], child, parent, 3);
    raised(row.cells[2], state.held[child] === parent ? "" : short(Math.exp(b[e])));
    setBar(row.cells[3].firstChild, c[e], state.look.parents[parent]);
    row.cells[4].textContent = fixed(c[e], 3);
  });
}

// The child's couplings over all rounds; dashed: an equal share.
function drawShares({ child, edge }) {
  const canvas = $("#softmax canvas"),
    drawn = new Curve(canvas, state.look, state.trace.iterations, 1),
    edges = edgesFrom(child),
    { top, bottom } = drawn.box,
    x = drawn.x(now.r);
  drawn.frame(state.trace.trained, 1 / edges.length, words.couplingC);
  const states = state.routed.states.slice(0, state.trace.iterations);
  for (const e of edges) {
    const points = states.map(({ c }, r) => [drawn.x(r), drawn.y(c[e])]);
    drawn.line(points, state.look.parents[state.layer.dst[e]], e === edge ? 4 : 2);
  }
  drawn.line([[x, top], [x, bottom]], state.look.accent, 2);
  const shares = states.map(({ c }) => fixed(c[edge], 2)).join(", ");
  canvas.setAttribute("aria-label", words.shares(childName(child), state.trace.parents[state.layer.dst[edge]].name, shares));
}

function drawWhy() {
  state.explained = null;
  if (!state.routed || $("#why").hidden) return;
  const last = state.trace.epochs.length - 1,
    elsewhen = now.k !== last,
    subject = subjectOf(state.parentShown),
    r = Math.round(now.r);
  $("#elsewhen").hidden = !elsewhen;
  $("#elsewhen span").textContent = words.carriedVotes(state.trace.epochs[last]);
  $("#why").classList.toggle("empty", elsewhen || subject === null);
  if (elsewhen || subject === null) return;
  const { name } = state.trace.parents[subject.parent],
    reason = spokenOf() === null ? words.strongestWith(name) : "";
  $("#subject").textContent = words.subject(childName(subject.child), reason, name);
  state.explained = subject;
  for (const part of document.querySelectorAll(".by-rounds")) part.hidden = isOnePass(state.layer.routing);
  drawLines(subject, r);
  view.draw(subject.parent, subject.child);
  drawEdge(subject, r);
  drawSoftmax(subject, r);
  drawShares(subject);
  for (const explain of explanations) explain(subject, r);
}

// Pointing at a row of a list lights up what it speaks of in the graph, the image, the curve and the parents.
function lights(list, of) {
  for (const kind of ["pointerover", "focusin"]) {
    list.addEventListener(kind, ({ target }) => {
      const row = target.closest("li, tr");
      if (row && state.explained) choose({ hovered: state.graph.pointedAt(of(state.explained, [...list.children].indexOf(row))) });
    });
  }
  for (const kind of ["pointerleave", "focusout"]) list.addEventListener(kind, () => choose({ hovered: null }));
}
lights($("#lines ol"), ({ child, edge, parent }, at) => {
  const panel = linesOf({ edge, parent }, Math.round(now.r))[at][3];
  return { "#softmax": { child }, "#votes": { parent }, "#edge": { child, parent } }[panel];
});
lights($("#softmax tbody"), ({ child }, at) => ({ child, parent: state.layer.dst[edgesFrom(child)[at]] }));
$("#round").addEventListener("input", ({ target }) => go({ r: target.value - 1 }));
$("#elsewhen button").addEventListener("click", () => go({ k: state.trace.epochs.length - 1 }));
$("#votes details").addEventListener("toggle", redraw);
drawings.push(drawWhy);
