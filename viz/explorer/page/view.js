// The screen as one picture, drawn by what draws the page.

import { drawEntropy } from "./charts.js";
import { OTHERS, Ribbons } from "./ribbons.js";
import { note } from "./share.js";
import { draw, stop } from "./shell.js";
import { now, state } from "./state.js";
import { $, scratch } from "./tools.js";
import { at } from "./trace.js";
import { words } from "./words.js";

const SHEET = { width: 1200, height: 820, edge: 32 };
const INNER = SHEET.width - 2 * SHEET.edge, // between the edges
  TOP = 104, // y of the image, the graph and the parents
  SIDE = 330, // the image's width
  TALL = 440, // the graph's height
  ROWS_WIDE = 220, // the width of the parents' rows
  ROW = 18; // pixels of a line of text in them
const SHARPNESS = 2; // points per pixel of a PNG

// Let draw(canvas) draw as on a canvas of the page, at a place of a sheet.
function panel(context, x, y, width, height, draw) {
  const canvas = Object.assign(document.createElement("canvas"), { dense: SHARPNESS });
  Object.defineProperties(canvas, { clientWidth: { value: width }, clientHeight: { value: height } });
  draw(canvas);
  context.drawImage(canvas, x, y, width, height);
}

// The text in lines of at most this width.
function wrapped(text, font, width) {
  scratch.font = font;
  return text.split(/\s+/).reduce(
    (lines, word) => {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      return scratch.measureText(longer).width > width && lines.at(-1) ? [...lines, word] : [...lines.slice(0, -1), longer];
    },
    [""],
  );
}

// A function that writes text in the page's font: write(text, x, y, {size, weight, color, align, room}), in lines as wide as `room`.
function writer(context) {
  return (text, x, y, { size = 12, weight = 400, color = state.look.ink, align = "left", room = INNER } = {}) => {
    const font = `${weight} ${size}px ${state.look.family}`;
    Object.assign(context, { font, fillStyle: color, textAlign: align, textBaseline: "alphabetic" });
    wrapped(text, font, room).forEach((line, at) => context.fillText(line, x, y + 1.4 * size * at));
  };
}

// Draw the moment that the page shows: the image, the graph with its parents, and the curve.
function drawView(context) {
  const write = writer(context),
    left = state.photo ? SHEET.edge + SIDE + 40 : SHEET.edge;
  context.fillStyle = state.look.paper;
  context.fillRect(0, 0, SHEET.width, SHEET.height);
  write($("h1").textContent, SHEET.edge, 52, { size: 24, weight: 650 });
  write($("#source").textContent, SHEET.edge, 76, { color: state.look.muted });
  if (state.photo) {
    context.drawImage($("#sheet canvas"), SHEET.edge, TOP, SIDE, (SIDE * state.photo.height) / state.photo.width);
    const name = [$("#shown")?.textContent, $("#verdict")?.textContent].filter(Boolean).join(": ");
    write(name, SHEET.edge, TOP + (SIDE * state.photo.height) / state.photo.width + 24, { room: SIDE });
  }
  const room = SHEET.width - SHEET.edge - ROWS_WIDE - left;
  panel(context, left, TOP, room, TALL, (canvas) => {
    const own = new Ribbons(canvas);
    own.take(state.image, state.order, state.graph.pictures);
    own.draw(at(state.image.c, now), now, null, state.look);
    drawRows(context, left + room, own);
  });
  write($("#entropy h2").textContent, left, TOP + TALL + 50, { weight: 650, size: 14 });
  write(`${$("#entropy .heads label").textContent} ${$("#entropy output").textContent}; ${$("#mean").textContent}`, left + 250, TOP + TALL + 50, { color: state.look.muted });
  panel(context, left, TOP + TALL + 58, SHEET.width - SHEET.edge - left, 170, (canvas) => {
    drawEntropy(canvas, state.trace, state.image, now, (child) => state.look.parents[state.order.choices.get(child)?.[0]], state.look);
  });
}

// The parents beside their bars, each with its picture, its name and its length.
function drawRows(context, x, ribbons) {
  const side = Math.min(90, TALL / ribbons.bars.length - 8),
    places = ribbons.labels((parent) => (parent === OTHERS ? 2 * ROW : side + 6));
  [...$("#parents").children].forEach((row, at) => {
    const y = TOP + places[at].y + places[at].tall / 2,
      picture = row.querySelector("canvas"),
      text = ["name", "value", "mark"].map((part) => row.querySelector(`.${part}`).textContent).join(" "),
      from = x + (picture.hidden ? 6 : side + 14),
      font = `${row.classList.contains("longest") ? 700 : 400} 14px ${state.look.family}`;
    Object.assign(context, { strokeStyle: state.look.parents[row.dataset.parent], lineWidth: 3 });
    if (!picture.hidden) {
      context.drawImage(picture, x + 4, y - side / 2, side, side);
      context.strokeRect(x + 4, y - side / 2, side, side);
    }
    Object.assign(context, { font, fillStyle: state.look.ink, textAlign: "left", textBaseline: "middle" });
    wrapped(text, font, SHEET.width - 4 - from).forEach((line, k) => context.fillText(line, from, y + ROW * (k - 0.3)));
  });
}

async function saveView() {
  try {
    stop();
    draw();
    const title = [state.trace.title, ...state.trace.source].join(", "),
      canvas = Object.assign(document.createElement("canvas"), { width: SHARPNESS * SHEET.width, height: SHARPNESS * SHEET.height }),
      context = canvas.getContext("2d");
    context.scale(SHARPNESS, SHARPNESS);
    drawView(context);
    const url = URL.createObjectURL(await new Promise((done) => canvas.toBlob(done, "image/png"))),
      name = `${title.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "routing"}.png`;
    Object.assign(document.createElement("a"), { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    note(words.saved(name));
  } catch (error) {
    note(words.notSaved(error.message));
  }
}

$("#save-png").hidden = false;
$("#save-png").addEventListener("click", saveView);
