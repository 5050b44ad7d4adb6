// Everything that changes while a page is open. Every module reads it here, and nothing is stored twice.

// The moment: epoch k and iteration r, from 0, in fractions while time plays. Then the image, and what is chosen.
export const now = { k: 0, r: 0, playing: null, n: 0, hovered: null, all: false, pinned: {} };

// No choice: on the graph's page a node, another one and a capsule can be chosen too.
export const NOTHING = { parent: null, child: null, node: null, other: null, capsule: null, picking: false };
Object.assign(now, NOTHING);

export const state = {
  trace: null, // the data shown, in the format of data.py
  image: null, // its image, unpacked
  look: null, // the colours of the page and of the parents
  graph: null, // the Graph, or on the graph's page the NodeGraph
  curve: null, // the axes of the entropy curve
  parentShown: null, // the parent that the drawers explain: the chosen one or the longest
  fold: null, // the children and parents that are shown
  photo: null, // the image as a canvas
  heat: null, // where its children look
  looks: null, // a picture for each child of where it looks
  layer: null, // the last layer of the network, or the layer of the graph's page
  routed: null, // the newest answer: u_hat (E, D) and the states of all rounds
  explained: null, // the edge, child and parent that the open drawer explains
  held: {}, // {child: the parent it was pulled to, or LET_GO}
  pulledLast: null, // a child
  unpulled: null, // the newest answer without pulls
  desk: null, // the Desk, on a page with a network
  shown: null, // the test image on the desk
  questions: 0, // how many the network was asked
  asked: null, // the question that `routed` answers: {count, data: pixels, label, page, moment, saliency}
  decoder: null, // pictures by the network's decoder: {portraits, pictureOf, painted} of decoded.js
};
