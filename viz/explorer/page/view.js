// The screen as one picture, drawn by what draws the page.

import { drawEntropy } from "./charts.js";
import { Graph } from "./graph.js";
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
  ROWS_WIDE = 220; // the width of the parents' rows
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
    const own = new Graph(canvas);
    own.take(state.image, state.fold, state.graph.pictures);
    own.draw(at(state.image.c, now), now, null, state.look);
  });
  drawRows(context, left + room);
  if (!$("#folded").hidden && !now.all) write(`+ ${words.undecidedParts(state.fold.undecided)}`, left, TOP + TALL + 22, { color: state.look.muted });
  write($("#entropy h2").textContent, left, TOP + TALL + 50, { weight: 650, size: 14 });
  write(`${$("#entropy .heads label").textContent} ${$("#entropy output").textContent}; ${$("#mean").textContent}`, left + 250, TOP + TALL + 50, { color: state.look.muted });
  panel(context, left, TOP + TALL + 58, SHEET.width - SHEET.edge - left, 170, (canvas) => {
    drawEntropy(canvas, state.trace, state.image, now, (child) => state.look.parents[state.fold.choices.get(child)?.[0]], state.look);
  });
}

// The parents beside the graph, each with its picture, its name, and its length as a bar and as a number.
function drawRows(context, x) {
  const rows = [...$("#parents").children],
    tall = TALL / rows.length,
    side = Math.min(90, tall - 8);
  rows.forEach((row, at) => {
    const y = TOP + (at + 0.5) * tall,
      picture = row.querySelector("canvas"),
      [dot, name, value] = ["dot", "name", "value"].map((part) => row.querySelector(`.${part}`).textContent),
      share = Number(row.querySelector(".bar").style.getPropertyValue("--share")),
      from = x + (picture.hidden ? 6 : side + 14),
      font = `${row.classList.contains("longest") ? 700 : 400} 14px ${state.look.family}`;
    Object.assign(context, { fillStyle: state.look.parents[row.dataset.parent], strokeStyle: state.look.parents[row.dataset.parent], lineWidth: 3 });
    context.fillRect(from, y + 6, Math.max(1, 90 * share), 8);
    if (!picture.hidden) {
      context.drawImage(picture, x + 4, y - side / 2, side, side);
      context.strokeRect(x + 4, y - side / 2, side, side);
    }
    Object.assign(context, { font, fillStyle: state.look.ink, textAlign: "left", textBaseline: "alphabetic" });
    context.fillText(`${name} ${value} ${dot}`, from, y, x + ROWS_WIDE - from);
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
