// The votes for one parent in the plane: along the parent, and across it where the votes differ most. The plane stays
// while iterations pass, since votes do; what changes is how much each counts.

import { arrowHead, circle, surface, through } from "./charts.js";
import { childName, choose, shortName } from "./shell.js";
import { dot, lengthOf, now, parentAt, state, voteOf } from "./state.js";
import { $, fill, fixed, sentence } from "./tools.js";
import { at } from "./trace.js";
import { words } from "./words.js";

const SQUARINGS = 12, // squarings of a matrix: 2^12 steps of the power method
  ROWS = 24, // rows of the table in sight without scrolling
  MANY_VOTES = 100; // arrows that would hide one another

// The direction in which vectors differ most from their mean; its largest number is positive. Zeros where they don't.
function principal(vectors) {
  const D = vectors[0].length,
    mean = Array.from({ length: D }, (_, d) => vectors.reduce((sum, x) => sum + x[d], 0) / vectors.length);
  const entries = (entry) => Array.from({ length: D }, (_, d) => Float64Array.from({ length: D }, (_, k) => entry(d, k)));
  let matrix = entries((d, k) => vectors.reduce((sum, x) => sum + (x[d] - mean[d]) * (x[k] - mean[k]), 0));
  for (let step = 0; step < SQUARINGS; step++) {
    const trace = matrix.reduce((sum, row, d) => sum + row[d], 0);
    if (trace < 1e-18 && step === 0) return Array(D).fill(0);
    const scaled = matrix.map((row) => row.map((value) => value / trace));
    matrix = entries((d, k) => dot(scaled[d], scaled[k])); // symmetric
  }
  const longest = matrix.reduce((best, row) => (lengthOf(row) > lengthOf(best) ? row : best)),
    peak = longest.reduce((best, value) => (Math.abs(value) > Math.abs(best) ? value : best));
  return Array.from(longest, (value) => (value * Math.sign(peak)) / lengthOf(longest));
}

// Axes of the plane for votes and the parent's vector v: along v, or where v is 0 along the votes' mean direction of
// difference, and across.
function planeOf(votes, v) {
  const size = lengthOf(v),
    along = size > 1e-9 ? Array.from(v, (value) => value / size) : principal(votes);
  const left = votes.map((vote) => {
    const part = dot(vote, along);
    return Array.from(vote, (value, d) => value - part * along[d]);
  });
  return { along, across: principal(left) };
}

function projected(x, { along, across }) {
  return [dot(x, along), dot(x, across)];
}

// The angle in radians between votes and their sum when each counts c times: its cosine is their mean cosine with the sum,
// weighed by c and their lengths. 0 where all point the same way.
function meanAngle(votes, c) {
  const s = Array.from(votes[0], (_, d) => votes.reduce((sum, vote, n) => sum + c[n] * vote[d], 0)),
    most = votes.reduce((sum, vote, n) => sum + c[n] * lengthOf(vote), 0);
  return most > 0 ? Math.acos(Math.min(1, lengthOf(s) / most)) : 0;
}

// Everything about the votes for a parent that stays while iterations pass.
function votesFor(parent) {
  const edges = [...state.layer.dst.keys()].filter((e) => state.layer.dst[e] === parent),
    votes = edges.map(voteOf),
    plane = planeOf(votes, parentAt(state.layer.iterations - 1, parent)),
    points = votes.map((vote) => projected(vote, plane));
  return { of: state.routed, parent, edges, votes, plane, points };
}

export class VoteView {
  constructor(canvas) {
    Object.assign(this, { canvas, known: null });
    canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => this.point(this.near(x, y)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", ({ offsetX: x, offsetY: y }) => {
      const child = this.near(x, y);
      if (state.image.order.includes(child)) choose({ child: child === now.child ? null : child });
    });
  }

  point(child) {
    if (child === (now.hovered?.child ?? null)) return;
    choose({ hovered: child === null ? null : state.graph.pointedAt({ child, parent: this.known.parent }) });
  }

  // The child whose vote ends near a point of the canvas, or null.
  near(x, y) {
    if (!this.known || !this.place) return null;
    let best = null,
      nearest = 14;
    this.known.points.forEach((point, at) => {
      const [px, py] = this.place(point),
        away = Math.hypot(px - x, py - y);
      if (away < nearest) [best, nearest] = [state.layer.src[this.known.edges[at]], away];
    });
    return best;
  }

  draw(parent, child) {
    if (this.known?.of !== state.routed || this.known.parent !== parent) this.known = votesFor(parent);
    const { edges, points, plane } = this.known,
      { context, width, height } = surface(this.canvas);
    const c = this.couplings(now),
      v = at((_, r) => parentAt(r, parent), now),
      tip = projected(v, plane);
    const shown = [...points, [0, 0], [1, 0], tip],
      ends = (axis) => [Math.min(...shown.map((p) => p[axis])), Math.max(...shown.map((p) => p[axis]))];
    const [x0, x1] = ends(0),
      [y0, y1] = ends(1),
      unit = Math.max(0, Math.min((width - 44) / (x1 - x0), (height - 44) / Math.max(y1 - y0, 1e-6))); // the same for both axes
    const place = (this.place = ([x, y]) => [
      width / 2 + unit * (x - (x0 + x1) / 2),
      height / 2 - unit * (y - (y0 + y1) / 2),
    ]);
    const color = state.look.parents[parent],
      origin = place([0, 0]);
    Object.assign(context, { strokeStyle: state.look.faint, lineWidth: 1, font: state.look.font, textBaseline: "middle" });
    const line = (from, to) => {
      through(context, from, to);
      context.stroke();
    };
    line([0, origin[1]], [width, origin[1]]);
    line([origin[0], 0], [origin[0], height]);
    context.setLineDash([4, 4]);
    circle(context, ...origin, unit);
    context.stroke();
    context.setLineDash([]);
    const many = points.length > MANY_VOTES;
    for (const n of [...edges.keys()].sort((a, b) => c[a] - c[b])) {
      const part = c[n]; // the width is that of the graph, so equal couplings look equal here too
      context.globalAlpha = (many ? 0.06 : 0.45) + (many ? 0.75 : 0.5) * part;
      context.lineWidth = (many ? 0.5 : 1) + 3 * part;
      context.strokeStyle = context.fillStyle = color;
      this.arrow(origin, place(points[n]), (many ? 2.5 : 4) + 4 * part);
    }
    context.globalAlpha = 1;
    const angle = meanAngle(this.known.votes, c),
      direction = Math.atan2(tip[1], tip[0]);
    Object.assign(context, { strokeStyle: state.look.ink, lineWidth: 1.5 });
    context.setLineDash([2, 3]);
    for (const side of [angle, -angle]) {
      line(origin, [origin[0] + width * Math.cos(direction + side), origin[1] - width * Math.sin(direction + side)]);
    }
    context.setLineDash([]);
    for (const [style, wide] of [[state.look.paper, 8], [state.look.ink, 5]]) {
      Object.assign(context, { strokeStyle: style, fillStyle: style, lineWidth: wide });
      this.arrow(origin, place(tip), 11);
    }
    this.name(words.lengthIs(state.trace.parents[parent].name, lengthOf(v).toFixed(2)), place(tip), state.look.ink, false, 12);
    const named = now.hovered?.child ?? child,
      n = edges.findIndex((e) => state.layer.src[e] === named);
    if (n >= 0) {
      const point = place(points[n]);
      Object.assign(context, { strokeStyle: state.look.accent, lineWidth: 2.5 });
      circle(context, ...point, 7);
      context.stroke();
      this.name(`${childName(named)}, c ${fixed(c[n], 3)}`, point, state.look.accent, true, -14);
    }
    this.say(parent, c, n < 0 ? null : named);
  }

  couplings(moment) {
    const { edges } = this.known;
    return at((_, r) => Float64Array.from(edges, (e) => state.routed.states[r].c[e]), moment);
  }

  arrow(from, to, size) {
    const context = this.canvas.getContext("2d"),
      long = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1,
      head = Math.min(size, long);
    through(context, from, [0, 1].map((axis) => to[axis] - ((to[axis] - from[axis]) * 0.8 * head) / long));
    context.stroke();
    arrowHead(context, from, to, head);
  }

  // A text beside a point, within the canvas, on paper.
  name(text, [x, y], color, strong, by) {
    const context = this.canvas.getContext("2d"),
      { clientWidth: width, clientHeight: height } = this.canvas;
    context.font = strong ? `bold ${state.look.font}` : state.look.font;
    const wide = context.measureText(text).width,
      left = Math.min(width - wide - 4, Math.max(4, x + 10)),
      middle = Math.min(height - 10, Math.max(10, y + by));
    context.globalAlpha = 0.85;
    context.fillStyle = state.look.paper;
    context.fillRect(left - 3, middle - 9, wide + 6, 18);
    context.globalAlpha = 1;
    context.fillStyle = color;
    context.fillText(text, left, middle);
  }

  // In words and in numbers.
  say(parent, c, child) {
    const { points, edges, votes } = this.known,
      { name } = state.trace.parents[parent],
      degrees = (r) => `${((180 / Math.PI) * meanAngle(votes, this.couplings({ k: now.k, r }))).toFixed(1)}°`;
    const r = Math.round(now.r),
      before = r > 0 ? degrees(0) : "";
    const angle = words.meanAngle(degrees(r), before);
    $("#votes h3").textContent = words.votesFor(points.length, name);
    $("#votes figcaption").textContent = words.plane(name, state.layer.iterations) + angle;
    const chosen = child === null ? "" : words.isMarked(sentence(childName(child))),
      label = words.inPlane($("#votes h3").textContent, chosen, sentence(angle));
    this.canvas.setAttribute("aria-label", label);
    const { open } = $("#votes details");
    $("#votes summary").textContent = words.votesAsNumbers(edges.length, edges.length > ROWS);
    fill($("#votes tbody"), open ? edges.length : 0, `<tr>${"<td></td>".repeat(5)}</tr>`);
    if (!open) return;
    const { agreement } = state.routed.states[r];
    edges.forEach((e, at) => {
      const row = $("#votes tbody").rows[at],
        numbers = [...points[at], c[at], agreement[e]].map((value) => fixed(value, 3));
      [shortName(state.layer.src[e]), ...numbers].forEach((text, column) => (row.cells[column].textContent = text));
      row.classList.toggle("chosen", state.layer.src[e] === child);
    });
  }
}
