// Words of the graph's page: they replace those of words.js that speak of images, and add others.

import { state } from "./state.js";
import { counted, fixed, sentence, thousands } from "./tools.js";
import { stored } from "./trace.js";
import { KEYS, SHOWN, speak, words } from "./words.js";

speak({
  title(counts, edges) {
    const chosen = counts.map((count, l) => [count, l]).filter(([count]) => count).sort(([a], [b]) => b - a),
      texts = chosen.slice(0, SHOWN).map(([count, l], at) => `${at ? thousands(count) : counted(count, "edge", "edges")} to ${l}`),
      undecided = edges - counts.reduce((sum, count) => sum + count, 0),
      others = chosen.slice(SHOWN).reduce((sum, [count]) => sum + count, 0);
    if (others) texts.push(`${thousands(others)} to others`);
    if (chosen.length && undecided) texts.push(`${thousands(undecided)} undecided`);
    return `Which capsule? ${texts.join(", ") || `${counted(edges, "edge", "edges")}, all undecided`}`;
  },
  lead: (K, what) => `Along each edge a node sends its neighbour a vote for each of ${K} capsules. ${words.leads[what]}`,
  leads: {
    start: "All edges start equal, in round 1; votes that agree pull harder in the next one.",
    grow: "Votes that agree pull harder in the next round: their lines grow. Colour: the capsule that gets most.",
    uniform: "Uniform routing leaves them equal in all rounds.",
    given: "Here votes agree alike with all of them: the concentration is low, or nothing asked for several causes. Try unit_votes=True and Spherical(concentration=4.0), or explore_graph(2, graph), which trains a layer on hidden edges.",
    unit: "Here votes agree alike with all of them: edges may have more causes, or one. Try another number of capsules.",
  },
  layer: ({ routing, iterations, unit_votes: unit, mutual }) =>
    [`${routing} routing, ${counted(iterations, "round", "rounds")}`, ...(unit ? ["unit votes"] : []), ...(mutual ? ["mutual"] : [])].join(", "),
  size: (nodes, edges) => `${counted(nodes, "node", "nodes")}, ${counted(edges, "edge", "edges")}`,
  sample: ({ edges, around }, shown, whole, mutual) =>
    `${thousands(shown)} of ${thousands(edges)} edges: all that arrive at ${counted(whole, "node", "nodes")}, ` +
    `${around === null ? "those of most edges" : `those around ${around}`}. ` +
    (mutual ? "Small nodes lack edges, and what they and their neighbours get is off." : "Small nodes send votes; what arrives at them isn't in the page."),
  nodeWords: ["node", "nodes"],
  edgeWords: ["edge", "edges"],
  none: "none",
  picking: "Click on a node in the graph.",
  chooseTwo: "Choose an edge to cut it, or two nodes to join them.",
  outside: (name) => `What arrives at ${name} isn't in the page, so no edge can be added there.`,
  cut: (one, other) => `Cut ${one} → ${other}`,
  cutBoth: (one, other) => `Cut ${one} – ${other}`,
  add: (one, other) => `Add ${one} → ${other}`,
  addBoth: (one, other) => `Add ${one} – ${other}`,
  features: (name) => `Features of ${name}`,
  towards: (name) => `like ${name}`,
  feature: (f) => `feature ${f}`,
  unchanged: "Nothing is changed.",
  goesTo: "Goes",
  changed: (cut, added, moved, held, both) => {
    const parts = [cut && `${counted(cut, "edge", "edges")} cut`, added && `${added} added`, moved && `features of ${counted(moved, "node", "nodes")} moved`, held && `${counted(held, "edge", "edges")} held`];
    return `${sentence(parts.filter(Boolean).join(", "))}.${both && cut + added > 1 ? " Each line is two edges, one per direction." : ""}`;
  },
  turned: (n, what) => (n ? ` ${counted(n, "edge is", "edges are")} ${what} now.` : ""),
  rerouted: (count, names, undecided, decided) =>
    (count ? ` ${counted(count, "edge goes", "edges go")} to another capsule than before, outlined: ${names}` : " No edge goes to another capsule.") +
    words.turned(undecided, "undecided") + words.turned(decided, "decided"),
  parent: "capsule",
  child: (e) => `${stored.names[state.layer.ends.src[e]]} → ${stored.names[state.layer.ends.dst[e]]}`,
  tag: (e) => words.child(e),
  capsule: (l) => `capsule ${l}`,
  capsuleOf: (l, node) => `capsule ${l} of ${node}`,
  capsulesOfAll: "Decided edges by capsule",
  capsulesOf: (name) => `Capsules of ${name}`,
  oneChild: "A node or an edge",
  chooseChild: "Choose a node in the graph to see what arrives there, or an edge to see why it goes to its capsule.",
  arrive: (name, n) => `${counted(n, "edge arrives", "edges arrive")} at ${name}`,
  noneArrives: "Without in-edges its capsules are those of the bias. CapsuleConv takes such graphs with allow_zero_in_degree=True.",
  notHere: "What arrives at this node isn't in the page.",
  class: (name) => `Class ${name}. `,
  output: (formula) => `Capsule l is ${formula}; s: the sum of c times vote.`,
  head: (two) => (two ? "Lines: at each end what arrives there" : "Arrows: votes"),
  graphLabel: (nodes, edges, chosen) => `Graph of ${nodes} and ${edges}. Up and down choose a node.${chosen}`,
  isSelected: (name) => ` ${name} is selected.`,
  moment: (r) => `Round ${r}`,
  entropyHead: "How undecided the edges are",
  childWord: "edge",
  strongestWith: () => "",
  subject: (edge, how, parent) => `Edge ${edge}, and ${parent}. `,
  vote: (name, unit, weight) =>
    `Its vote û is the features of ${name} times W${unit ? ", brought to length 1" : ""}${weight === 1 ? "" : `, times the edge's weight ${fixed(weight, 2)}`}.`,
  plane: (name, iterations) =>
    `To the right is along ${name} as it is after ${counted(iterations, "round", "rounds")}, up is across ` +
    `it, where votes differ most. The stronger an arrow, the larger its coupling. The thick one is what they are compared with; ` +
    `dashed: length 1. Dotted: `,
  lengthIs: (name, length) => name,
  meanAngle: (angle, first) => `the mean angle between votes and capsule, weighed by coupling and length: ${angle}${first && `, in round 1 ${first}`}.`,
  replaced: (b, r) => `It replaces b, which was ${b}: b of round ${r + 2}. κ is the concentration, ρ the usual length of votes for this capsule.`,
  inPlane: (head, chosen, angle) => `${head} in the plane. Up and down choose an edge.${chosen} ${angle}`,
  lines: { softmax: "softmax", sum: "sum", squash: "squash", output: "output", agreement: "agreement" },
  ofBack: (edge) => `that of ${edge}`,
  bothWays: (own, edge, other) => `With mutual=True it is this edge's own ${own} and that of ${edge}, ${other}.`,
  reading: [
    ["A line", "joins two nodes. At each end it shows what arrives there: the capsule of this node that the other one goes to most, by colour, and the coupling c, by width and strength. Grey: undecided. An arrow is an edge that has no other one back. A ring is a node's edge to itself."],
    ["Pull a line", "to another node, and its votes go there; to a capsule in the list, and it goes there alone; or let it go where nothing is, and it is cut. Undo takes it back."],
    ["A round", "of routing turns logits b into couplings (a softmax over the capsules of the edge's target), adds up the votes at each node, and makes new logits from how well votes agree with the sums. In the first all couplings are equal."],
    ["Changes", "are routed at once, in all rounds. A node depends on the edges that arrive there alone, so what you change shows at the neighbours; with mutual routing further away."],
    ["Entropy", "is high while an edge spreads over all capsules and 0 when it has chosen one."],
    ["Keys", `${KEYS[0]} ${KEYS[1]} round, ${KEYS[3]} play, ${KEYS[4]} to the graph, where ${KEYS[5]} ${KEYS[6]} choose a node and + − zoom, ${KEYS[7]} show all. The wheel zooms with Ctrl, and an enlarged graph is moved by dragging an empty place. With ${KEYS[2]} a click chooses the second node.`],
  ],
  terms: {
    parent: ["capsule", "A capsule is a vector that a node has; each node has as many, and each stands for one kind of neighbour."],
    child: ["edge", "An edge goes from a node that votes to a node that is voted for."],
    vote: ["vote", "A vote û is what a node sends along an edge to one capsule: its features times a learned matrix."],
    logit: ["logit", "From the logits b of an edge its couplings are made: the larger beside the others, the more."],
    coupling: ["coupling", "A coupling c, from 0 to 1, is how much of an edge goes to a capsule; those of one edge sum to 1."],
    agreement: ["agreement", "Agreement is the inner product of a vote and its capsule: large where they point the same way."],
    entropy: ["entropy", "Entropy −Σ c ln c of an edge is 0 when it has chosen one capsule and largest when all its couplings are equal."],
    iteration: ["round", "A round of routing, or iteration: couplings from logits, sums from couplings, new logits from agreement."],
    routing: ["routing", "Routing decides to which capsules of a node the votes of its neighbours go."],
    squash: ["squash", "Squashing keeps a vector's direction and makes its length n into n² / (1 + n²), which is below 1."],
    output: ["output", "What the layer gives for a node: the mean of what arrived, with the bias added, squashed."],
  },
  why: "Why an edge goes to its capsule",
  aVote: `<h2>Votes</h2>
    <p>The page computes a <b>CapsuleConv</b>, a graph convolution by routing, with the weights that it was given. A graph
    convolution takes the mean of what a node's neighbours send. This one has several capsules for it, and each neighbour
    sends a vote to each of them.</p>`,
  anAgreement: `<h2>Agreement</h2>
    <p>To a capsule where the votes of other neighbours point the same way as its own, a neighbour gives more. That it
    goes there says only that its votes agree with those of others there, not why it is a neighbour.</p>`,
  theCompetition: `<h2>Competition</h2>
    <p>Each neighbour divides itself: what one capsule gains, the others lose. The page shows one layer. What a layer
    before it would make of a changed edge isn't computed: features are those that the layer was called with.</p>`,
});
