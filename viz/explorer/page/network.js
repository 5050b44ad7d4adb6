// The network in the page: pixels -> stem -> primary capsules u -> votes u_hat -> routing -> v -> decoder.
// It computes what graphcaps/images/models/capsnet.py does. Vectors of a kind lie one behind another:
// child i's capsule at i * dim. Numbers are doubles: engines convert every float32 they touch. Most of the time goes into
// sums of products. They run in WebAssembly with floats, four at a time, or in JavaScript where a browser lacks it.

import { Layer, squashed } from "./layer.js";

// Bytes of a module with one function, f(a0, a1, b0, b1, b2, b3, length, out), by the WebAssembly specification. Of six
// rows of `length` bytes in memory it puts the eight products of a row a with a row b to `out`, four partial sums each.
function moduleBytes() {
  const LENGTH = 6, OUT = 7, at = 8, sums = 9, x0 = 17, x1 = 18, y = 19; // its locals, behind those of the six rows
  const leb = (n) => (n < 128 ? [n] : [(n % 128) + 128, ...leb(Math.floor(n / 128))]),
    section = (id, content) => [id, ...leb(content.length), ...content],
    get = (local) => [0x20, local],
    set = (local) => [0x21, local],
    load = (row) => [...get(row), ...get(at), 0x6a, 0xfd, 0, 4, 0], // i32.add, v128.load
    product = (x) => [...get(x), ...get(y), 0xfd, 0xe6, 1], // f32x4.mul
    addTo = (sum, value) => [...get(sum), ...value, 0xfd, 0xe4, 1, ...set(sum)], // f32x4.add
    store = (n) => [...get(OUT), ...get(sums + n), 0xfd, 0x0b, 4, 16 * n]; // v128.store
  const step = [...load(0), ...set(x0), ...load(1), ...set(x1)];
  for (let n = 0; n < 4; n++) {
    step.push(...load(2 + n), ...set(y), ...addTo(sums + n, product(x0)), ...addTo(sums + 4 + n, product(x1)));
  }
  step.push(...get(at), 0x41, 16, 0x6a, 0x22, at); // at += 16
  const loop = [0x03, 0x40, ...step, ...get(LENGTH), 0x49, 0x0d, 0, 0x0b]; // repeat while at < length
  const locals = [2, 1, 0x7f, 11, 0x7b], // one i32, eleven v128
    body = [...locals, ...loop, ...[0, 1, 2, 3, 4, 5, 6, 7].flatMap(store), 0x0b];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 8, ...Array(8).fill(0x7f), 0]), // of eight i32, and gives nothing
    ...section(2, [1, 1, 0x6d, 1, 0x6d, 2, 0, 1]), // memory m.m
    ...section(3, [1, 0]),
    ...section(7, [1, 1, 0x66, 0, 0]), // f
    ...section(10, [1, ...leb(body.length), ...body]),
  ]);
}

// A function as `products` of network.js, or null where the browser or a host's policy doesn't allow it.
function productsByLanes() {
  let f, memory;
  try {
    memory = new WebAssembly.Memory({ initial: 1 });
    ({ f } = new WebAssembly.Instance(new WebAssembly.Module(moduleBytes()), { m: { m: memory } }).exports);
  } catch {
    return null;
  }
  return (rows, others, K, start) => {
    const M = rows.length / K,
      N = others.length / K,
      wide = 4 * Math.ceil(K / 4), // zeros fill a row up
      [a, b, out] = [0, M * wide, (M + N) * wide],
      missing = 4 * (out + 32) - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    const floats = new Float32Array(memory.buffer);
    const lay = (values, to) => {
      if (wide === K) return floats.set(values, to);
      floats.fill(0, to, to + (values.length / K) * wide);
      for (let at = 0; at < values.length; at += K, to += wide) floats.set(values.subarray(at, at + K), to);
    };
    lay(rows, a);
    lay(others, b);
    const result = new Float64Array(M * N),
      row = (from, n, count) => 4 * (from + Math.min(n, count - 1) * wide);
    for (let m = 0; m < M; m += 2) {
      for (let n = 0; n < N; n += 4) {
        const rowsOf = [row(b, n, N), row(b, n + 1, N), row(b, n + 2, N), row(b, n + 3, N)];
        f(row(a, m, M), row(a, m + 1, M), ...rowsOf, 4 * wide, 4 * out);
        for (let i = 0; i < Math.min(2, M - m); i++) {
          for (let j = 0; j < Math.min(4, N - n); j++) {
            const at = out + 16 * i + 4 * j;
            result[(m + i) * N + n + j] = floats[at] + floats[at + 1] + floats[at + 2] + floats[at + 3] + start[m + i];
          }
        }
      }
    }
    return result;
  };
}

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

// rows (M, K) times the transpose of others (N, K), from the numbers in start (M,): (M, N).
function plainProducts(rows, others, K, start) {
  const N = others.length / K;
  return Float64Array.from({ length: (rows.length / K) * N }, (_, at) => {
    const row = Math.floor(at / N);
    let sum = start[row];
    for (let k = 0, a = row * K, b = (at % N) * K; k < K; k++, a++, b++) sum += rows[a] * others[b];
    return sum;
  });
}

const products = productsByLanes() ?? plainProducts;

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

  // u of the primary capsules, types outermost.
  primaryCapsules(pixels) {
    let map = { values: Float64Array.from(pixels, (value) => value / 255), shape: this.shape };
    for (const step of this.stem) map = STEPS[step.kind](map, step);
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

  // u_hat of the last layer, routed to by the layers before it as in training.
  votes(pixels) {
    let u = this.primaryCapsules(pixels);
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
