// Everything that changes while a page is open, and the numbers of the newest answer by edge, child and parent. Every
// module reads it here, and nothing is stored twice.

// The moment: epoch k and iteration r, from 0, in fractions while time plays. Then the image, and what is chosen.
export const now = { k: 0, r: 0, playing: null, n: 0, screen: null, hovered: null, term: null, all: false, pinned: {} };

// No choice: on the graph's page a node, another one and a capsule can be chosen too.
export const NOTHING = { parent: null, child: null, node: null, other: null, capsule: null, picking: false };
Object.assign(now, NOTHING);

export const state = {
  trace: null, // the data shown, in the format of data.py
  image: null, // its image, unpacked
  look: null, // the colours of the page and of the parents
  graph: null, // the Ribbons, or on the graph's page the NodeGraph
  curve: null, // the axes of the entropy curve
  parentShown: null, // the parent that the drawers explain: the chosen one or the longest
  order: null, // the children and the columns of parents, from top to bottom
  photo: null, // the image as a canvas
  layer: null, // the last layer of the network, or the layer of the graph's page
  routed: null, // the newest answer: u_hat (E, D) and the states of all rounds
  explained: null, // the edge, child and parent that the open drawer explains
  held: {}, // {child: the parent it was pulled to, or LET_GO}
  pulledLast: null, // a child
  unpulled: null, // the newest answer without pulls
  desk: null, // the Desk, on a page with a network
  shown: null, // the test image on the desk
  questions: 0, // how many the network was asked
  asked: null, // the question that `routed` answers: {count, data: pixels, label, page, moment}
  silences: () => false, // whether a click on a child silences it, as it does on a screen of the article
  decoder: null, // pictures by the network's decoder: {portraits, pictureOf, painted} of behind.js
};

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
