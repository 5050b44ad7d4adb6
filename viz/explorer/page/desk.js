// The desk: a drawing of lines, or a test image, turned and moved into the pixels that the network sees.
// Lengths are pixels of the network's image, places are counted from its middle.

import { surface } from "./charts.js";
import { drawFrame, multiply, photograph } from "./picture.js";
import { state } from "./state.js";

const FINE = 4; // points per pixel, and side, of what is averaged to pixels
const DOT = 2; // a drawing that isn't larger is not enlarged
const HAIR = 0.01; // a line without length has no round ends: a canvas doesn't paint it
export const GRID = 16; // places of a drawing per pixel and direction, so that a link holds it as it is
const AS_DRAWN = { scale: 1, x: 0, y: 0 };
export const NEUTRAL = { turn: 0, right: 0, down: 0 };

export class Desk {
  // `changed()` is called after each change; `snapshot()` gives a function that restores
  // picture, lines, sliders and `past`. Where images show several objects, a stroke is drawn over an image.
  constructor(canvas, { shape: [channels, height, width], ink, detail, stroke, overlaps }, changed, snapshot) {
    Object.assign(this, { canvas, channels, height, width, ink, detail, stroke, overlaps, changed, snapshot });
    Object.assign(this, { picture: null, lines: [], line: [], past: [] });
    this.adjust = { ...NEUTRAL };
    const fine = Object.assign(document.createElement("canvas"), { width: FINE * width, height: FINE * height });
    this.fine = fine.getContext("2d", { willReadFrequently: true });
    canvas.style.aspectRatio = `${width} / ${height}`;
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => canvas.hasPointerCapture(event.pointerId) && this.go(event));
  }

  // Let undo come back to what lies here now.
  remember() {
    this.past = [...this.past, this.snapshot()];
  }

  undo() {
    this.past.at(-1)?.();
  }

  // Start with an empty sheet.
  clear() {
    if (this.picture || this.lines.length) this.remember();
    Object.assign(this, { picture: null, lines: [], adjust: { ...NEUTRAL } });
    this.changed();
  }

  begin(event) {
    if (event.button !== 0 || !event.isPrimary) return;
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    this.remember();
    if (this.picture && !this.overlaps) Object.assign(this, { picture: null, adjust: { ...NEUTRAL } });
    this.line = [];
    this.lines = [...this.lines, this.line];
    this.go(event);
  }

  go(event) {
    const between = event.getCoalescedEvents?.() ?? [];
    for (const each of between.length ? between : [event]) {
      const [x, y] = this.place(each),
        [before, above] = this.line.at(-1) ?? [];
      if (x !== before || y !== above) this.line.push([x, y]);
    }
    this.changed();
  }

  // The pointer's place on the unturned sheet.
  place({ clientX, clientY }) {
    const { left, top, width } = this.canvas.getBoundingClientRect(),
      unit = width / this.width,
      { turn, right, down } = this.adjust,
      angle = (-turn * Math.PI) / 180;
    const x = (clientX - left) / unit - this.width / 2 - right,
      y = (clientY - top) / unit - this.height / 2 - down;
    const turned = [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle)];
    return turned.map((value) => Math.round(GRID * value) / GRID);
  }

  // Paint at `unit` points per pixel; lines are moved by -x, -y and scaled, their width is not.
  paint(context, unit, { scale, x, y }) {
    const { turn, right, down } = this.adjust,
      { width, height } = this;
    context.save();
    context.fillStyle = "#000000";
    context.fillRect(0, 0, unit * width, unit * height);
    context.scale(unit, unit);
    context.translate(width / 2 + right, height / 2 + down);
    context.rotate((turn * Math.PI) / 180);
    context.imageSmoothingEnabled = false;
    if (this.picture) context.drawImage(this.picture, -width / 2, -height / 2, width, height);
    Object.assign(context, { strokeStyle: "#ffffff", lineWidth: this.stroke, lineCap: "round", lineJoin: "round" });
    for (const line of this.lines) {
      context.beginPath();
      context.moveTo(scale * (line[0][0] - x) - HAIR, scale * (line[0][1] - y));
      for (const [px, py] of line) context.lineTo(scale * (px - x), scale * (py - y));
      context.stroke();
    }
    context.restore();
  }

  // How lines come to lie as in the data set: as large as its drawings, with their centre of mass in the middle.
  frame() {
    const points = this.lines.flat();
    if (!this.ink || !points.length) return AS_DRAWN;
    const ends = (axis) => [Math.min(...points.map((p) => p[axis])), Math.max(...points.map((p) => p[axis]))];
    const [left, right] = ends(0),
      [top, bottom] = ends(1),
      long = Math.max(right - left, bottom - top),
      side = Math.min(this.width, this.height);
    const scale = long > DOT ? (this.ink * side - this.stroke) / long : 1;
    const room = ((1 - this.ink) * side) / 2 / scale; // how far the middle of the box may leave the middle
    const mass = [0, 0, 0];
    for (const line of this.lines) {
      line.forEach(([px, py], at) => {
        const [qx, qy] = line[Math.max(0, at - 1)],
          weight = Math.hypot(px - qx, py - qy) + 1e-6;
        [(px + qx) / 2, (py + qy) / 2, 1].forEach((value, k) => (mass[k] += weight * value));
      });
    }
    const near = (value, middle) => Math.min(middle + room, Math.max(middle - room, value));
    return { scale, x: near(mass[0] / mass[2], (left + right) / 2), y: near(mass[1] / mass[2], (top + bottom) / 2) };
  }

  // (C, H, W) bytes: what the network is to see.
  pixels() {
    const { fine, width, height, channels } = this,
      [wide, high] = [FINE * width, FINE * height];
    this.paint(fine, FINE, this.picture ? AS_DRAWN : this.frame());
    const { data } = fine.getImageData(0, 0, wide, high),
      coarse = !this.picture && this.detail;
    const planes = Array.from({ length: channels }, (_, channel) => {
      const plane = Uint8Array.from({ length: wide * high }, (_, x) => data[4 * x + channel]);
      if (coarse) return enlarged(averaged(plane, wide, wide / coarse), coarse, width, height);
      return averaged(plane, wide, FINE);
    });
    return Uint8Array.from(planes.flatMap((plane) => plane.map(Math.round)));
  }

  // The sheet with the tint and field of the moment; the tint is left out until the newest question is answered.
  show(tinted, field) {
    this.tinted = tinted;
    this.draw(state.asked?.data ?? this.pixels(), state.asked?.count === state.questions ? tinted : null, field);
  }

  // The sheet as it is drawn on, with a tint of the pixels that the network sees and the field of a child, or without.
  draw(pixels, tinted, field) {
    const { context, width, height } = surface(this.canvas),
      unit = width / this.width;
    if (this.picture) {
      context.imageSmoothingEnabled = false;
      context.drawImage(photograph({ shape: [this.channels, this.height, this.width], data: pixels }), 0, 0, width, height);
    } else this.paint(context, unit, AS_DRAWN);
    context.save();
    if (!this.picture) this.alignWithPixels(context, unit);
    if (tinted) multiply(context, tinted, 0, 0, width, height);
    if (field) drawFrame(context, field, unit);
    context.restore();
  }

  // Let a context that draws what the network sees meet the lines on the sheet, which frame() moves and scales for it.
  alignWithPixels(context, unit) {
    const { scale, x, y } = this.frame(),
      { turn, right, down } = this.adjust,
      angle = (turn * Math.PI) / 180,
      [cos, sin] = [Math.cos(angle), Math.sin(angle)],
      middle = [unit * (this.width / 2 + right), unit * (this.height / 2 + down)];
    context.translate(middle[0] + unit * (x * cos - y * sin), middle[1] + unit * (x * sin + y * cos));
    context.scale(1 / scale, 1 / scale);
    context.translate(-middle[0], -middle[1]);
  }
}

// The mean of each block of points.
function averaged(values, width, block) {
  const across = width / block,
    sums = Array(values.length / block ** 2).fill(0);
  values.forEach((value, at) => {
    const x = at % width,
      y = (at - x) / width;
    sums[Math.floor(y / block) * across + Math.floor(x / block)] += value;
  });
  return sums.map((sum) => sum / block ** 2);
}

// side x side values made width x height, linear between the middles of the pixels.
function enlarged(values, side, width, height) {
  const places = (size) =>
    Array.from({ length: size }, (_, x) => Math.min(side - 1, Math.max(0, ((x + 0.5) * side) / size - 0.5)));
  const along = (row, x) => {
    const x0 = Math.floor(x),
      x1 = Math.min(side - 1, x0 + 1);
    return row[x0] + (x - x0) * (row[x1] - row[x0]);
  };
  const rows = Array.from({ length: side }, (_, y) => values.slice(y * side, (y + 1) * side));
  return places(height).flatMap((y) => {
    const column = (x) => rows.map((row) => along(row, x));
    return places(width).map((x) => along(column(x), y));
  });
}
