// CapsuleConv in the page: features of nodes -> votes along edges -> routing -> capsules of nodes, as the docstring of
// graphcaps/nn/graph_conv.py has them. Edge e goes from node src[e] to node dst[e] and is a child of the layer. Capsule l
// of node n is its parent n * K + l, and the vote of e for it is number e * K + l.

import { Layer, lengthsOf, squashed } from "./layer.js";

// For each edge the number of the one that goes back, or -1: among parallel edges the first goes with the first, as in
// Links.reverse of graphcaps/graph/links.py.
function reversesOf(src, dst) {
  const between = new Map();
  src.forEach((u, e) => {
    const key = `${u} ${dst[e]}`;
    between.set(key, [...(between.get(key) ?? []), e]);
  });
  const back = Int32Array.from(src, () => -1);
  src.forEach((u, e) => {
    const at = between.get(`${u} ${dst[e]}`).indexOf(e);
    back[e] = between.get(`${dst[e]} ${u}`)?.[at] ?? -1;
  });
  return back;
}

// The routing of the edges of all nodes at once: a child has K parents, the capsules of the node it goes to.
class NodeLayer extends Layer {
  constructor({ src, dst, weight }, conv) {
    const { K, D, N, routing, iterations, concentration } = conv,
      votes = [...Array(src.length * K).keys()],
      arrays = { src: votes.map((e) => Math.floor(e / K)), dst: votes.map((e) => dst[Math.floor(e / K)] * K + (e % K)) };
    const [from, to] = [arrays.src, arrays.dst].map((values) => ({ values: Int32Array.from(values) }));
    const weights = { matrix: { values: [] }, weight: { values: [], shape: [0, 0, D] } };
    super({ src: from, dst: to, ...weights, children: src.length, parents: N * K, routing, iterations, concentration });
    Object.assign(this, { conv, ends: { src, dst, weight }, back: reversesOf(src, dst) });
  }

  // (E * K, D): w z.
  votes() {
    const { K, D, z } = this.conv,
      { src, weight } = this.ends,
      size = K * D,
      u_hat = new Float64Array(src.length * size);
    src.forEach((u, e) => {
      for (let k = 0; k < size; k++) u_hat[e * size + k] = weight[e] * z[u * size + k];
    });
    return u_hat;
  }

  // {edge: the parent that it is held by}
  held() {
    const { held, dst } = this.conv.edges;
    return Object.fromEntries([...held.entries()].filter(([, l]) => l !== null).map(([e, l]) => [e, dst[e] * this.conv.K + l]));
  }

  // With `mutual` that of the edge that goes back is added.
  agreement(u_hat, v) {
    const own = super.agreement(u_hat, v),
      { K, mutual } = this.conv;
    return mutual ? own.map((value, at) => value + own[this.back[Math.floor(at / K)] * K + (at % K)]) : own;
  }

  // If votes are compared with the direction of s alone, v is this direction.
  route(u_hat, rounds) {
    const states = super.route(u_hat, rounds, this.routing, this.held());
    if (this.routing === "dynamic") return states;
    return states.map((state) => {
      const lengths = lengthsOf(state.s, this.dim),
        v = state.s.map((value, at) => value / (lengths[Math.floor(at / this.dim)] || 1));
      return { ...state, v, agreement: super.agreement(u_hat, v) };
    });
  }

  // The capsules (K, D) of a node that the layer makes of the sums.
  capsules(s, node) {
    const { K, D, bias, squash } = this.conv,
      factor = this.factor(node),
      means = s.slice(node * K * D, (node + 1) * K * D).map((value, at) => value * factor + (bias ? bias[at] : 0));
    return squash ? squashed(means, D) : means;
  }

  // K / in-degree / f of a node: what makes the sum a mean, and independent of the features' scale. Beliefs aren't sums.
  factor(node) {
    if (this.conv.logits) return 1;
    const { K, normalise } = this.conv,
      f = normalise ? this.usual(node) : 1;
    return f ? K / Math.max(1, this.degree[node * K]) / f : 0;
  }

  // f of a node: the root mean square of the features that come in.
  usual(node) {
    const { src, dst } = this.ends,
      { power, K } = this.conv,
      mean = src.reduce((sum, u, e) => sum + (dst[e] === node ? power[u] : 0), 0) / Math.max(1, this.degree[node * K]);
    return mean > 1e-24 ? Math.sqrt(mean) : 0;
  }
}

export class NodeConv {
  // `data` is what graphcaps/explore/graph_page.py writes.
  constructor(data) {
    const values = (packed) => packed && Float64Array.from(new Float32Array(packed.data.buffer));
    const [N, K, D] = data.z.shape;
    Object.assign(this, data, { N, K, D, z: values(data.z), power: values(data.power), bias: values(data.bias) });
    Object.assign(this, { logits: values(data.logits), likeliest: values(data.likeliest) }); // of a BeliefConv, else undefined
    this.weight = values(data.weight) ?? new Float64Array(data.src.length).fill(1);
    this.reset();
  }

  reset() {
    const { src, dst, weight } = this;
    this.edges = { src: [...src], dst: [...dst], weight: [...weight], number: [...src.keys()], held: src.map(() => null) }; // -1: a new edge; held: by a capsule of its target, or null
  }

  // The edges from u to v, and with `two_way` those back, are there no more.
  cut(u, v) {
    const { src, dst } = this.edges,
      gone = (e) => (src[e] === u && dst[e] === v) || (this.two_way && src[e] === v && dst[e] === u),
      left = [...src.keys()].filter((e) => !gone(e));
    for (const name of Object.keys(this.edges)) this.edges[name] = left.map((e) => this.edges[name][e]);
  }

  // An edge from u to v, and with `two_way` the one back, as far as the page has all that comes in there: one that was
  // cut comes back, a new one has weight 1.
  add(u, v) {
    const ways = this.two_way && u !== v ? [[u, v], [v, u]] : [[u, v]],
      { edges } = this;
    for (const [from, to] of ways.filter(([, to]) => !this.isOutside(to))) {
      const cut = this.src.findIndex((u, e) => u === from && this.dst[e] === to && !edges.number.includes(e));
      edges.src.push(from);
      edges.dst.push(to);
      edges.weight.push(cut < 0 ? 1 : this.weight[cut]);
      edges.number.push(cut);
      edges.held.push(null);
    }
  }

  // A function that brings back the edges of now.
  snapshot() {
    const edges = Object.fromEntries(Object.entries(this.edges).map(([name, values]) => [name, [...values]]));
    return () => (this.edges = edges);
  }

  // Whether a node only sends votes: those that come in are not in the page. Recorded beliefs are about all nodes.
  isOutside(n) {
    return Boolean(this.whole) && !this.whole[n] && !this.mutual && !this.logits;
  }

  // A BeliefConv's rounds are in the data: the logits of each edge's shares, and in place of sums how probable states are.
  recorded(layer) {
    const part = (all, r) => all.subarray((r * all.length) / this.iterations, ((r + 1) * all.length) / this.iterations);
    return Array.from({ length: this.iterations }, (_, r) => {
      const [b, s] = [part(this.logits, r), part(this.likeliest, r)];
      return { b, c: layer.softmax(b), s, v: s, agreement: b };
    });
  }

  route(rounds) {
    const layer = new NodeLayer(this.edges, this);
    if (this.logits) return { layer, states: this.recorded(layer) };
    const u_hat = layer.votes();
    return { layer, u_hat, states: layer.route(u_hat, rounds) };
  }
}
