// An image without a pen: digits that are typed, a file, or what the clipboard holds.

import { NEUTRAL } from "./desk.js";
import { changed, EMPTY, network } from "./live.js";
import { note } from "./share.js";
import { state } from "./state.js";
import { $ } from "./tools.js";
import { screens } from "./words.js";

const [, high, wide] = network.shape,
  LARGEST = 256, // pixels of a side of what a file is read as
  APART = 0.09, // of the width, between the middles of typed digits and the sheet's
  FAINT = 0.3; // of the strongest ink; paper is fainter

function sheetOf(width, height, fillStyle = "#000000") {
  const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d", { willReadFrequently: true });
  context.fillStyle = fillStyle;
  context.fillRect(0, 0, width, height);
  return context;
}

function lay(picture, shown) {
  state.desk.remember();
  state.shown = { ...EMPTY, ...shown };
  state.held = {};
  Object.assign(state.desk, { picture, lines: [], adjust: { ...NEUTRAL } });
}

// Lay typed signs on the sheet, as large as the data set's, over one another and a little apart.
export function layTyped(text) {
  const context = sheetOf(wide, high),
    tall = (network.desk.ink ?? 0.7) * Math.min(wide, high);
  Object.assign(context, { fillStyle: "#ffffff", textAlign: "center", globalCompositeOperation: "lighter" });
  [...text].forEach((sign, at) => {
    context.font = `${tall}px sans-serif`;
    const { actualBoundingBoxAscent: up, actualBoundingBoxDescent: down } = context.measureText(sign),
      size = (tall * tall) / (up + down || tall);
    context.font = `${size}px sans-serif`;
    const shift = text.length > 1 ? wide * APART * (at % 2 ? 1 : -1) : 0;
    context.fillText(sign, wide / 2 + shift, high / 2 + (size / tall) * ((up - down) / 2) + shift / 2);
  });
  lay(context.canvas, { name: screens.typed(text), typed: text });
}

// The picture as the network's images are: a drawing's ink, light on black, as large as the data set's; else as it is, with its
// border's colour beside it. Transparent pixels are white.
function framed(bitmap) {
  const scale = LARGEST / Math.max(bitmap.width, bitmap.height),
    size = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(scale * side))),
    read = sheetOf(...size, "#ffffff"),
    sheet = sheetOf(wide, high);
  read.drawImage(bitmap, 0, 0, ...size);
  const [width, height] = size,
    image = read.getImageData(0, 0, width, height),
    light = Float64Array.from({ length: width * height }, (_, x) => (image.data[4 * x] + image.data[4 * x + 1] + image.data[4 * x + 2]) / 3),
    places = [...light.keys()],
    edge = places.filter((x) => x % width === 0 || x % width === width - 1 || x < width || x >= width * (height - 1)),
    median = (of) => edge.map(of).sort((a, b) => a - b)[Math.floor(edge.length / 2)],
    paper = median((x) => light[x]);
  if (!network.desk.ink) {
    const fit = Math.min(wide / width, high / height);
    sheet.fillStyle = `rgb(${[0, 1, 2].map((channel) => median((x) => image.data[4 * x + channel]))})`;
    sheet.fillRect(0, 0, wide, high);
    sheet.drawImage(read.canvas, (wide - fit * width) / 2, (high - fit * height) / 2, fit * width, fit * height);
    if (!network.desk.swaps || paper <= 127) return sheet.canvas;
    Object.assign(sheet, { globalCompositeOperation: "difference", fillStyle: "#ffffff" });
    sheet.fillRect(0, 0, wide, high);
    return sheet.canvas;
  }
  const most = light.reduce((strongest, value) => Math.max(strongest, Math.abs(value - paper)), 1),
    ink = light.map((value) => Math.max(0, Math.abs(value - paper) / most - FAINT) / (1 - FAINT)),
    inked = places.filter((x) => ink[x] > 0),
    [columns, rows] = [inked.map((x) => x % width), inked.map((x) => Math.floor(x / width))],
    ends = (values) => values.reduce(([low, top], value) => [Math.min(low, value), Math.max(top, value)], [Infinity, -Infinity]),
    [[left, right], [top, bottom]] = [ends(columns), ends(rows)];
  ink.forEach((value, x) => image.data.set([255 * value, 255 * value, 255 * value, 255], 4 * x));
  read.putImageData(image, 0, 0);
  const unit = (network.desk.ink * Math.min(wide, high)) / Math.max(right - left + 1, bottom - top + 1);
  sheet.imageSmoothingQuality = "high";
  sheet.translate(wide / 2 - (unit * (left + right + 1)) / 2, high / 2 - (unit * (top + bottom + 1)) / 2);
  sheet.drawImage(read.canvas, 0, 0, unit * width, unit * height);
  return sheet.canvas;
}

async function layFile(file) {
  const bitmap = await createImageBitmap(file).catch(() => null);
  note(bitmap ? "" : screens.notPicture);
  if (!bitmap) return;
  lay(framed(bitmap), { name: screens.picture, foreign: true });
  changed();
}

$("#typed").addEventListener("input", ({ target }) => {
  const text = target.value.trim();
  if (!text) return state.desk.clear();
  layTyped(text);
  changed();
});
$("#choose-file").addEventListener("click", () => $("#file").click());
$("#file").addEventListener("change", ({ target }) => target.files[0] && layFile(target.files[0]));
addEventListener("paste", ({ clipboardData }) => {
  const file = [...(clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/"));
  if (file) layFile(file);
});
