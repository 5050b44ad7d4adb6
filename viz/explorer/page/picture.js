// The image, and over it a glow where the children that chose a parent look.

const DIMMED = 0.5; // what is left of the image's light under the glow
const LEAST = 0.01; // a glow below this is noise

// A canvas of the image's own size, made by paint(x) => [red, green, blue, alpha] for pixel x.
function raster(height, width, paint) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const data = new ImageData(width, height);
  for (let x = 0; x < height * width; x++) data.data.set(paint(x), 4 * x);
  canvas.getContext("2d").putImageData(data, 0, 0);
  return canvas;
}

function photograph({ shape: [channels, height, width], data }) {
  const size = height * width,
    color = (x, channel) => data[(channels === 3 ? channel : 0) * size + x];
  return raster(height, width, (x) => [color(x, 0), color(x, 1), color(x, 2), 255]);
}

// Fill a canvas, pixel by pixel, with an image as it stands in the JSON.
function showPicture(canvas, { shape, data }) {
  const whole = photograph({ shape, data: bytes(data) });
  Object.assign(canvas, { width: whole.width, height: whole.height }).getContext("2d").drawImage(whole, 0, 0);
}

// Laid over the image, leaves it at image * DIMMED * (1 - heat) + glow * heat.
function glowing(heat, height, width, glow) {
  return raster(height, width, (x) => {
    const alpha = 1 - DIMMED * (1 - heat[x]);
    return [...glow.map((channel) => (channel * heat[x]) / alpha), 255 * alpha];
  });
}

// How strongly a pixel belongs to each place: a window that falls to 0 at the border of its field.
function windows(places, height, width) {
  const fall = (x, from, size) => Math.max(0, Math.cos((Math.PI * (x - from - (size - 1) / 2)) / (size + 1))) ** 2;
  const inside = (x, from, size) => x >= from && x < from + size;
  return places.map(([top, left, tall, wide]) =>
    Float64Array.from({ length: height * width }, (_, x) => {
      const row = Math.floor(x / width),
        column = x % width;
      return inside(row, top, tall) && inside(column, left, wide) ? fall(row, top, tall) * fall(column, left, wide) : 0;
    }),
  );
}

// Heat maps of one image: map(parent, moment) is in [0, 1], 1 the brightest of any parent at the end of the trace.
// Squared, since eyes see a glow's middle tones too bright.
class Heat {
  constructor(trace, image) {
    const [, height, width] = image.pixels.shape;
    Object.assign(this, { trace, image, height, width });
    this.kind = image.saliency ? "saliency" : image.chosen ? "fields" : null;
    if (this.kind === "fields") {
      this.windows = windows(trace.fields.places, height, width);
      const seen = Float64Array.from({ length: height * width }, (_, x) =>
        this.windows.reduce((sum, w) => sum + w[x], 0),
      );
      const little = 0.1 * seen.reduce((a, b) => Math.max(a, b)); // fades pixels that hardly any child sees
      this.seen = seen.map((value) => value + little);
    }
    if (this.kind === "saliency") {
      this.degree = new Map();
      image.src.forEach((child) => this.degree.set(child, (this.degree.get(child) ?? 0) + 1));
    }
    const end = { k: trace.epochs.length - 1, r: trace.iterations - 1 };
    const brightest = trace.parents.map((_, j) => this.kind && this.raw(j, end).reduce((a, b) => Math.max(a, b), 0));
    this.scale = Math.max(LEAST, ...brightest);
  }

  spot(child) {
    const size = this.height * this.width;
    return this.image.saliency.data.subarray(child * size, (child + 1) * size);
  }

  raw(parent, moment) {
    const sum = new Float64Array(this.height * this.width);
    const add = (spot, weight) => weight > 0 && spot.forEach((value, x) => (sum[x] += value * weight));
    if (this.kind === "saliency") {
      const { src, dst } = this.image,
        c = at(this.image.c, moment);
      c.forEach((value, e) => dst[e] === parent && add(this.spot(src[e]), (value - 1 / this.degree.get(src[e])) / 255));
      return sum;
    }
    const chosen = at(this.image.chosen, moment),
      places = this.windows.length;
    this.windows.forEach((window, place) => add(window, chosen[parent * places + place]));
    return sum.map((value, x) => value / this.seen[x]);
  }

  map(parent, moment) {
    return this.raw(parent, moment).map((value) => Math.min(1, value / this.scale) ** 2);
  }

  ofChild(child) {
    return Float64Array.from(this.spot(child), (value) => value / 255);
  }
}

// Draw the image with sharp pixels, the glow softly over it, and the field of a child as a frame.
function drawPicture(canvas, photo, heat, field, glow) {
  canvas.style.aspectRatio = `${photo.width} / ${photo.height}`;
  const { context, width, height } = surface(canvas);
  context.imageSmoothingEnabled = false;
  context.drawImage(photo, 0, 0, width, height);
  if (heat) {
    context.imageSmoothingEnabled = true;
    context.drawImage(glowing(heat, photo.height, photo.width, glow), 0, 0, width, height);
  }
  if (field) {
    const [top, left, tall, wide] = field,
      unit = width / photo.width;
    context.strokeStyle = "#ffffff";
    context.lineWidth = 2;
    context.strokeRect(left * unit, top * unit, wide * unit, tall * unit);
  }
}
