// Routing of votes along the edges of a layer of capsules, as graphcaps/algorithms/ has it. Vectors of a kind lie one behind
// another: parent j's at j * dim. Numbers are doubles: engines convert every float32 they touch.

export const LET_GO = -1; // the parent of a child that votes for none
const HOLD = 100; // the prior logit of an edge that holds its child

export function lengthsOf(vectors, dim) {
  return Float64Array.from({ length: vectors.length / dim }, (_, n) => {
    let sum = 0;
    for (let d = 0; d < dim; d++) sum += vectors[n * dim + d] ** 2;
    return Math.sqrt(sum);
  });
}

// Equation 1: n / (1 + n^2) times each vector, n its length.
export function squashed(vectors, dim) {
  const lengths = lengthsOf(vectors, dim);
  return vectors.map((value, at) => {
    const n = lengths[Math.floor(at / dim)];
    return (value * n) / (1 + n * n);
  });
}

// A layer of capsules: edge e goes from child src[e] to parent dst[e], and carries matrix[e] of `weight` (M, P, D).
export class Layer {
  constructor({ src, dst, matrix, weight, prior, places, ...rest }) {
    Object.assign(this, rest, { src: src.values, dst: dst.values, matrix: matrix.values, weight: weight.values });
    Object.assign(this, { rows: weight.shape[1], dim: weight.shape[2], edges: this.src.length });
    this.prior = prior ? prior.values : new Float64Array(this.edges);
    this.places = places && places.values;
    this.degree = new Float64Array(this.parents);
    for (const parent of this.dst) this.degree[parent]++;
  }

  // u_hat (E, D) of children u (I, P). With places, [u, row u, column u] takes the place of u.
  votes(u) {
    const { src, matrix, weight, rows, dim, places } = this,
      P = places ? rows / 3 : rows,
      u_hat = new Float64Array(this.edges * dim);
    for (let e = 0; e < this.edges; e++) {
      const child = src[e];
      for (let row = 0; row < rows; row++) {
        const factor = row < P ? 1 : places[2 * child + (row < 2 * P ? 0 : 1)],
          value = factor * u[child * P + (row % P)],
          from = (matrix[e] * rows + row) * dim;
        for (let d = 0; d < dim; d++) u_hat[e * dim + d] += value * weight[from + d];
      }
    }
    return u_hat;
  }

  // c (E,): softmax of b over each child's edges.
  softmax(b) {
    const largest = new Float64Array(this.children).fill(-Infinity);
    b.forEach((value, e) => (largest[this.src[e]] = Math.max(largest[this.src[e]], value)));
    const total = new Float64Array(this.children);
    const raised = b.map((value, e) => Math.exp(value - largest[this.src[e]]));
    raised.forEach((value, e) => (total[this.src[e]] += value));
    return raised.map((value, e) => value / total[this.src[e]]);
  }

  // s (J, D): what comes in at each parent, the votes times c.
  sums(u_hat, c) {
    const { dim, dst } = this,
      s = new Float64Array(this.parents * dim);
    for (let e = 0; e < this.edges; e++) {
      for (let d = 0; d < dim; d++) s[dst[e] * dim + d] += c[e] * u_hat[e * dim + d];
    }
    return s;
  }

  // (E,): the inner product of each vote with its parent's vector.
  agreement(u_hat, v) {
    const { dim, dst } = this;
    return Float64Array.from({ length: this.edges }, (_, e) => {
      let sum = 0;
      for (let d = 0; d < dim; d++) sum += u_hat[e * dim + d] * v[dst[e] * dim + d];
      return sum;
    });
  }

  // kappa / rho of each parent: rho is the root of the mean square of its votes' lengths.
  concentrationPerLength(u_hat) {
    const squares = new Float64Array(this.parents);
    u_hat.forEach((value, at) => (squares[this.dst[Math.floor(at / this.dim)]] += value * value));
    return squares.map((square, j) => (square / this.degree[j] > 1e-24 ? this.concentration / Math.sqrt(square / this.degree[j]) : 0));
  }

  // The state of each of `rounds` iterations: b, c and agreement (E,), s and v (J, D), lengths (J,). `held` is {child: parent},
  // by a large prior; the votes of a child that is held by none, LET_GO, become 0 in u_hat.
  route(u_hat, rounds = this.iterations, routing = this.routing, held = {}) {
    const { dim, src, dst } = this,
      prior = this.prior.map((value, e) => value + HOLD * (held[src[e]] === dst[e])),
      states = [];
    let b = prior;
    src.forEach((child, e) => held[child] === LET_GO && u_hat.fill(0, e * dim, (e + 1) * dim));
    if (routing === "attention") {
      const all = this.sums(u_hat, new Float64Array(this.edges).fill(1));
      b = this.agreement(u_hat, all).map((value, e) => prior[e] + value / Math.sqrt(dim));
    }
    const stays = routing === "attention" || routing === "uniform",
      strength = routing === "spherical" && this.concentrationPerLength(u_hat);
    for (let r = 0; r < rounds; r++) {
      const c = this.softmax(b),
        s = this.sums(u_hat, c),
        v = squashed(s, dim),
        agreement = this.agreement(u_hat, v);
      states.push({ b, c, s, v, agreement, lengths: lengthsOf(v, dim) });
      if (stays) return Array(rounds).fill(states[0]);
      if (strength) {
        const lengths = lengthsOf(s, dim),
          mu = s.map((value, at) => {
            const j = Math.floor(at / dim);
            return lengths[j] > 0 ? (strength[j] * value) / lengths[j] : 0;
          });
        b = this.agreement(u_hat, mu).map((value, e) => prior[e] + value);
      } else b = b.map((value, e) => value + agreement[e]);
    }
    return states;
  }
}
