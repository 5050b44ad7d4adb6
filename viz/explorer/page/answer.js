// The network's answer for one image, in the form that data.py gives an image of a trace; and when it is doubtful, by the
// rules of graphcaps/images/models/answers.py.

const MOST_CHILDREN = 120; // shown of a larger graph; more lines would run into one another

// An image as `unpacked` gives it, of an answer's states.
export function computed({ states }, layer, trace, pixels, label, edges = shownEdges(states.at(-1).c, layer)) {
  const { src, dst, children } = layer,
    drawnChildren = new Set(edges.map((e) => src[e])),
    linked = [...Array(children).keys()].filter((i) => !trace.unlinked.includes(i));
  // (k, r) => of(state), computed when it is first read
  const reader = (of, rows = new Map()) => (_, r) => {
    const state = states[r];
    if (!rows.has(state)) rows.set(state, of(state));
    return rows.get(state);
  };
  const taken = (name) => reader((state) => Float64Array.from(edges, (e) => state[name][e])),
    entropy = reader((state) => entropies(state.c, src, children));
  return {
    label,
    src: edges.map((e) => src[e]),
    dst: edges.map((e) => dst[e]),
    order: trace.order.filter((child) => drawnChildren.has(child)),
    pixels,
    c: taken("c"),
    b: taken("b"),
    agreement: taken("agreement"),
    entropy,
    linked,
    meanEntropy: (k, r) => linked.reduce((sum, i) => sum + entropy(k, r)[i], 0) / linked.length,
    lengths: reader((state) => [...state.lengths]),
  };
}

const ANSWERED = ["c", "b", "agreement", "entropy", "meanEntropy", "lengths"];

// A stored image, unpacked, with the answer's numbers in its last epoch: those that the formulas have, and not the bytes
// that stand for them in the trace. `edges` are the image's, in the layer.
export function reanswered(image, answer, layer, trace, edges) {
  const last = trace.epochs.length - 1,
    fresh = computed(answer, layer, trace, image.pixels, image.label, edges);
  const both = (name) => (k, r) => (k === last ? fresh[name](0, r) : image[name](k, r));
  return { ...image, ...Object.fromEntries(ANSWERED.map((name) => [name, both(name)])) };
}

// Indices of the edges shown: all, or those of the children that couple most with each parent in the end.
function shownEdges(last, { src, dst, parents }) {
  const all = [...src.keys()];
  if (new Set(src).size <= MOST_CHILDREN) return all;
  const each = Math.max(1, Math.floor(MOST_CHILDREN / parents)),
    taken = Array(parents).fill(0),
    drawn = new Set();
  for (const e of all.sort((a, b) => last[b] - last[a] || a - b)) if (taken[dst[e]]++ < each) drawn.add(src[e]);
  return [...src.keys()].filter((e) => drawn.has(src[e]));
}

// (I,) -sum c ln c over each child's edges, in nats.
export function entropies(c, src, children) {
  const sums = new Float64Array(children);
  c.forEach((value, e) => value > 0 && (sums[src[e]] -= value * Math.log(value)));
  return sums;
}

// "blank", "short" if only the last of several objects is doubtful, "unlike" the images of training, or "", of pixels in 0 to
// 255, the longest lengths, descending, and the reconstruction.
export function doubtOf({ limits, objects, shape }, pixels, lengths, reconstruction) {
  if (contrastOf(pixels, shape) < limits.blank) return "blank";
  const short = limits.answer !== null && lengths[objects - 1] < limits.answer;
  if (short && lengths[objects - 2] >= limits.answer) return "short";
  const beyond = [
    short,
    limits.other !== null && lengths[objects] > limits.other,
    limits.likeness !== null && reconstruction && correlation(pixels, reconstruction) < limits.likeness,
  ];
  return beyond.some(Boolean) ? "unlike" : "";
}

// In [0, 1]: the largest difference between a lightest and a darkest pixel, over channels.
function contrastOf(pixels, [channels, height, width]) {
  const size = height * width;
  return Math.max(
    ...Array.from({ length: channels }, (_, channel) => {
      const plane = pixels.subarray(channel * size, (channel + 1) * size);
      return (plane.reduce((a, b) => Math.max(a, b)) - plane.reduce((a, b) => Math.min(a, b))) / 255;
    }),
  );
}

// In [-1, 1]; 0 where one of them is of one tone.
function correlation(some, others) {
  const centred = (values) => {
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return Float64Array.from(values, (value) => (value - mean) / 255);
  };
  const [x, y] = [centred(some), centred(others)],
    product = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  return product(x, y) / Math.max(Math.sqrt(product(x, x) * product(y, y)), 1e-6);
}
