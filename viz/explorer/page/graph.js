// The bipartite graph on a canvas: children at the left, the parents' rows of the page at the right.

import { circle, surface, through } from "./charts.js";
import { LET_GO } from "./layer.js";
import { redraw, shortName } from "./shell.js";
import { now, state } from "./state.js";
import { channels } from "./tools.js";
import { words } from "./words.js";

export const ASIDE = 0.3; // strength of the other lines while one is under the pointer
export const GRABBED = 5; // pixels after which a press is a pull
export const REACH = 7; // pixels from a line in which the pointer is on it
export const PICTURED = 20; // children shown with pictures, at most
const THIN = 0.4,
  THICK = 10, // pixels of a line whose coupling is 1
  PALE = 0.2,
  STRONG = 0.95,
  UNLIT = 0.05,
  MANY = 400, // lines that would be a fog where they are weak
  FOG = 0.03,
  LEGIBLE = 18; // pixels of a picture's side; smaller ones are dots
const DIGIT = 8, // pixels of a sign of a child's number
  LINE = 14; // pixels that a number needs; where children have less, only one that is marked has its own

export class Graph {
  constructor(canvas) {
    Object.assign(this, { canvas, pull: null });
  }

  // Take what stays while time passes: the image's edges, the children and parents shown from top to bottom, and pictures of
  // the children or null.
  take(image, { children, parents }, pictures) {
    const places = (list) => new Map(list.map((each, at) => [each, at]));
    Object.assign(this, { image, children, pictures, rank: places(children), column: places(parents) });
    this.edges = [...image.src.keys()].filter((e) => this.rank.has(image.src[e]) && this.column.has(image.dst[e]));
  }

  // Children and parents have their places in the middle of equal parts of the height.
  place() {
    const { context, width, height } = surface(this.canvas);
    Object.assign(this, { context, width, height });
    this.room = height / this.children.length;
    const side = this.pictures ? Math.min(58, 0.94 * this.room, 0.2 * width) : 0;
    this.side = side < LEGIBLE ? 0 : side;
    this.wide = DIGIT * Math.max(...this.children.map((child) => shortName(child).length)) + 5; // pixels of numbers and names
    this.numbered = this.room >= LINE;
    this.from = this.numbered ? this.wide : 0; // where children begin
    this.left = this.from + (this.side ? this.side + 5 : 12);
    this.right = width - 4;
    this.thick = Math.min(THICK, Math.max(3 * THIN, 0.6 * this.room));
  }

  childY(child) {
    return (this.rank.get(child) + 0.5) * this.room;
  }

  parentY(parent) {
    return ((this.column.get(parent) + 0.5) * this.height) / this.column.size;
  }

  // One scale for all pictures: a coupling of 1 is the widest line.
  lineWidth(c) {
    return THIN + (this.thick - THIN) * c;
  }

  // Many lines would be a fog where they are undecided: there they grow strong from an equal share on.
  alpha(c) {
    if (this.edges.length <= MANY || this.alone) return PALE + (STRONG - PALE) * Math.sqrt(c);
    const equal = 1 / this.column.size;
    return FOG + ((STRONG - FOG) * Math.max(0, c - equal)) / (1 - equal);
  }

  // The y of an edge's line at x: 3 t^2 - 2 t^3, which the curve in draw() is.
  y(edge, x) {
    const t = Math.min(1, Math.max(0, (x - this.left) / (this.right - this.left)));
    const from = this.childY(this.image.src[edge]),
      to = this.parentY(this.image.dst[edge]);
    return from + (to - from) * t * t * (3 - 2 * t);
  }

  isLit(edge, { parent, child }) {
    const { src, dst } = this.image;
    return (parent === null || dst[edge] === parent) && (child === null || src[edge] === child);
  }

  draw(c, chosen, hovered, look) {
    this.place();
    this.c = c;
    this.alone = chosen.child !== null;
    this.drawLines(c, chosen, hovered, look);
    if (this.pull) this.drawPull(look);
    this.context.globalAlpha = 1;
    for (const child of this.children) {
      const marked = child === (hovered?.child ?? chosen.child);
      this.drawChild(child, marked, look);
      if (this.numbered || marked) this.drawNumber(child, marked, look);
    }
  }

  curve(from, right, to) {
    const { context, left } = this,
      part = (right - left) / 3;
    context.beginPath();
    context.moveTo(left, from);
    context.bezierCurveTo(left + part, from, right - part, to, right, to);
    context.stroke();
  }

  drawLines(c, chosen, hovered, look) {
    const { context, image, right } = this,
      edges = [...this.edges].sort((a, b) => c[a] - c[b]);
    const line = (edge, alpha) => {
      context.globalAlpha = alpha;
      context.lineWidth = this.lineWidth(c[edge]);
      context.strokeStyle = look.parents[image.dst[edge]];
      if (state.held[image.src[edge]] !== LET_GO) this.curve(this.childY(image.src[edge]), right, this.parentY(image.dst[edge]));
    };
    // the others fade around what is chosen or under the pointer: a line's width is always its coupling's
    const under = hovered?.edge,
      strength = under === undefined && !this.pull ? 1 : ASIDE;
    for (const edge of edges) line(edge, strength * (this.isLit(edge, chosen) ? this.alpha(c[edge]) : UNLIT));
    if (under === undefined || this.pull) return;
    line(under, 1);
    Object.assign(context, { strokeStyle: look.ink, lineWidth: 2 });
    circle(context, right - 2, this.parentY(image.dst[under]), 4);
    context.stroke();
  }

  // The line that is pulled, from its child to the pointer.
  drawPull(look) {
    const { child, x, y, to } = this.pull,
      { context } = this;
    Object.assign(context, { globalAlpha: 1, lineWidth: this.thick, strokeStyle: look.parents[to] ?? look.ink });
    context.setLineDash(to in look.parents ? [] : [6, 6]);
    this.curve(this.childY(child), x, y);
    context.setLineDash([]);
  }

  // Before the child, or over its lines where there is no room.
  drawNumber(child, marked, look) {
    const { context, wide } = this,
      y = this.childY(child),
      x = this.numbered ? 0 : this.left + 3;
    context.fillStyle = look.paper;
    if (!this.numbered) context.fillRect(x, y - 8, wide, 16);
    Object.assign(context, { font: marked ? `700 ${look.font}` : look.font, textAlign: "right", textBaseline: "middle" });
    context.fillStyle = marked ? look.accent : look.muted;
    context.fillText(shortName(child), x + wide - 3, y);
    context.textAlign = "left";
  }

  // A child that is pinned, or held where it was pulled, has a frame.
  drawChild(child, marked, look) {
    const { context, side, from } = this,
      y = this.childY(child),
      framed = child in state.held || child in now.pinned;
    context.strokeStyle = context.fillStyle = marked ? look.accent : look.ink;
    if (this.side) {
      context.imageSmoothingEnabled = true;
      const most = Math.max(...this.edges.filter((edge) => this.image.src[edge] === child).map((edge) => this.c[edge]));
      if (state.trace.network?.decoder) context.globalAlpha = Math.sqrt(Math.max(0, most)); // a vote is as strong as it counts
      if (this.pictures.has(child)) context.drawImage(this.pictures.get(child), from + 1, y - side / 2, side, side);
      context.globalAlpha = 1;
      context.lineWidth = marked ? 3 : framed ? 2 : 1;
      if (!marked && !framed) context.strokeStyle = look.faint;
      context.strokeRect(from + 1.5, y - side / 2 + 0.5, side - 1, side - 1);
      return;
    }
    circle(context, this.left - 5, y, marked || framed ? 5 : Math.min(4.5, Math.max(1.2, 0.38 * this.room)));
    context.fill();
  }

  // Let lines be pulled: grab(under) gives what is pulled or false, target(event) what is under the pointer then, and
  // drop(pulled, target) is called where it is let go.
  grabs(grab, target, drop) {
    let grabbed = null; // what is pulled, and where it was pressed
    const end = () => {
      [grabbed, this.pull] = [null, null];
      redraw();
    };
    this.canvas.addEventListener("pointerdown", ({ offsetX: x, offsetY: y, button, pointerId }) => {
      const what = button === 0 && grab(this.under(x, y, now));
      this.pulled = false;
      if (!what) return;
      grabbed = { ...what, x, y };
      this.canvas.setPointerCapture(pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const { offsetX: x, offsetY: y } = event;
      if (!grabbed || (!this.pull && Math.hypot(x - grabbed.x, y - grabbed.y) < GRABBED)) return;
      this.pull = { ...grabbed, x, y, to: target(event) };
      redraw();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const { pull } = this;
      this.pulled = Boolean(pull);
      end();
      if (pull) drop(pull, target(event));
    });
    this.canvas.addEventListener("pointercancel", end);
  }

  // What formulas.js points at, as what is under the pointer.
  pointedAt({ child, parent }) {
    const { src, dst } = this.image;
    return { child, parent, edge: this.edges.find((e) => src[e] === child && dst[e] === parent) };
  }

  // The item under a point: {child}, {child, parent, edge}, or null.
  under(x, y, chosen) {
    if (x < this.left + 4) {
      const child = this.children[Math.floor(y / this.room)];
      return child === undefined ? null : { child };
    }
    let best = null,
      nearest = REACH;
    for (const edge of this.edges) {
      const c = this.c[edge];
      if (!this.isLit(edge, chosen)) continue;
      const slope = this.y(edge, x + 1) - this.y(edge, x - 1);
      const away = Math.abs(this.y(edge, x) - y) / Math.hypot(1, slope / 2) - this.lineWidth(c) / 2;
      if (away <= nearest) [best, nearest] = [edge, away];
    }
    return best === null ? null : { child: this.image.src[best], parent: this.image.dst[best], edge: best };
  }
}

// Red, green and blue of "#rrggbb" or "rgb(r g b)".
export function rgbOf(color) {
  return color.startsWith("#") ? channels(color) : color.match(/\d+/g).map(Number);
}

// Lines of known coupling: an equal share for each of a child's `choices`, what is enough to choose a parent or one half, and 1.
export function drawScale(canvas, graph, choices, look, enough) {
  const { context, height } = surface(canvas),
    marks = [enough ? [enough, words.chooses(enough)] : [0.5, "0.5"], [1, "1"]],
    middle = height / 2;
  if (choices > 2) marks.unshift([1 / choices, `${(1 / choices).toFixed(2)} ${words.undecided}`]);
  let x = 0;
  const write = (text) => {
    context.fillText(text, x, middle);
    x += context.measureText(text).width + 9;
  };
  Object.assign(context, { font: look.font, textBaseline: "middle", fillStyle: look.muted, strokeStyle: look.ink });
  write(words.couplingC);
  canvas.setAttribute("aria-label", words.scale(marks.map(([, text]) => text).join(", ")));
  for (const [c, text] of marks) {
    context.lineWidth = graph.lineWidth(c);
    through(context, [x, middle], [x + 22, middle]);
    context.stroke();
    x += 27;
    write(text);
  }
}
