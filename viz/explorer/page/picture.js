// The image, and its strokes in the colours of the parents that get them.

import { surface } from "./charts.js";
import { at } from "./trace.js";

const LEAST = 0.01; // a map whose largest number is below this is noise

// A canvas of the image's own size, made by paint(x) => [red, green, blue, alpha] for pixel x.
export function raster(height, width, paint) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const data = new ImageData(width, height);
  for (let x = 0; x < height * width; x++) data.data.set(paint(x), 4 * x);
  canvas.getContext("2d").putImageData(data, 0, 0);
  return canvas;
}

export function photograph({ shape: [channels, height, width], data }) {
  const size = height * width,
    color = (x, channel) => data[(channels === 3 ? channel : 0) * size + x];
  return raster(height, width, (x) => [color(x, 0), color(x, 1), color(x, 2), 255]);
}

// Fill a canvas with another one, pixel by pixel.
export function paste(canvas, whole) {
  Object.assign(canvas, { width: whole.width, height: whole.height }).getContext("2d").drawImage(whole, 0, 0);
}

const FULL = 0.35; // maps that sum to this give the full colour

// A colour for each pixel, to multiply an image with. `maps` (H * W,) say how much of a pixel belongs to each of `colors`:
// where they sum to FULL or more it has their mean, weighed by the maps' squares, and where they are 0 it is white. The same
// as in viz/routing/tint.py, with its power that makes weak choices visible.
export function tint(maps, colors, height, width) {
  return raster(height, width, (x) => {
    const squares = maps.reduce((sum, map) => sum + map[x] ** 2, 1e-12),
      strength = Math.min(1, maps.reduce((sum, map) => sum + map[x], 0) / FULL) ** 0.7,
      mean = (k) => maps.reduce((sum, map, j) => sum + (colors[j][k] * map[x] ** 2) / squares, 0);
    return [...[0, 1, 2].map((k) => 255 + strength * (mean(k) - 255)), 255];
  });
}

// Multiply what is on a canvas with a tint, laid over this rectangle.
export function multiply(context, tinted, ...rectangle) {
  context.globalCompositeOperation = "multiply";
  context.imageSmoothingEnabled = true;
  context.drawImage(tinted, ...rectangle);
  context.globalCompositeOperation = "source-over";
}

// Maps of the pixels that the children of each parent see, by their saliency.
// maps(parents, moment) are in [0, 1], and 1 is the most of any parent after the rounds of training.
export class Heat {
  constructor(trace, image) {
    const [, height, width] = image.pixels.shape;
    Object.assign(this, { trace, image, size: height * width, scale: 1 });
    const answer = this.maps([...trace.parents.keys()], { k: trace.epochs.length - 1, r: trace.trained - 1 });
    this.scale = Math.max(LEAST, ...answer.map((map) => map.reduce((a, b) => Math.max(a, b), 0)));
  }

  maps(parents, moment) {
    const { src, dst, choices } = this.image,
      c = at(this.image.c, moment);
    return parents.map((parent) => {
      const sum = new Float64Array(this.size);
      c.forEach((value, e) => {
        const weight = value - 1 / choices.get(src[e]);
        if (dst[e] === parent && weight > 0) this.spot(src[e]).forEach((byte, x) => (sum[x] += (byte * weight) / 255));
      });
      return sum.map((x) => Math.min(1, x / this.scale));
    });
  }

  spot(child) {
    return this.image.saliency.data.subarray(child * this.size, (child + 1) * this.size);
  }
}

// Draw an image with sharp pixels, its strokes tinted, and the field of a child as a frame.
export function drawPhoto(canvas, photo, tinted, frame) {
  canvas.style.aspectRatio = `${photo.width} / ${photo.height}`;
  const { context, width, height } = surface(canvas);
  context.imageSmoothingEnabled = false;
  context.drawImage(photo, 0, 0, width, height);
  if (tinted) multiply(context, tinted, 0, 0, width, height);
  if (frame) drawFrame(context, frame, width / photo.width);
}

export function drawFrame(context, [top, left, tall, wide], unit) {
  Object.assign(context, { strokeStyle: "#ffffff", lineWidth: 2 });
  context.strokeRect(left * unit, top * unit, wide * unit, tall * unit);
}
