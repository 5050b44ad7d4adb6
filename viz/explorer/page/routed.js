// The numbers of the newest answer, by edge, child and parent.

import { state } from "./state.js";

export function dot(x, y) {
  return x.reduce((sum, value, d) => sum + value * y[d], 0);
}

export function lengthOf(x) {
  return Math.sqrt(dot(x, x));
}

let numbered = { layer: null, edges: null }; // a layer, and its edges by child and parent

// The edge from a child to a parent, or undefined.
export function edgeTo(parent, child) {
  const place = (e) => state.layer.src[e] * state.layer.parents + state.layer.dst[e];
  if (numbered.layer !== state.layer) numbered = { layer: state.layer, edges: new Map([...state.layer.src.keys()].map((e) => [place(e), e])) };
  return numbered.edges.get(child * state.layer.parents + parent);
}

export function voteOf(e) {
  return state.routed.u_hat.subarray(e * state.layer.dim, (e + 1) * state.layer.dim);
}

export function parentAt(r, parent) {
  return state.routed.states[r].v.subarray(parent * state.layer.dim, (parent + 1) * state.layer.dim);
}

export function edgesFrom(child) {
  return [...Array(state.layer.parents).keys()].map((j) => edgeTo(j, child)).filter((e) => e !== undefined);
}

// The sum that comes in at a parent in an iteration, s (D,), with weights c, or of all votes with 1.
export function sumAt(parent, c = null) {
  const s = new Float64Array(state.layer.dim);
  state.layer.dst.forEach((j, e) => j === parent && voteOf(e).forEach((value, d) => (s[d] += (c ? c[e] : 1) * value)));
  return s;
}

// kappa / rho of a parent, of spherical routing.
export function strengthOf(parent) {
  let [squares, count] = [0, 0];
  state.layer.dst.forEach((j, e) => {
    if (j !== parent) return;
    squares += dot(voteOf(e), voteOf(e));
    count++;
  });
  return squares > 1e-24 * count ? state.layer.concentration / Math.sqrt(squares / count) : 0;
}
