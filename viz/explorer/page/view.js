// The image, the ribbons and the parents as one picture, drawn by what draws the page.

import { OTHERS, Ribbons } from "./ribbons.js";
import { note } from "./share.js";
import { draw, stop } from "./shell.js";
import { now, state } from "./state.js";
import { $ } from "./tools.js";
import { at } from "./trace.js";
import { words } from "./words.js";

const SHEET = { width: 1200, height: 620, edge: 32 };
const TOP = 104, // y of the image, the graph and the parents
  SIDE = 330, // the image's width
  TALL = 480, // the graph's height
  ROWS_WIDE = 220, // the width of the parents' rows
  ROW = 18, // pixels of a line of text in them
  SHARPNESS = 2; // points per pixel of a PNG

function drawView(context) {
  const { look, photo } = state,
    left = photo ? SHEET.edge + SIDE + 40 : SHEET.edge,
    room = SHEET.width - SHEET.edge - ROWS_WIDE - left;
  const write = (text, x, y, size = 13, weight = 400, color = look.ink) => {
    Object.assign(context, { font: `${weight} ${size}px ${look.family}`, fillStyle: color, textBaseline: "alphabetic" });
    context.fillText(text, x, y, SHEET.width - SHEET.edge - x);
  };
  context.fillStyle = look.paper;
  context.fillRect(0, 0, SHEET.width, SHEET.height);
  write($("h1").textContent, SHEET.edge, 52, 24, 650);
  write(`${$("#source").textContent} · ${$("#entropy .heads label").textContent} ${$("#entropy output").textContent}`, SHEET.edge, 76, 13, 400, look.muted);
  if (photo) {
    const high = (SIDE * photo.height) / photo.width;
    context.drawImage($("#sheet canvas"), SHEET.edge, TOP, SIDE, high);
    write([$("#shown")?.textContent, $("#verdict")?.textContent].filter(Boolean).join(": "), SHEET.edge, TOP + high + 24);
  }
  const canvas = Object.assign(document.createElement("canvas"), { dense: SHARPNESS }),
    ribbons = new Ribbons(canvas);
  Object.defineProperties(canvas, { clientWidth: { value: room }, clientHeight: { value: TALL } });
  ribbons.take(state.image, state.order, state.graph.pictures);
  ribbons.draw(at(state.image.c, now), now, null, look);
  context.drawImage(canvas, left, TOP, room, TALL);
  drawRows(context, write, left + room, ribbons);
}

// The parents beside their bars, each with its picture, its name and its length.
function drawRows(context, write, x, ribbons) {
  const side = Math.min(90, TALL / ribbons.bars.length - 8),
    places = ribbons.labels((parent) => (parent === OTHERS ? 2 * ROW : side + 6));
  [...$("#parents").children].forEach((row, at) => {
    const y = TOP + places[at].y + places[at].tall / 2,
      picture = row.querySelector("canvas"),
      texts = ["name", "value", "mark"].map((part) => row.querySelector(`.${part}`).textContent),
      lines = row.classList.contains("others") ? texts[0].split(": ") : [texts.filter(Boolean).join("  ")],
      from = x + (picture.hidden ? 6 : side + 14);
    if (!picture.hidden) {
      Object.assign(context, { strokeStyle: state.look.parents[row.dataset.parent], lineWidth: 3 });
      context.drawImage(picture, x + 4, y - side / 2, side, side);
      context.strokeRect(x + 4, y - side / 2, side, side);
    }
    lines.forEach((line, k) => write(line, from, y + 5 + ROW * k, 14, row.classList.contains("longest") ? 700 : 400));
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
