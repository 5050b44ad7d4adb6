// From primary capsules back to pixels: what a capsule sees, which feature maps its numbers come from, and which pixels
// change its length.

import { lengthsOf } from "./layer.js";
import { products } from "./network.js";

const MAPS = 8; // named, at most

// {field, window: [top, left, height, width] in the image and in the maps, size: [height, width] of a map, count: of maps,
// maps: [{channel, share, picture}]} of a child, by what went into each step of the stem. A map's share is its part of the capsule before squash, s: what it adds to
// s, along s, over |s|. Shares and that of the bias sum to 1. Pictures are bytes, 255 where a map is largest.
export function feeds(network, inputs, child) {
  const { dim } = network.primary,
    { weight, bias, stride, groups } = network.stem.at(-1),
    { values, shape: [count, height, width] } = inputs.at(-1),
    [outs, ins, high, wide] = weight.shape,
    [tall, broad] = [(height - high) / stride[0], (width - wide) / stride[1]].map((steps) => Math.floor(steps) + 1);
  const place = child % (tall * broad),
    type = Math.floor(child / (tall * broad)),
    at = [Math.floor(place / broad), place % broad],
    [top, left] = [at[0] * stride[0], at[1] * stride[1]];
  const added = new Float64Array(count * dim),
    s = new Float64Array(dim);
  for (let d = 0; d < dim; d++) {
    const out = type * dim + d,
      first = Math.floor(out / (outs / groups)) * ins;
    s[d] = bias.values[out];
    for (let n = 0; n < ins; n++) {
      let sum = 0;
      for (let y = 0; y < high; y++) {
        const row = ((first + n) * height + top + y) * width + left,
          from = ((out * ins + n) * high + y) * wide;
        for (let x = 0; x < wide; x++) sum += weight.values[from + x] * values[row + x];
      }
      added[(first + n) * dim + d] = sum;
      s[d] += sum;
    }
  }
  const squared = s.reduce((sum, value) => sum + value * value, 1e-30),
    shares = Array.from({ length: count }, (_, channel) => {
      return s.reduce((sum, value, d) => sum + (added[channel * dim + d] * value) / squared, 0);
    });
  const largest = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, MAPS);
  return {
    field: fieldOf(network, at),
    window: [top, left, high, wide],
    size: [height, width],
    count,
    maps: largest.filter((channel) => shares[channel] > 0).map((channel) => {
      const map = values.subarray(channel * height * width, (channel + 1) * height * width),
        [low, most] = map.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
      const picture = Uint8Array.from(map, (value) => Math.round((255 * (value - low)) / Math.max(most - low, 1e-12)));
      return { channel, share: shares[channel], picture };
    }),
  };
}

// The part of the image that a place of the last convolution sees, back through all of them.
function fieldOf({ stem }, [row, column]) {
  let field = [row, column, 1, 1];
  for (const { kind, weight, stride } of [...stem].reverse()) {
    if (kind !== "conv") continue;
    const [top, left, high, wide] = field;
    const size = [(high - 1) * stride[0] + weight.shape[2], (wide - 1) * stride[1] + weight.shape[3]];
    field = [top * stride[0], left * stride[1], ...size];
  }
  return field;
}

const BLUR = 1.5; // standard deviation in pixels: gradients speckle

// uint8 (I, H, W); each child's largest is 255.
export function saliency(network, pixels) {
  const inputs = [],
    u = network.primaryCapsules(pixels, inputs),
    [channels, height, width] = network.shape,
    size = height * width;
  let slopes = slopesOfLengths(u, network.primary);
  network.stem.forEach((_, at) => {
    const place = network.stem.length - 1 - at;
    slopes = BACK[network.stem[place].kind](slopes, inputs[place], network.stem[place]);
  });
  const result = new Uint8Array(slopes.length * size);
  slopes.forEach((slope, child) => {
    const most = Float64Array.from({ length: size }, (_, x) => {
      let largest = 0;
      for (let channel = 0; channel < channels; channel++) largest = Math.max(largest, Math.abs(slope[channel * size + x]));
      return largest;
    });
    const spot = blurred(most, height, width),
      top = spot.reduce((a, b) => Math.max(a, b), 1e-30);
    result.set(spot.map((value) => Math.round((255 * value) / top)), child * size);
  });
  return result;
}

// For each child, the slope of |u_i| along the features before squash: 2 s / (1 + n^2)^2, where |u| = n^2 / (1 + n^2).
function slopesOfLengths(u, { dim, types }) {
  const children = u.length / dim,
    positions = children / types;
  return Array.from(lengthsOf(u, dim), (length, child) => {
    const squared = length / (1 - length),
      factor = length > 0 ? (2 * Math.sqrt(squared)) / (length * (1 + squared) ** 2) : 0, // times u: s is u n / |u|
      slope = new Float64Array(u.length);
    for (let d = 0; d < dim; d++) {
      const feature = Math.floor(child / positions) * dim + d;
      slope[feature * positions + (child % positions)] = factor * u[child * dim + d];
    }
    return slope;
  });
}

// From slopes along what a step gave to slopes along what it took.
const BACK = {
  relu: (slopes, { values }) => slopes.map((slope) => slope.map((value, at) => (values[at] > 0 ? value : 0))),
  affine: (slopes, { shape: [, height, width] }, { scale }) =>
    slopes.map((slope) => slope.map((value, at) => value * scale.values[Math.floor(at / (height * width))])),
  conv: (slopes, { shape: [channels, height, width] }, { weight, stride, groups }) => {
    const [outs, ins, high, wide] = weight.shape,
      size = ins * high * wide,
      share = outs / groups,
      positions = slopes[0].length / outs,
      broad = Math.floor((width - wide) / stride[1]) + 1;
    const results = slopes.map(() => new Float64Array(channels * height * width));
    for (let group = 0; group < groups; group++) {
      const of = (out) => group * share + out;
      const upright = Float64Array.from({ length: size * share }, (_, at) => {
        const k = Math.floor(at / share);
        return weight.values[of(at % share) * size + k];
      });
      const touched = slopes.map((slope) => slope.subarray(of(0) * positions, of(share) * positions).some((value) => value));
      slopes.forEach((slope, child) => {
        if (!touched[child]) return;
        const rows = Float64Array.from({ length: positions * share }, (_, at) => {
          return slope[of(at % share) * positions + Math.floor(at / share)];
        });
        const columns = products(rows, upright, share, new Float64Array(positions));
        let at = 0;
        for (let position = 0; position < positions; position++) {
          const [y, x] = [Math.floor(position / broad) * stride[0], (position % broad) * stride[1]];
          for (let channel = group * ins; channel < (group + 1) * ins; channel++) {
            for (let row = 0; row < high; row++) {
              const start = (channel * height + y + row) * width + x;
              for (let column = 0; column < wide; column++) results[child][start + column] += columns[at++];
            }
          }
        }
      });
    }
    return results;
  },
};

// Convolved with a normal distribution, pixels beyond the border as the nearest one inside.
function blurred(values, height, width) {
  const reach = Math.ceil(3 * BLUR),
    weights = Array.from({ length: 2 * reach + 1 }, (_, at) => Math.exp(-((at - reach) ** 2) / (2 * BLUR * BLUR)));
  const total = weights.reduce((a, b) => a + b),
    inside = (at, size) => Math.min(size - 1, Math.max(0, at));
  const along = (read) =>
    Float64Array.from({ length: height * width }, (_, at) => {
      const [y, x] = [Math.floor(at / width), at % width];
      return weights.reduce((sum, weight, k) => sum + weight * read(y, x, k - reach), 0) / total;
    });
  const rows = along((y, x, by) => values[y * width + inside(x + by, width)]);
  return along((y, x, by) => rows[inside(y + by, height) * width + x]);
}
