// The image, and over it a glow where the children that chose a parent look, or in colours what each place votes for.

const DIMMED = 0.5; // what is left of the image's light under the glow
const LEAST = 0.01; // a glow below this is noise
const SHARP = 4; // power of the cosine that a place fades by
const LITTLE = 0.1; // of the most that any pixel is seen, added to what each is: fades what hardly any child sees

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

// Fill a canvas with another one, pixel by pixel.
function paste(canvas, whole) {
  Object.assign(canvas, { width: whole.width, height: whole.height }).getContext("2d").drawImage(whole, 0, 0);
}

// Fill a canvas, pixel by pixel, with an image.
function showPicture(canvas, pixels) {
  paste(canvas, photograph(pixels));
}

// Laid over the image, leaves it at image * DIMMED * (1 - heat) + glow * heat.
function glowing(heat, height, width, glow) {
  return raster(height, width, (x) => {
    const alpha = 1 - DIMMED * (1 - heat[x]);
    return [...glow.map((channel) => (channel * heat[x]) / alpha), 255 * alpha];
  });
}

// Two layers, from maps in [0, 1] with a colour each: one to lay over the image softly, which leaves it at
// image * DIMMED * (1 - a) + tint * a / 2, and one to add, tint * a / 2 * image. So strokes show under what is painted.
function painted(maps, colors, height, width, { shape: [channels, ...size], data }) {
  const pixels = size[0] * size[1];
  const at = (x) => {
    const weight = maps.reduce((sum, map) => sum + map[x], 0),
      strength = Math.sqrt(Math.min(1, weight)); // the root: weak parts show beside strong ones
    const tint = [0, 1, 2].map((k) => maps.reduce((sum, map, j) => sum + map[x] * colors[j][k], 0));
    return { strength, half: tint.map((value) => (value / Math.max(weight, 1e-9)) * strength * 0.5) };
  };
  const soft = raster(height, width, (x) => {
    const { strength, half } = at(x),
      alpha = 1 - DIMMED * (1 - strength);
    return [...half.map((value) => value / alpha), 255 * alpha];
  });
  const light = (x, k) => data[(channels === 3 ? k : 0) * pixels + x] / 255;
  const added = raster(height, width, (x) => [...at(x).half.map((value, k) => value * light(x, k)), 255]);
  return { soft, added };
}

// How strongly pixels belong to each place: a window that falls to 0 at the border of its field, as a share of all the
// windows over a pixel. Of each place {pixels, shares}; computed when the places change.
const windowsOf = new WeakMap();
function windows(places, height, width) {
  if (windowsOf.has(places)) return windowsOf.get(places);
  const fall = (x, size) => Math.max(0, Math.cos((Math.PI * (x - (size - 1) / 2)) / (size + 1))) ** SHARP,
    seen = new Float64Array(height * width);
  const found = places.map(([top, left, tall, wide]) => {
    const inside = [...Array(tall * wide).keys()]
      .map((n) => [Math.floor(n / wide), n % wide])
      .filter(([y, x]) => top + y >= 0 && top + y < height && left + x >= 0 && left + x < width);
    const pixels = Int32Array.from(inside, ([y, x]) => (top + y) * width + left + x),
      shares = Float64Array.from(inside, ([y, x]) => fall(y, tall) * fall(x, wide));
    pixels.forEach((x, n) => (seen[x] += shares[n]));
    return { pixels, shares };
  });
  const little = LITTLE * seen.reduce((a, b) => Math.max(a, b));
  for (const { pixels, shares } of found) pixels.forEach((x, n) => (shares[n] /= seen[x] + little));
  windowsOf.set(places, found);
  return found;
}

// Heat maps of one image. Of saliency, map(parent, moment) is in [0, 1], 1 the brightest of any parent after the
// iterations of training, and squared, since eyes see a glow's middle tones too bright. Of fields, votes(moment) has a
// map for each parent, of what it gets from each place; their sum is 1 where it is most after those iterations.
class Heat {
  constructor(trace, image) {
    const [, height, width] = image.pixels.shape;
    Object.assign(this, { trace, image, height, width });
    this.kind = image.saliency ? "saliency" : image.credit ? "fields" : null;
    const k = trace.epochs.length - 1;
    if (this.kind === "fields") {
      this.windows = windows(trace.fields.places, height, width);
      this.scale = 1;
      const answer = this.votes({ k, r: trace.trained - 1 });
      this.scale = answer[0].reduce((most, _, x) => Math.max(most, answer.reduce((sum, map) => sum + map[x], 0)), 1e-9);
    }
    if (this.kind === "saliency") {
      this.degree = new Map();
      image.src.forEach((child) => this.degree.set(child, (this.degree.get(child) ?? 0) + 1));
      const answer = { k, r: trace.trained - 1 };
      const brightest = trace.parents.map((_, j) => this.raw(j, answer).reduce((a, b) => Math.max(a, b), 0));
      this.scale = Math.max(LEAST, ...brightest);
    }
  }

  spot(child) {
    const size = this.height * this.width;
    return this.image.saliency.data.subarray(child * size, (child + 1) * size);
  }

  raw(parent, moment) {
    const sum = new Float64Array(this.height * this.width),
      { src, dst } = this.image;
    const add = (spot, weight) => weight > 0 && spot.forEach((value, x) => (sum[x] += value * weight));
    at(this.image.c, moment).forEach(
      (value, e) => dst[e] === parent && add(this.spot(src[e]), (value - 1 / this.degree.get(src[e])) / 255),
    );
    return sum;
  }

  map(parent, moment) {
    return this.raw(parent, moment).map((value) => Math.min(1, value / this.scale) ** 2);
  }

  votes(moment) {
    const credit = at(this.image.credit, moment),
      places = this.windows.length;
    return this.trace.parents.map((_, parent) => {
      const map = new Float64Array(this.height * this.width);
      this.windows.forEach(({ pixels, shares }, place) => {
        const value = credit[parent * places + place] / this.scale;
        if (value > 0) pixels.forEach((x, n) => (map[x] += shares[n] * value));
      });
      return map;
    });
  }

  ofChild(child) {
    return Float64Array.from(this.spot(child), (value) => value / 255);
  }
}

// Draw the image with sharp pixels, softly over it one layer, added to it another, and the field of a child as a frame.
function drawPicture(canvas, photo, { soft, added }, field) {
  canvas.style.aspectRatio = `${photo.width} / ${photo.height}`;
  const { context, width, height } = surface(canvas);
  context.imageSmoothingEnabled = false;
  context.drawImage(photo, 0, 0, width, height);
  if (soft) {
    context.imageSmoothingEnabled = true;
    context.drawImage(soft, 0, 0, width, height);
  }
  if (added) {
    context.imageSmoothingEnabled = false;
    context.globalCompositeOperation = "lighter";
    context.drawImage(added, 0, 0, width, height);
    context.globalCompositeOperation = "source-over";
  }
  if (field) {
    const [top, left, tall, wide] = field,
      unit = width / photo.width;
    context.strokeStyle = "#ffffff";
    context.lineWidth = 2;
    context.strokeRect(left * unit, top * unit, wide * unit, tall * unit);
  }
}
