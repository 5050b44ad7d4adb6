// The image, and its strokes in the colours of the parents that get them.

import { surface } from "./charts.js";

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

// A colour for each pixel, to multiply an image with, from maps (H * W,) of how much of a pixel belongs to each of `colors`:
// the formula of viz/routing/tint.py. Where maps sum to 1 or more it has their mean, weighed by their squares; where they are
// 0 it is white.
export function tint(maps, colors, height, width) {
  return raster(height, width, (x) => {
    const squares = maps.reduce((sum, map) => sum + map[x] ** 2, 1e-12),
      strength = Math.min(1, maps.reduce((sum, map) => sum + map[x], 0)),
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
