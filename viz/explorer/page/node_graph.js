// The graph on a canvas. An edge with a reverse is the half of a line that touches its target, any other one an arrow.
// Buttons, + and − on the graph, and the wheel with Ctrl, which is what a pinch on a touchpad sends, enlarge it. Then
// dragging an empty place moves it.

import { arrowHead, circle, surface, through } from "./charts.js";
import { Graph, GRABBED, rgbOf } from "./graph.js";
import { redraw } from "./shell.js";
import { $, indexOfLargest, scratch } from "./tools.js";
import { words } from "./words.js";

const ASIDE = 0.3, // strength of the other lines while a node is chosen
  REACH = 7, // pixels from a line in which the pointer is on it
  THIN = 0.4, // pixels of a line whose coupling is 0
  SMALLEST = 3, // pixels of a node's radius
  LARGEST = 13,
  FEW = 300, // nodes, of more only those chosen and the hubs have names beside them
  HUBS = 6, // nodes with most edges, whose names may cover nodes
  HEADED = 9, // pixels of an arrow's head
  OUTLINE = 2.5, // pixels around an edge that goes to another capsule than in the given graph
  DASHES = [5, 4], // pixels of the dashes and gaps of an edge that no cause of a BeliefConv explains
  CLOSEST = 12, // times as large as the whole graph, at most
  CLOSER = 1.5, // times as large with each step
  SHAPES = [0, -4, 3, 6, 5, 4]; // corners of the nodes of each class; 0: a circle; below 0: it lies on a side

export class NodeGraph extends Graph {
  constructor(canvas) {
    super(canvas);
    Object.assign(this, { zoom: 1, shift: [0, 0] }); // how much it is enlarged, and moved in pixels
    this.zooms();
    this.drags();
  }

  zooms() {
    $("#zoom-in").addEventListener("click", () => this.zoomBy(CLOSER));
    $("#zoom-out").addEventListener("click", () => this.zoomBy(1 / CLOSER));
    this.canvas.addEventListener("keydown", ({ key }) => {
      if ("+=".includes(key)) this.zoomBy(CLOSER);
      if (key === "-") this.zoomBy(1 / CLOSER);
    });
    const wheel = (event) => {
      if (!event.ctrlKey) return; // it scrolls the page
      event.preventDefault();
      this.zoomBy(2 ** (-event.deltaY / 200), event.offsetX, event.offsetY);
    };
    this.canvas.addEventListener("wheel", wheel, { passive: false });
  }

  drags() {
    let dragged = null; // where an empty place was pressed, and the shift then
    this.canvas.addEventListener("pointerdown", ({ offsetX: x, offsetY: y, button, pointerId }) => {
      if (button !== 0 || this.zoom === 1 || this.under(x, y)) return;
      dragged = { x, y, shift: this.shift };
      this.canvas.setPointerCapture(pointerId);
    });
    this.canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
      if (!dragged || Math.hypot(offsetX - dragged.x, offsetY - dragged.y) < GRABBED) return;
      this.pulled = true; // its end isn't a click
      this.moveTo([dragged.shift[0] + offsetX - dragged.x, dragged.shift[1] + offsetY - dragged.y]);
    });
    this.canvas.addEventListener("lostpointercapture", () => (dragged = null));
  }

  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const zoom = Math.min(CLOSEST, Math.max(1, this.zoom * factor)),
      from = [x - this.width / 2, y - this.height / 2];
    this.moveTo(this.shift.map((shift, k) => from[k] - ((from[k] - shift) * zoom) / this.zoom), zoom);
  }

  // As far as some of the graph stays in sight.
  moveTo(shift, zoom = this.zoom) {
    const most = [this.width, this.height].map((size) => ((zoom - 1) * size) / 2);
    Object.assign(this, { zoom, shift: shift.map((value, k) => Math.min(most[k], Math.max(-most[k], value))) });
    this.canvas.style.touchAction = zoom > 1 ? "none" : "";
    $("#zoom-out").disabled = zoom === 1;
    $("#zoom-in").disabled = zoom === CLOSEST;
    redraw();
  }

  // The conv, the places of its nodes, colours and names as the page has them; what changes with every edge.
  take(conv, layer, order) {
    const { src, dst } = layer.ends;
    Object.assign(this, { conv, src, dst, back: layer.back, order });
  }

  place() {
    const { context, width, height } = surface(this.canvas),
      { zoom, shift } = this,
      { at, N } = this.conv;
    Object.assign(this, { context, width, height });
    this.radius = Math.min(LARGEST, Math.max(SMALLEST, 0.135 * zoom * Math.sqrt((width * height) / N)));
    this.thick = Math.max(2.5, 0.6 * this.radius);
    const ends = (axis) => [Math.min(...at.map((p) => p[axis])), Math.max(...at.map((p) => p[axis]))],
      [x0, x1] = ends(0),
      [y0, y1] = ends(1),
      pad = 2.4 * this.radius + 6,
      unit = zoom * Math.min((width - 2 * pad) / (x1 - x0 || 1), (height - 2 * pad) / (y1 - y0 || 1));
    this.middle = [width / 2 + shift[0], height / 2 + shift[1]];
    this.spots = at.map(([x, y]) => [this.middle[0] + unit * (x - (x0 + x1) / 2), this.middle[1] - unit * (y - (y0 + y1) / 2)]);
  }

  radiusOf(node) {
    return this.conv.whole?.[node] === false ? 0.55 * this.radius : this.radius;
  }

  // The beginning and end of an edge's line, or the ring of a loop, {x, y, radius}.
  line(e) {
    const [u, v] = [this.src[e], this.dst[e]],
      [from, to] = [this.spots[u], this.spots[v]];
    if (u === v) {
      const away = [to[0] - this.middle[0], to[1] - this.middle[1]],
        long = Math.hypot(...away) || 1,
        radius = 0.75 * this.radius,
        step = this.radius + 0.7 * radius;
      return { ring: [to[0] + (away[0] / long) * step, to[1] + ((away[1] || 1e-9) / long) * step, radius] };
    }
    const long = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1,
      part = this.back[e] >= 0 ? 0.5 : 0,
      end = 1 - this.radiusOf(v) / long;
    const along = (t) => [from[0] + t * (to[0] - from[0]), from[1] + t * (to[1] - from[1])];
    return { from: along(part), to: along(Math.max(part, end)) };
  }

  // The capsule of an edge that is drawn: the chosen one, or the one with the largest coupling; and this coupling.
  strongest(e, chosen) {
    const { K } = this.conv,
      own = this.c.subarray(e * K, (e + 1) * K),
      l = chosen.capsule ?? indexOfLargest(own);
    return { l, c: own[l] };
  }

  // Grey where the couplings are equal, or differ from training to training as in random graphs; the capsule's colour where
  // the edge has chosen it.
  color(l, c, look) {
    const { K, chance } = this.conv,
      equal = chance.beyond ? 1 / K : 1,
      part = equal < 1 ? Math.min(1, Math.max(0, (c - equal) / (1 - equal))) ** 0.5 : 0,
      grey = rgbOf(look.muted);
    return `rgb(${rgbOf(look.parents[l]).map((channel, k) => Math.round(part * channel + (1 - part) * grey[k])).join(" ")})`;
  }

  // One scale for the whole graph: a coupling of 1 is the widest line.
  lineWidth(c) {
    return THIN + (this.thick - THIN) * c;
  }

  // Lines of known coupling: an equal share, one half, and 1.
  drawScale(canvas, look) {
    const { context, height } = surface(canvas),
      { K } = this.conv,
      marks = [...(K > 2 ? [[1 / K, `${(1 / K).toFixed(2)} ${words.undecided}`]] : []), [0.5, "0.5"], [1, "1"]];
    if (this.conv.logits && this.conv.chance.beyond) marks.push([0.75, words.dashed, DASHES]);
    let x = 0;
    const write = (text) => {
      context.fillText(text, x, height / 2);
      x += context.measureText(text).width + 9;
    };
    Object.assign(context, { font: look.font, textBaseline: "middle", fillStyle: look.muted, strokeStyle: look.ink });
    write(words.couplingC);
    canvas.setAttribute("aria-label", words.scale(marks.map(([, text]) => text).join(", ")));
    for (const [c, text, dashes = []] of marks) {
      context.lineWidth = this.lineWidth(c);
      context.setLineDash(dashes);
      through(context, [x, height / 2], [x + 22, height / 2]);
      context.stroke();
      x += 27;
      write(text);
    }
  }

  // How much of its strength an edge keeps: all of it where it arrives at the chosen node.
  light(e, chosen) {
    return chosen.node === null || this.dst[e] === chosen.node ? 1 : ASIDE;
  }

  draw(c, chosen, hovered, look) {
    scratch.font = look.font;
    this.place();
    this.c = c;
    const marked = chosen.child ?? null,
      edges = [...this.src.keys()],
      drawn = edges.map((e) => this.strongest(e, chosen));
    edges.sort((a, b) => this.light(a, chosen) - this.light(b, chosen) || drawn[a].c - drawn[b].c);
    for (const e of edges) this.drawEdge(e, drawn[e], chosen, e === marked || e === hovered?.edge || e === this.pull?.edge, look);
    if (this.pull) this.drawPull(look);
    for (const node of this.order) this.drawNode(node, chosen, hovered, look);
    this.drawNames(chosen, hovered, look);
    this.context.globalAlpha = 1;
  }

  drawEdge(e, { l, c }, chosen, marked, look) {
    const { context } = this,
      wide = this.lineWidth(c),
      light = this.light(e, chosen);
    const stroke = (color, width, alpha) => {
      Object.assign(context, { globalAlpha: alpha, strokeStyle: color, fillStyle: color, lineWidth: width });
      context.setLineDash(this.isUnexplained(l, c) ? DASHES : []);
      this.path(e, width);
      context.setLineDash([]);
    };
    if (marked) stroke(look.ink, wide + 5, 1);
    else if (this.rerouted.has(e)) stroke(look.ink, wide + OUTLINE, light);
    if (marked || this.rerouted.has(e)) stroke(look.paper, wide + 0.5, 1);
    stroke(this.color(l, c, look), wide, marked ? 1 : light * (0.3 + 0.7 * c));
  }

  // Whether no cause of a BeliefConv, which the last capsule stands for, explains more than half of the edge.
  isUnexplained(l, c) {
    const { logits, chance, K } = this.conv;
    return logits && chance.beyond && l === K - 1 && c > 0.5;
  }

  path(e, width) {
    const { context } = this,
      { ring, from, to } = this.line(e);
    if (ring) circle(context, ...ring);
    else through(context, from, to);
    context.stroke();
    if (!ring && this.back[e] < 0) arrowHead(context, from, to, HEADED * 0.6 + width);
  }

  // The line that is pulled, from the node that votes to the pointer.
  drawPull(look) {
    const { context, pull } = this;
    Object.assign(context, { globalAlpha: 1, strokeStyle: look.accent, lineWidth: this.thick });
    through(context, this.spots[this.src[pull.edge]], [pull.x, pull.y]);
    context.stroke();
  }

  drawNode(node, chosen, hovered, look) {
    const { context } = this,
      own = node === chosen.node,
      near = node === chosen.other || node === hovered?.node,
      outside = this.conv.whole?.[node] === false;
    context.globalAlpha = 1;
    Object.assign(context, { fillStyle: own ? look.accent : look.paper, strokeStyle: own || near ? look.accent : outside ? look.muted : look.ink });
    context.lineWidth = near ? 3 : 1.5;
    this.shape(...this.spots[node], this.radiusOf(node), SHAPES[this.conv.classes.length <= SHAPES.length ? this.conv.labels?.[node] ?? 0 : 0]);
    context.fill();
    context.stroke();
  }

  shape(x, y, radius, corners) {
    const { context } = this,
      count = Math.abs(corners);
    if (!count) return circle(context, x, y, radius);
    const start = corners === -4 ? Math.PI / 4 : Math.PI / 2,
      wide = radius * { 3: 1.35, 4: 1.2 }[count] || radius * 1.1,
      angles = Array.from({ length: count }, (_, k) => start + (2 * Math.PI * k) / count);
    through(context, ...angles.map((angle) => [x + wide * Math.cos(angle), y - wide * Math.sin(angle)]));
    context.closePath();
  }

  // Names in their nodes where there is room, else beside them: those chosen, those with most edges, and others as far as
  // nothing is covered.
  drawNames(chosen, hovered, look) {
    const { context, conv, radius, width, spots } = this,
      picked = (node) => node === chosen.node || node === chosen.other || node === hovered?.node,
      taken = spots.map(([x, y], node) => ({ node, x: x - radius, y: y - radius, wide: 2 * radius, high: 2 * radius }));
    const covers = (one, other) =>
      one.x < other.x + other.wide && other.x < one.x + one.wide && one.y < other.y + other.high && other.y < one.y + one.high;
    Object.assign(context, { font: look.font, textBaseline: "middle", globalAlpha: 1 });
    const edges = Array(conv.N).fill(0);
    this.dst.forEach((node) => edges[node]++);
    const order = [...this.order].sort((a, b) => picked(b) - picked(a) || edges[b] - edges[a]);
    for (const [rank, node] of order.entries()) {
      const name = conv.names[node],
        [x, y] = spots[node],
        wide = scratch.measureText(name).width,
        own = node === chosen.node;
      if (wide <= 1.85 * this.radiusOf(node)) {
        Object.assign(context, { textAlign: "center", fillStyle: own ? look.paper : look.ink });
        context.fillText(name, x, y + 0.5);
        continue;
      }
      const right = x + radius + 4 + wide < width,
        place = { node, x: right ? x + radius + 4 : x - radius - 4 - wide, y: y - 8, wide, high: 16 };
      const free = taken.slice(rank < HUBS ? conv.N : 0).every((other) => other.node === node || !covers(place, other));
      if (!picked(node) && (!free || (rank >= HUBS && conv.N > FEW * this.zoom ** 2))) continue;
      taken.push(place);
      Object.assign(context, { textAlign: "left", fillStyle: look.paper, globalAlpha: picked(node) ? 0.9 : 0.6 });
      context.fillRect(place.x - 2, place.y, wide + 4, 16);
      Object.assign(context, { fillStyle: picked(node) ? look.ink : look.muted, globalAlpha: 1 });
      context.fillText(name, place.x, y);
    }
    context.textAlign = "left";
  }

  pointedAt({ child, parent }) {
    return { child, edge: child, node: child === undefined ? Math.floor(parent / this.conv.K) : undefined };
  }

  // The item under a point: {node}, {edge}, or null.
  under(x, y) {
    let best = null,
      nearest = Infinity;
    this.spots.forEach((spot, node) => {
      const away = Math.hypot(x - spot[0], y - spot[1]) - Math.max(this.radiusOf(node) + 1, 6);
      if (away <= 0 && away < nearest) [best, nearest] = [{ node }, away];
    });
    if (best) return best;
    nearest = REACH;
    this.src.forEach((_, e) => {
      const { ring, from, to } = this.line(e),
        away = ring ? Math.abs(Math.hypot(x - ring[0], y - ring[1]) - ring[2]) : distance([x, y], from, to);
      if (away <= nearest) [best, nearest] = [{ edge: e }, away];
    });
    return best;
  }
}

// The distance of a point from the line between two others.
function distance([x, y], [x0, y0], [x1, y1]) {
  const square = (x1 - x0) ** 2 + (y1 - y0) ** 2,
    t = square ? Math.min(1, Math.max(0, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / square)) : 0;
  return Math.hypot(x - x0 - t * (x1 - x0), y - y0 - t * (y1 - y0));
}
