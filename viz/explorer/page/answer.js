// The network's answer for one image, in the form that data.py gives an image of a trace.

const MOST_CHILDREN = 120, // shown of a larger graph; more lines would run into one another
  BINS = 35;

// An image as `unpacked` gives it. `states` are those of the network's last layer, and `early` those of each epoch
// before; while these aren't known, the readers give `states` for all epochs.
function computed({ states, early = [], saliency = null }, layer, trace, pixels, label, edges = shownEdges(states.at(-1).c, layer)) {
  const { src, dst, children, parents } = layer,
    all = [...early, states], // (K, R)
    degrees = src.reduce((counts, child) => ((counts[child] = (counts[child] ?? 0) + 1), counts), []),
    drawnChildren = new Set(edges.map((e) => src[e])),
    linked = [...Array(children).keys()].filter((i) => !trace.unlinked.includes(i));
  // (k, r) => of(state), computed when it is first read
  const reader = (of, rows = new Map()) => (k, r) => {
    const state = (all[k] ?? states)[r];
    if (!rows.has(state)) rows.set(state, of(state));
    return rows.get(state);
  };
  const every = (read) => all.flatMap((states, k) => states.map((_, r) => read(k, r))),
    taken = (name) => reader((state) => Float64Array.from(edges, (e) => state[name][e]));
  const c = taken("c"),
    entropy = reader((state) => entropies(state.c, src, children)),
    bins = binsOf(all.flat().map(({ c }) => c)),
    withCredit = trace.fields && !saliency && !trace.looks;
  return {
    label,
    src: edges.map((e) => src[e]),
    dst: edges.map((e) => dst[e]),
    edges,
    order: trace.order.filter((child) => drawnChildren.has(child)),
    range: wideRange(...endsOf(every(c))),
    pixels,
    saliency,
    c,
    b: taken("b"),
    agreement: taken("agreement"),
    entropy,
    linked,
    lowest: Math.min(...every(entropy).map((row) => linked.reduce((least, i) => Math.min(least, row[i]), Infinity))),
    credit: withCredit ? reader((state) => creditOf(state, src, dst, trace.fields, parents)) : null,
    meanEntropy: (k, r) => linked.reduce((sum, i) => sum + entropy(k, r)[i], 0) / linked.length,
    largest: reader((state) => endsOf([state.c])[1]),
    choosing: reader(({ c }) => c.reduce((count, value, e) => count + (value > 0.5 && degrees[src[e]] > 1), 0)),
    aboveHalf: reader((state) => state.c.reduce((count, value) => count + (value > 0.5), 0)),
    lengths: reader(({ lengths }) => [...lengths]),
    bins,
    counts: reader((state) => countedInBins(state.c, dst, bins, parents)),
  };
}

const ANSWERED = ["c", "b", "agreement", "entropy", "meanEntropy", "largest", "aboveHalf", "choosing", "lengths"];

// A stored image, unpacked, with the answer's numbers in its last epoch: those that the formulas have, and not the bytes
// that stand for them in the trace. `edges` are the image's, in the layer.
function reanswered(image, answer, layer, trace, edges) {
  const last = trace.epochs.length - 1,
    fresh = computed(answer, layer, trace, image.pixels, image.label, edges);
  const both = (name) => (k, r) => (k === last ? fresh[name](0, r) : image[name](k, r));
  return { ...image, edges, ...Object.fromEntries(ANSWERED.map((name) => [name, both(name)])) };
}

// The smallest and the largest of all numbers in some rows of couplings.
function endsOf(rows) {
  let [low, high] = [1, 0];
  for (const row of rows) for (const value of row) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
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
function entropies(c, src, children) {
  const sums = new Float64Array(children);
  c.forEach((value, e) => value > 0 && (sums[src[e]] -= value * Math.log(value)));
  return sums;
}

// From the smallest to the largest coupling, or from 0 where that is near.
function binsOf(couplings) {
  const [least, high] = wideRange(...endsOf(couplings)),
    low = least < 0.3 * high ? 0 : least;
  return Array.from({ length: BINS + 1 }, (_, at) => low + ((high - low) * at) / BINS);
}

// (J, BINS): how many couplings lie in each bin; the last one holds both of its ends.
function countedInBins(c, dst, bins, parents) {
  const counts = new Float64Array(parents * BINS),
    step = (bins[BINS] - bins[0]) / BINS;
  c.forEach((value, e) => counts[dst[e] * BINS + Math.min(BINS - 1, Math.max(0, Math.floor((value - bins[0]) / step)))]++);
  return counts;
}

// (J * F): over the children of each place, the sum of c <u_hat, v>, what they give to a parent's length; 0 below.
function creditOf({ c, agreement }, src, dst, { places, of }, parents) {
  const sums = new Float64Array(parents * places.length);
  c.forEach((value, e) => (sums[dst[e] * places.length + of[src[e]]] += value * agreement[e]));
  return sums.map((value) => Math.max(0, value));
}
