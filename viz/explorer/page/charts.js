// Canvases ready for drawing, and the curve of entropy over the rounds, along which time is dragged.

import { scratch } from "./tools.js";
import { at } from "./trace.js";
import { words } from "./words.js";

// A canvas made ready for drawing in CSS pixels, empty.
export function surface(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas,
    dense = canvas.dense || window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * dense), Math.round(height * dense)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Begin a path through points, for stroke() or fill().
export function through(context, ...points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
}

export function circle(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
}

// The filled head of an arrow that points from one place to another.
export function arrowHead(context, from, to, size) {
  const angle = Math.atan2(to[1] - from[1], to[0] - from[0]),
    corner = (turn) => [to[0] - size * Math.cos(angle + turn), to[1] - size * Math.sin(angle + turn)];
  through(context, to, corner(0.45), corner(-0.45));
  context.fill();
}

// A curve over rounds, which go to the right: entropy in nats upwards, a thin line for each child and a thick one for their
// mean; or couplings.
export class Curve {
  constructor(canvas, look, rounds, top) {
    Object.assign(this, surface(canvas), { look, rounds });
    this.box = { left: 40, right: this.width - 14, top: 14, bottom: this.height - 20 };
    this.high = 1.04 * top;
  }

  x(r) {
    return this.box.left + ((r + 0.4) / (this.rounds - 0.2)) * (this.box.right - this.box.left);
  }

  y(nats) {
    return this.box.bottom - (nats / this.high) * (this.box.bottom - this.box.top);
  }

  // The fractional round, from 0, at a place on the canvas.
  roundAt(x) {
    return ((x - this.box.left) / (this.box.right - this.box.left)) * (this.rounds - 0.2) - 0.4;
  }

  line(points, color, width, alpha = 1, dash = []) {
    const { context } = this;
    Object.assign(context, { strokeStyle: color, lineWidth: width, globalAlpha: alpha, lineJoin: "round" });
    context.setLineDash(dash);
    through(context, ...points);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  write(text, x, y, align) {
    Object.assign(this.context, { font: this.look.font, fillStyle: this.look.muted, textAlign: align, textBaseline: "middle" });
    this.context.fillText(text, x, y);
  }

  // Ticks, the level of undecided children, and the rounds beyond training on a shade.
  frame(trained, level, label = words.nats) {
    const { box, look, rounds, context } = this;
    if (trained < rounds) {
      const from = this.x(trained - 0.5);
      context.fillStyle = look.shade;
      context.fillRect(from, box.top, box.right - from, box.bottom - box.top);
    }
    for (let nats = 0; nats <= this.high; nats += this.high > 4 ? 2 : this.high > 0.8 ? 1 : 0.25) {
      this.line([[box.left, this.y(nats)], [box.right, this.y(nats)]], look.faint, 1, 0.6);
      this.write(String(nats), box.left - 7, this.y(nats), "right");
    }
    this.line([[box.left, this.y(level)], [box.right, this.y(level)]], look.muted, 1.25, 1, [5, 4]);
    const every = Math.ceil(rounds / 15);
    for (let r = 0; r < rounds; r += every) this.write(String(words.tick(r + 1)), this.x(r), box.bottom + 11, "center");
    this.write(label, box.left - 34, 7, "left");
    scratch.font = look.font;
    const taken = scratch.measureText(label + words.beyondTraining).width;
    if (trained < rounds && taken < this.width - 30) this.write(words.beyondTraining, box.right, 7, "right");
  }
}

// Draw the curve at a moment; `colorOf(child)` is the colour of its line, null for one that stays undecided.
export function drawEntropy(canvas, trace, image, moment, colorOf, look) {
  const { iterations: R, level, trained, degrees } = trace,
    drawn = new Curve(canvas, look, R, Math.log(degrees.at(-1)) || 1),
    rows = Array.from({ length: R }, (_, r) => at(image.entropy, { k: moment.k, r })),
    line = (i) => rows.map((row, r) => [drawn.x(r), drawn.y(row[i])]),
    pale = Math.max(0.08, Math.min(0.6, 12 / image.linked.length));
  drawn.frame(trained, level);
  for (const i of image.linked) if (!colorOf(i)) drawn.line(line(i), look.muted, 1, pale);
  for (const i of image.linked) if (colorOf(i)) drawn.line(line(i), colorOf(i), 1.5, Math.max(0.2, pale));
  const child = moment.hovered?.child ?? moment.child;
  if ((child ?? null) !== null) drawn.line(line(child), colorOf(child) ?? look.muted, 4);
  const means = rows.map((_, r) => [drawn.x(r), drawn.y(at(image.meanEntropy, { k: moment.k, r }))]);
  drawn.line(means, look.ink, 2.5);
  const [x, y] = [drawn.x(moment.r), drawn.y(at(image.meanEntropy, moment))];
  drawn.line([[x, drawn.box.top], [x, drawn.box.bottom]], look.accent, 2);
  const { context } = drawn;
  Object.assign(context, { fillStyle: look.accent, strokeStyle: look.paper, lineWidth: 2 });
  circle(context, x, y, 7);
  context.fill();
  context.stroke();
  return drawn;
}
