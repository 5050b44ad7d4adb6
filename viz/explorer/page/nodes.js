// The graph's page: what is chosen, what is changed, and its panels. A node is chosen, and with it another one or the edge
// from there, which is a child of the layer.

import { drawEntropy } from "./charts.js";
import { lengthsOf } from "./layer.js";
import { NodeConv } from "./node_conv.js";
import { NodeGraph } from "./node_graph.js";
import { childName, choose, drawings, drawRound, drawTip, lookWith, redraw, renewals, step, writtenLogit } from "./shell.js";
import { NOTHING, now, state } from "./state.js";
import { Strips } from "./strips.js";
import { $, counted, decision, fill, fixed, indexOfLargest, sentence, setOptions, thousands } from "./tools.js";
import { at, stored } from "./trace.js";
import { words } from "./words.js";

export const conv = new NodeConv(stored);
export const ROUNDS = conv.logits ? stored.iterations : Math.max(10, stored.iterations); // iterations shown
const NAMED = 4, // edges that a sentence names
  PLAINLY = 0.01; // by which the coupling with another capsule is larger, or it would be a tie
const graph = (state.graph = new NodeGraph($(".stage > canvas")));
const strips = new Strips($("#strips .now")),
  givenStrips = Object.assign(new Strips($("#strips .given")), { isGiven: true });
let given, // the routing of the given graph; for each edge the capsule with its largest coupling, and whether it has chosen it
  past = []; // functions that undo changes, the newest last

now.r = stored.iterations - 1;

// Everything that follows from the edges.
function route() {
  state.routed = conv.route(ROUNDS);
  state.layer = state.routed.layer;
  const { states } = state.routed,
    { K, N } = conv,
    count = state.layer.children;
  const rows = states.map(({ c }) =>
    Float64Array.from({ length: count }, (_, e) => c.subarray(e * K, (e + 1) * K).reduce((sum, p) => sum - (p > 0 ? p * Math.log(p) : 0), 0)),
  );
  const mean = (row) => row.reduce((sum, value) => sum + value, 0) / (count || 1);
  state.image = {
    src: state.layer.ends.src,
    linked: [...Array(count).keys()],
    c: (_, r) => states[r].c,
    entropy: (_, r) => rows[r],
    meanEntropy: (_, r) => mean(rows[r]),
    lowest: Math.min(Math.log(K), ...rows.map((row) => row.reduce((low, value) => Math.min(low, value), Infinity))),
  };
  state.trace = { ...state.trace, iterations: ROUNDS, trained: conv.iterations, epochs: [0], level: Math.log(K), degrees: [K], edges: count };
  state.trace.parents = Array.from({ length: N * K }, (_, j) => ({ name: words.capsuleOf(j % K, conv.names[Math.floor(j / K)]) }));
  const order = [...Array(N).keys()].sort((a, b) => (conv.labels ? conv.labels[a] - conv.labels[b] : 0) || a - b);
  graph.take(conv, state.layer, order);
  const { c } = states[conv.iterations - 1],
    chosen = state.image.linked.map((e) => indexOfLargest(couplingsOf(c, e))),
    decided = chosen.map((l, e) => !decision(c[e * K + l], K).undecided);
  given ??= { ...state.routed, chosen, decided };
  const { number } = conv.edges,
    before = number.map((n, e) => given.chosen[n] ?? chosen[e]),
    turned = (to) => state.image.linked.filter((e) => decided[e] === to && given.decided[number[e]] === !to).length;
  state.routed.turned = [turned(false), turned(true)];
  graph.rerouted = new Set(state.image.linked.filter((e) => c[e * K + chosen[e]] > c[e * K + before[e]] + PLAINLY));
}

// After a change of the edges.
function rerouted() {
  route();
  choosePair(now.node, now.other);
}

function edgeBetween(from, to) {
  const { src, dst } = state.layer.ends,
    e = src.findIndex((u, e) => u === from && dst[e] === to);
  return e < 0 ? null : e;
}

export function choosePair(node, other) {
  choose({ node, other, child: other === null || node === null ? null : edgeBetween(other, node), picking: false });
}

function chooseEdge(e) {
  const { src, dst } = state.layer.ends;
  choosePair(dst[e], src[e]);
  choose({ child: e });
}

// The node that is spoken of where none is chosen: the one where most edges arrive.
function nodeShown() {
  return now.node ?? Math.floor(indexOfLargest([...state.layer.degree]) / conv.K);
}

function inEdges(node) {
  const { dst } = state.layer.ends;
  return [...dst.keys()].filter((e) => dst[e] === node);
}

// The lengths of a node's capsules after an iteration.
export function lengthsAt(r, node) {
  return lengthsOf(state.layer.capsules(state.routed.states[r].s, node), conv.D);
}

// The capsule that is spoken of, among the layer's parents.
function capsuleShown() {
  const { K } = conv,
    { c } = state.routed.states[conv.iterations - 1],
    own = now.child === null ? lengthsAt(conv.iterations - 1, nodeShown()) : couplingsOf(c, now.child);
  return nodeShown() * K + (now.capsule ?? indexOfLargest([...own]));
}

function drawPage() {
  if (now.child !== null) [now.other, now.node] = [state.layer.ends.src[now.child], state.layer.ends.dst[now.child]]; // the plane of votes may have chosen the edge
  const c = at(state.image.c, now);
  state.image.order = inEdges(nodeShown());
  $("#clear").hidden = now.node === null && now.capsule === null && now.other === null;
  drawHead(c);
  drawRound();
  state.held = state.layer.held();
  graph.draw(c, now, now.hovered, state.look);
  graph.drawScale($("#scale"), state.look);
  drawTip(tipLines);
  drawCapsules(c);
  drawArrivals(c);
  drawEdit();
  const to = state.image.linked.map((e) => indexOfLargest(couplingsOf(at(state.image.c, { k: 0, r: conv.iterations - 1 }), e)));
  state.curve = drawEntropy($("#entropy canvas"), state.trace, state.image, now, (e) => state.look.parents[to[e]], state.look);
  drawNumbers();
  state.parentShown = capsuleShown();
}

function couplingsOf(c, e) {
  return [...c.subarray(e * conv.K, (e + 1) * conv.K)];
}

// How many of these edges choose each capsule, or have this cause; of those given only where another training agrees.
function countsOf(c, edges = state.image.linked) {
  const counts = Array(conv.K).fill(0);
  for (const e of edges) {
    const own = couplingsOf(c, e),
      l = indexOfLargest(own);
    if ((conv.logits ? own[l] > 0.5 : decision(own[l], conv.K).chooses) && (conv.agrees?.[conv.edges.number[e]] ?? true)) counts[l]++;
  }
  return counts;
}

function drawHead(c) {
  const { agrees, causes, chance, routing, warnings } = conv,
    title = chance.beyond ? words.title(countsOf(c), state.trace.edges, causes) : agrees ? words.noMoreRepeated : words.noMore,
    what = routing === "uniform" ? routing : !chance.beyond ? "grey" : Math.round(now.r) ? "grow" : "start",
    all = conv.sample ? counted(conv.sample.edges, "edge", "edges") : words.edges(stored, conv.two_way),
    measured = words.chance(chance, agrees, all);
  if ($("h1").textContent !== title) $("h1").textContent = title;
  $("#lead").textContent = words.lead(conv.K, what);
  $("#chance").textContent = [measured, ...warnings.map((text) => `${sentence(text)}.`)].join(" ");
  $("#source").textContent = [conv.title, words.layer(conv), words.size(conv.N, words.edges(conv.edges, conv.two_way))].join(" · ");
  $("#graph-head").textContent = words.head(conv.two_way);
}

// The lines of the tip at a node or an edge.
function tipLines({ node, edge }) {
  if (edge === undefined) return [conv.names[node], classOf(node).trim()].filter(Boolean);
  const { l, c } = graph.strongest(edge, now),
    { b, agreement } = state.routed.states[Math.round(now.r)],
    vote = edge * conv.K + l,
    numbers = [fixed(c, 3), writtenLogit(b[vote], edge, state.layer.dst[vote]), fixed(agreement[vote], 2)];
  return [childName(edge), sentence(words.capsule(l)), ...words.tipEdge(...numbers)];
}

function classOf(node) {
  return conv.labels ? words.class(conv.classes[conv.labels[node]]) : "";
}

// The capsules of the chosen node with their lengths, or of all with the edges that go there most.
function drawCapsules(c) {
  const { K, names } = conv,
    { node } = now,
    lengths = node === null || conv.isOutside(node) ? Array(K).fill(0) : [...at((_, r) => lengthsAt(r, node), now)],
    counts = countsOf(c);
  const values = node === null ? counts : lengths,
    texts = node === null ? counts.map(thousands) : lengths.map((length) => length.toFixed(2)),
    most = node === null ? Math.max(1, ...counts) : Math.max(1, ...lengths);
  $("#capsules-head").textContent = node === null ? words.capsulesOfAll : words.capsulesOf(names[node]);
  $("#parents").classList.toggle("filtered", now.capsule !== null);
  const parts = '<span class="dot"></span> <span class="name"></span><span class="bar"></span> <span class="value"></span>';
  fill($("#parents"), K, `<button type="button">${parts}</button>`, (row, l) => {
    row.addEventListener("click", () => choose({ capsule: now.capsule === l ? null : l }));
  });
  values.forEach((value, l) => {
    const row = $("#parents").children[l];
    row.style.setProperty("--of", state.look.parents[l]);
    row.setAttribute("aria-pressed", l === now.capsule);
    row.querySelector(".name").textContent = words.capsule(l) + (node !== null && conv.found?.[node][l] ? `: ${conv.found[node][l]}` : "");
    row.title = conv.causes[l] || row.textContent;
    row.hidden = Boolean(conv.logits) && node !== null && l === K - 1; // a node has no state of no cause
    row.querySelector(".bar").style.setProperty("--share", value / most);
    row.querySelector(".value").textContent = texts[l];
  });
}

// The edges that arrive at the chosen node, and the formula of its output.
function drawArrivals(c) {
  const { node } = now,
    { K } = conv,
    edges = node === null ? [] : inEdges(node),
    b = at((_, r) => state.routed.states[r].b, now);
  const outside = node !== null && conv.isOutside(node),
    others = conv.logits && conv.whole?.[node] === false ? ` ${words.others}` : "",
    empty = outside ? words.notHere : edges.length ? "" : words.noneArrives;
  $("#child-head").textContent = node === null ? words.oneChild : outside ? conv.names[node] : words.arrive(conv.names[node], edges.length);
  $("#child p").textContent = node === null ? words.chooseChild : classOf(node) + (empty || words.output(outputOf(node)[0])) + others;
  $("#child .scroll").hidden = $("#strips").hidden = !edges.length;
  if (edges.length) drawStrips(node, edges, c);
  const cells = '<tr><td><button type="button"></button></td><td></td><td></td></tr>';
  fill($("#child tbody"), edges.length, cells, (row) => {
    row.querySelector("button").addEventListener("click", () => chooseEdge(Number(row.dataset.edge)));
  });
  edges.forEach((e, at) => {
    const row = $("#child tbody").rows[at],
      l = now.capsule ?? indexOfLargest(couplingsOf(c, e));
    row.dataset.edge = e;
    row.classList.toggle("chosen", e === now.child);
    row.cells[0].firstChild.textContent = conv.names[state.layer.ends.src[e]];
    row.cells[1].textContent = fixed(c[e * K + l], 3);
    row.cells[2].textContent = writtenLogit(b[e * K + l], e, node * K + l);
  });
}

// The arriving edges as strips, above them those of the given graph once it is changed, and what random graphs show.
function drawStrips(node, edges, c) {
  const [own, ...random] = conv.chance.chosen,
    chosen = countsOf(state.routed.states[conv.iterations - 1].c, edges).slice(0, conv.logits && -1).reduce((sum, count) => sum + count),
    share = random.reduce((sum, count) => sum + count) / random.length / (conv.sample?.edges ?? stored.src.length),
    text = words.chosenHere(chosen, edges.length, fixed(share * edges.length, 1));
  strips.drawNode(node, state.layer, c);
  $("#strips").classList.toggle("changed", changes().any);
  if (changes().any) givenStrips.drawNode(node, given.layer, at((_, r) => given.states[r].c, now));
  if ($("#strips figcaption").textContent !== text) $("#strips figcaption").textContent = text;
  strips.canvas.setAttribute("aria-label", `${$("#child-head").textContent}. ${text}`);
}

// The layer's output for a node, in letters and in numbers.
export function outputOf(node) {
  const { K, bias, squash, normalise } = conv,
    degree = state.layer.degree[node * K],
    f = state.layer.usual(node),
    added = bias ? " + bias" : "",
    wrapped = (text) => (squash ? `squash(${text})` : text);
  return [wrapped(`${K} / ${normalise ? `(${degree} · ${fixed(f, 3)})` : degree} · s${added}`), state.layer.factor(node)];
}

function drawNumbers() {
  const r = Math.round(now.r),
    mean = at(state.image.meanEntropy, now),
    chosen = now.child !== null ? childName(now.child) : now.node !== null ? conv.names[now.node] : "",
    selected = chosen && words.isSelected(sentence(chosen));
  $("#mean").textContent = words.meanEntropy(mean.toFixed(2), `ln ${conv.K} = ${state.trace.level.toFixed(2)}`);
  $("#entropy canvas").setAttribute("aria-label", `${$("#entropy h2").textContent}. ${$("#mean").textContent}`);
  const ends = [counted(conv.N, ...words.nodeWords), counted(state.trace.edges, ...words.edgeWords)];
  graph.canvas.setAttribute("aria-label", words.graphLabel(...ends, selected));
  const text = `${words.moment(r + 1)}: ${$("h1").textContent}.${selected}`;
  if (!now.playing && $("#status").textContent !== text) $("#status").textContent = text;
}

// The numbers of edges that are cut, added and held, and whether there are any.
function changes() {
  const original = conv.edges.number.filter((n) => n >= 0).length,
    [cuts, added] = [stored.src.length - original, conv.edges.number.length - original],
    holds = conv.edges.held.filter((l) => l !== null).length;
  return { cuts, added, holds, any: cuts + added + holds > 0 };
}

// The panel in which the graph is changed.
function drawEdit() {
  const { node, other } = now,
    { names, two_way: both } = conv,
    [to, from] = [names[node], names[other]],
    paired = node !== null && other !== null,
    joined = paired && (now.child !== null || (both && edgeBetween(node, other) !== null)),
    possible = paired && (joined || !conv.isOutside(node) || (both && !conv.isOutside(other)));
  $("#node").value = node ?? "";
  $("#other").value = other ?? "";
  $("#pick").setAttribute("aria-pressed", now.picking);
  $("#pick").disabled = node === null;
  $("#join").disabled = !possible;
  $("#join").hidden = !paired;
  if (paired) $("#join").textContent = (joined ? (both ? words.cutBoth : words.cut) : both ? words.addBoth : words.add)(from, to);
  $("#join-note").textContent = now.picking ? words.picking : !paired ? words.chooseTwo : possible ? "" : words.outside(to);
  drawHold();
  const { cuts, added, holds, any } = changes();
  $("#reset").disabled = !any;
  $("#undo").disabled = !past.length;
  const named = [...graph.rerouted].slice(0, NAMED).map(childName).join(", ") + (graph.rerouted.size > NAMED ? " …" : ".");
  const text = any ? words.changed(cuts, added, holds, both) + words.rerouted(graph.rerouted.size, named, ...state.routed.turned) : words.unchanged;
  if ($("#changes").textContent !== text) $("#changes").textContent = text;
}

// Change the edges, and let Undo take it back.
export function change(alter) {
  if (conv.logits) return; // these rounds are recorded
  past.push(conv.snapshot());
  alter();
  rerouted();
}

// The list of capsules that the chosen edge can be held by.
function drawHold() {
  $("#pulls").hidden = now.child === null;
  if (now.child === null) return;
  $("#pulls label").textContent = words.goesTo;
  const options = [["", words.whereItVotes], ...Array.from({ length: conv.K }, (_, l) => [l, words.capsule(l)])];
  setOptions($("#pull"), options);
  $("#pull").value = conv.edges.held[now.child] ?? "";
}

$("#join").addEventListener("click", () => {
  const { node, other } = now;
  const joined = now.child !== null || (conv.two_way && edgeBetween(node, other) !== null);
  change(() => (joined ? conv.cut(other, node) : conv.add(other, node)));
});
$("#reset").addEventListener("click", () => change(() => conv.reset()));
$("#undo").addEventListener("click", () => {
  past.pop()?.();
  rerouted();
});
$("#pull").addEventListener("change", ({ target }) => change(() => (conv.edges.held[now.child] = target.value === "" ? null : Number(target.value))));
$("#node").addEventListener("change", ({ target }) => choosePair(target.value === "" ? null : Number(target.value), now.other));
$("#other").addEventListener("change", ({ target }) => choosePair(now.node, target.value === "" ? null : Number(target.value)));
$("#pick").addEventListener("click", () => choose({ picking: !now.picking }));

graph.canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
  if (graph.pull) return;
  const found = graph.under(x, y);
  if (found?.node === now.hovered?.node && found?.edge === now.hovered?.edge) return;
  choose({ hovered: found && { ...found, child: found.edge, x, y } });
});
graph.canvas.addEventListener("pointerleave", () => choose({ hovered: null }));

// Grab an edge's line and pull it to another node, where its votes then go; to a capsule in the list, which holds it; or let
// it go where nothing is, which cuts it.
graph.grabs(
  (under) => !conv.logits && under?.edge !== undefined && { edge: under.edge },
  (event) => {
    const row = document.elementFromPoint(event.clientX, event.clientY)?.closest("#parents button");
    return row ? { capsule: [...$("#parents").children].indexOf(row) } : graph.under(event.offsetX, event.offsetY) ?? {};
  },
  ({ edge }, { node, capsule, edge: other }) => {
    const { src, dst } = state.layer.ends,
      [from, to] = [src[edge], dst[edge]];
    if (other !== undefined || node === to || node === from || (node !== undefined && conv.isOutside(node))) return;
    if (capsule !== undefined) return change(() => (conv.edges.held[edge] = capsule));
    change(() => {
      conv.cut(from, to);
      if (node !== undefined && edgeBetween(from, node) === null) conv.add(from, node);
    });
    choosePair(node ?? to, from);
  },
);
graph.canvas.addEventListener("click", ({ offsetX: x, offsetY: y, shiftKey }) => {
  if (graph.pulled) return (graph.pulled = false); // the end of a pull isn't a click
  const found = graph.under(x, y);
  if (found?.node !== undefined && now.node !== null && (now.picking || shiftKey)) choosePair(now.node, found.node);
  else if (found?.node !== undefined) choosePair(found.node === now.node && now.other === null ? null : found.node, null);
  else if (found) chooseEdge(found.edge);
  else choose(NOTHING);
});
strips.canvas.addEventListener("click", ({ offsetX: x, offsetY: y }) => {
  const found = strips.under(x, y, { child: null });
  if (found) chooseEdge(found.child);
});
graph.canvas.addEventListener("keydown", (event) => step(event, graph.order, now.node, (node) => choosePair(node, null)));

// The two lists of nodes, and what stands below the graph.
function nameNodes() {
  for (const id of ["#node", "#other"]) {
    setOptions($(id), [["", words.none], ...conv.names.map((name, n) => [n, name])]);
  }
  const marks = ["●", "■", "▲", "⬢", "⬟", "◆"];
  $("#classes").textContent = conv.classes.length <= marks.length ? conv.classes.map((name, at) => `${marks[at]} ${name}`).join("  ") : "";
  const whole = conv.whole?.filter(Boolean).length;
  $("#sample").textContent = conv.sample ? words.sample(conv.sample, stored.src.length, whole, conv.mutual) : "";
}

function colour() {
  state.look = lookWith(conv.colors);
  state.look.parents = Array.from({ length: conv.N * conv.K }, (_, j) => state.look.parents[j % conv.K]);
  route();
  nameNodes();
  redraw();
}

$("#iteration").max = ROUNDS;
$("#edit").classList.toggle("recorded", Boolean(conv.logits));
if (conv.logits) $("#doors button").remove(); // Why? has the formulas of routing
$("#votes canvas").addEventListener("keydown", (event) => step(event, state.image.order, now.child, chooseEdge));
drawings.push(drawPage);
renewals.push(colour);
route();
colour();
