// Sums of products in WebAssembly, four numbers at a time: most of a network's time goes there. network.js has the same in
// JavaScript, for browsers without it. The numbers are floats, as PyTorch's are.

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
export function productsByLanes() {
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
