// The network in the page: pixels -> stem -> primary capsules u -> votes u_hat -> routing -> v -> decoder.
// It computes what graphcaps/images/models/capsnet.py does. Vectors of a kind lie one behind another:
// child i's capsule at i * dim. Numbers are doubles: engines convert every float32 they touch. lanes.js has convolutions faster.

import { productsByLanes } from "./lanes.js";
import { Layer, squashed } from "./layer.js";

const READERS = {
  float16: (data) => Float64Array.from(new Uint16Array(data.buffer), fromHalf),
  float32: (data) => Float64Array.from(new Float32Array(data.buffer)),
  int8: (data) => new Int8Array(data.buffer),
  int32: (data) => new Int32Array(data.buffer),
};

// The number that 16 bits of IEEE 754 stand for.
function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? (fraction ? NaN : sign * Infinity) : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// The network's data, with every {type, shape, data} in it, whose data are bytes, as {shape, values}.
function decoded(found) {
  if (Array.isArray(found)) return found.map(decoded);
  if (found === null || typeof found !== "object") return found;
  if (found.type in READERS && found.data instanceof Uint8Array) {
    const values = READERS[found.type](found.data);
    if (values.length !== found.shape.reduce((a, b) => a * b, 1)) throw new Error("an array is cut short");
    return { shape: found.shape, values };
  }
  return Object.fromEntries(Object.entries(found).map(([name, value]) => [name, decoded(value)]));
}

// rows (M, K) times the transpose of others (N, K), from the numbers in start (M,): (M, N). Two by four sums at a time
// stay in registers.
function plainProducts(rows, others, K, start) {
  const M = rows.length / K,
    N = others.length / K,
    result = new Float64Array(M * N);
  for (let m = 0; m < M; m += 2) {
    const a0 = m * K,
      a1 = Math.min(m + 1, M - 1) * K;
    for (let n = 0; n < N; n += 4) {
      const [b0, b1, b2, b3] = [n, n + 1, n + 2, n + 3].map((row) => Math.min(row, N - 1) * K);
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      for (let k = 0; k < K; k++) {
        const x0 = rows[a0 + k], x1 = rows[a1 + k];
        const y0 = others[b0 + k], y1 = others[b1 + k], y2 = others[b2 + k], y3 = others[b3 + k];
        s00 += x0 * y0;
        s01 += x0 * y1;
        s02 += x0 * y2;
        s03 += x0 * y3;
        s10 += x1 * y0;
        s11 += x1 * y1;
        s12 += x1 * y2;
        s13 += x1 * y3;
      }
      const sums = [[s00, s01, s02, s03], [s10, s11, s12, s13]];
      for (let i = 0; i < Math.min(2, M - m); i++) {
        for (let j = 0; j < Math.min(4, N - n); j++) result[(m + i) * N + n + j] = sums[i][j] + start[m + i];
      }
    }
  }
  return result;
}

export const products = productsByLanes() ?? plainProducts;

// A map {values, shape: [channels, height, width]}, convolved without padding.
function convolved({ values, shape: [channels, height, width] }, { weight, bias, stride, groups }) {
  const [outs, ins, high, wide] = weight.shape,
    [tall, broad] = [(height - high) / stride[0], (width - wide) / stride[1]].map((steps) => Math.floor(steps) + 1);
  const size = ins * high * wide,
    windows = (from) => {
      const result = new Float64Array(tall * broad * size);
      let at = 0;
      for (let y = 0; y < tall; y++) {
        for (let x = 0; x < broad; x++) {
          for (let channel = from; channel < from + ins; channel++) {
            for (let row = 0; row < high; row++) {
              const start = (channel * height + y * stride[0] + row) * width + x * stride[1];
              for (let column = 0; column < wide; column++) result[at++] = values[start + column];
            }
          }
        }
      }
      return result;
    };
  const share = outs / groups,
    result = new Float64Array(outs * tall * broad);
  for (let group = 0; group < groups; group++) {
    const part = weight.values.subarray(group * share * size, (group + 1) * share * size);
    const sums = products(part, windows(group * ins), size, bias.values.subarray(group * share));
    result.set(sums, group * share * tall * broad);
  }
  return { values: result, shape: [outs, tall, broad] };
}

const STEPS = {
  conv: convolved,
  relu: ({ values, shape }) => ({ shape, values: values.map((value) => Math.max(0, value)) }),
  // batch normalisation of a trained network: a number for each channel times the value, and one more
  affine: ({ values, shape }, { scale, shift }) => {
    const size = shape[1] * shape[2],
      channel = (at) => Math.floor(at / size);
    return { shape, values: values.map((value, at) => value * scale.values[channel(at)] + shift.values[channel(at)]) };
  },
};

export class Network {
  // `data` is what graphcaps/explore/network.py writes.
  constructor(data) {
    const { layers, ...rest } = decoded(data);
    Object.assign(this, rest);
    this.layers = layers.map((layer) => new Layer(layer));
    this.last = this.layers.at(-1);
  }

  // u of the primary capsules, types outermost; `maps`, where given, gets what went into each step.
  primaryCapsules(pixels, maps = []) {
    let map = { values: Float64Array.from(pixels, (value) => value / 255), shape: this.shape };
    for (const step of this.stem) {
      maps.push(map);
      map = STEPS[step.kind](map, step);
    }
    const { dim, types } = this.primary,
      { values } = map,
      size = values.length / (types * dim); // positions
    const s = values.map((_, at) => {
      const d = at % dim,
        child = Math.floor(at / dim);
      return values[(Math.floor(child / size) * dim + d) * size + (child % size)];
    });
    return squashed(s, dim);
  }

  // u_hat of the last layer, routed to by the layers before it as in training; `maps` as above.
  votes(pixels, maps = []) {
    let u = this.primaryCapsules(pixels, maps);
    for (const layer of this.layers.slice(0, -1)) u = layer.route(layer.votes(u)).at(-1).v;
    return this.last.votes(u);
  }

  // uint8 pixels that the decoder makes of one parent's capsule (D,). A row of integers has its own scale.
  decode(parent, capsule) {
    if (!this.decoder) return null;
    const D = capsule.length;
    let x = Float64Array.from(capsule), // the same type for all layers, or the engine is three times slower
      from = parent * D; // the other parents' capsules are zero
    this.decoder.forEach(({ weight, scale, bias }, at) => {
      const [outs, ins] = weight.shape;
      const y = Float64Array.from({ length: outs }, (_, row) => {
        let sum = 0;
        for (let k = 0, w = row * ins + from; k < x.length; k++, w++) sum += weight.values[w] * x[k];
        return sum * scale.values[row] + bias.values[row];
      });
      x = at < this.decoder.length - 1 ? y.map((value) => Math.max(0, value)) : y;
      from = 0;
    });
    return Uint8Array.from(x, (value) => Math.round(255 / (1 + Math.exp(-value))));
  }
}
