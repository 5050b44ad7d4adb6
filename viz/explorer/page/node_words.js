// The words of the graph's page.

import { state } from "./state.js";
import { counted, fixed, sentence, thousands } from "./tools.js";
import { stored } from "./trace.js";
import { KEYS, SHOWN, words } from "./words.js";

Object.assign(words, {
  title(counts, edges, causes) {
    const chosen = counts.map((count, l) => [count, l]).filter(([count]) => count).sort(([a], [b]) => b - a),
      cause = (l) => (causes[l] ? ` (${causes[l]})` : ""),
      texts = chosen.slice(0, SHOWN).map(([count, l], at) => `${at ? thousands(count) : counted(count, "edge", "edges")} to ${l}${cause(l)}`),
      undecided = edges - counts.reduce((sum, count) => sum + count, 0),
      others = chosen.slice(SHOWN).reduce((sum, [count]) => sum + count, 0);
    if (others) texts.push(`${thousands(others)} to others`);
    if (chosen.length && undecided) texts.push(`${thousands(undecided)} undecided or by chance`);
    return `Which capsule? ${texts.join(", ") || `${counted(edges, "edge", "edges")}, all undecided`}`;
  },
  noMore: "Edges choose capsules no more than in a random graph with these degrees",
  lead: (K, what) => `Along each edge, a node sends its neighbour a vote for each of ${K} capsules. ${words.leads[what]}`,
  leads: {
    start: "All edges start equal, in round 1. Votes that agree pull harder in the next round.",
    grow: "Votes that agree pull harder in the next round, and their lines grow. A line has the colour of the capsule that receives most of it.",
    uniform: "Uniform routing leaves the couplings equal in all rounds.",
    grey: "All lines are grey, because another training gives them to other capsules.",
  },
  // What random graphs show, beside the numbers of the graph, which come first.
  chance: ({ chosen: [own, ...random], found }, agrees, edges) => {
    const span = (numbers) => (Math.min(...numbers) === Math.max(...numbers) ? thousands(numbers[0]) : `${thousands(Math.min(...numbers))} to ${thousands(Math.max(...numbers))}`),
      percent = found.map((share) => Math.round(100 * share));
    return agrees
      ? `${thousands(own)} of ${counted(edges, "edge", "edges")} choose a capsule that another training agrees with. In ${random.length} random graphs ` +
          `with the same degrees, trained alike, ${span(random)} do. Of edges kept from training, ${percent[0]} % score above a random pair, in random graphs ${span(percent.slice(1))} %.`
      : `${thousands(own)} of ${counted(edges, "edge", "edges")} choose a capsule. In ${random.length} random graphs with the same degrees and features, ` +
          `${span(random)} do. If the layer was trained on this graph, it may also have learned its edges.`;
  },
  layer: ({ routing, iterations, unit_votes: unit, mutual }) =>
    [`${routing} routing, ${counted(iterations, "round", "rounds")}`, ...(unit ? ["unit votes"] : []), ...(mutual ? ["mutual"] : [])].join(", "),
  size: (nodes, edges) => `${counted(nodes, "node", "nodes")}, ${counted(edges, "edge", "edges")}`,
  sample: ({ edges, around }, shown, whole, mutual) =>
    `The page has ${thousands(shown)} of ${thousands(edges)} edges, which are all edges that arrive at ${counted(whole, "node", "nodes")}, ` +
    `${around === null ? "those with the most edges" : `those around ${around}`}. ` +
    (mutual ? "Small nodes lack edges, so the numbers of these nodes and of their neighbours are not exact." : "Small nodes only send votes. What arrives at them isn't in the page."),
  nodeWords: ["node", "nodes"],
  edgeWords: ["edge", "edges"],
  none: "none",
  picking: "Click a node in the graph.",
  chooseTwo: "Choose an edge to cut it, or two nodes to join them.",
  outside: (name) => `What arrives at ${name} isn't in the page, so you can't add an edge there.`,
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
    (count ? ` ${counted(count, "edge goes", "edges go")} to another capsule than before and ${count === 1 ? "has an outline" : "have outlines"}: ${names}` : " No edge goes to another capsule.") +
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
  noneArrives: "No edge arrives here, so the capsules of this node come from the bias alone. CapsuleConv accepts such graphs with allow_zero_in_degree=True.",
  notHere: "What arrives at this node isn't in the page.",
  class: (name) => `Class ${name}. `,
  output: (formula) => `Capsule l is ${formula}, where s is the sum of the votes, each times its coupling c.`,
  head: (two) => (two ? "Each line shows at its ends what arrives there" : "Arrows show votes"),
  graphLabel: (nodes, edges, chosen) => `Graph of ${nodes} and ${edges}. The keys Up and Down choose a node.${chosen}`,
  isSelected: (name) => ` ${name} is selected.`,
  moment: (r) => `Round ${r}`,
  entropyHead: "How undecided the edges are",
  childWord: "edge",
  strongestWith: () => "",
  subject: (edge, reason, parent) => `This is about the edge ${edge}, and ${parent}. `,
  vote: (name, unit, weight) =>
    `The edge's vote û is the features of ${name} times W${unit ? ", scaled to length 1" : ""}${weight === 1 ? "" : `, times the edge's weight ${fixed(weight, 2)}`}.`,
  thickArrow: () => "what the votes are compared with",
  lengthIs: (name, length) => name,
  ofBack: (edge) => `that of ${edge}`,
  bothWays: (own, edge, other) => `With mutual=True, it is the sum of this edge's own ${own} and ${other} of ${edge}.`,
  reading: [
    ["A line", `joins two nodes. Each end shows what arrives at the node there. The colour is that of the capsule that
      receives the largest share, and the width and strength show this share, the coupling c. A grey line is undecided.
      An arrow is an edge without another one back. A ring is an edge from a node to itself.`],
    ["Pull a line", `to another node, and its votes go there. Pull it to a capsule in the list, and the edge goes to
      this capsule alone. Let it go over an empty place, and the edge is cut. Undo takes the pull back.`],
    ["A round", `of routing has three steps. A softmax over the capsules of the edge's target turns the logits b into
      couplings. Each node adds up its votes. Then new logits are computed from how well the votes agree with the sums.
      All couplings are equal in the first round.`],
    ["Changes", `are routed at once, in all rounds. A node depends only on the edges that arrive there, so a change
      shows at the neighbours. With mutual routing, it also shows further away.`],
    ["Entropy", "is high while an edge spreads its votes over all capsules, and 0 when it has chosen one."],
    ["Keys", `${KEYS[0]} ${KEYS[1]} change the round. ${KEYS[3]} plays the rounds. ${KEYS[4]} moves to the graph, where
      ${KEYS[5]} ${KEYS[6]} choose a node and + − zoom. ${KEYS[7]} shows all lines. The wheel zooms with Ctrl. Drag an
      empty place to move an enlarged graph. A click with ${KEYS[2]} chooses the second node.`],
  ],
  terms: {
    parent: ["capsule", "A capsule is a vector of a node. Each node has the same number of capsules, and each stands for one kind of neighbour."],
    child: ["edge", "An edge goes from a node that votes to the node that it votes for."],
    vote: ["vote", "A vote û is what a node sends along an edge to one capsule. It is the node's features times a learned matrix."],
    logit: ["logit", "An edge has a logit b for each capsule. The larger this logit is than the edge's other logits, the larger is the coupling with this capsule."],
    coupling: ["coupling", "A coupling c, from 0 to 1, is the share of an edge's vote that a capsule receives. The couplings of one edge sum to 1."],
    agreement: ["agreement", "The agreement is the inner product of a vote and its capsule. It is large if both are long and point the same way."],
    entropy: ["entropy", "The entropy −Σ c ln c of an edge is 0 when the edge has chosen one capsule. It is largest when all its couplings are equal."],
    iteration: ["round", "A round, or iteration, of routing computes couplings from logits, then sums from couplings, then new logits from agreement."],
    routing: ["routing", "Routing decides to which capsules of a node the votes of its neighbours go."],
    squash: ["squash", "Squashing keeps the direction of a vector and changes its length from n to n² / (1 + n²), which is below 1."],
    output: ["output", "The output of the layer for a node is the mean of what arrived, plus the bias, squashed."],
  },
  linkHolds: "The link holds your choice and the edges that you cut, added or held. It leaves out moved features.",
  why: "Why an edge goes to its capsule",
  aVote: `<h2>Votes</h2>
    <p>The page computes a <b>CapsuleConv</b> with its weights. This layer is a graph convolution by routing. A plain
    graph convolution takes the mean of what the neighbours of a node send. Here each node has several capsules, and
    each neighbour sends a vote to each of them.</p>`,
  anAgreement: `<h2>Agreement</h2>
    <p>A neighbour gives more of its vote to a capsule where the votes of other neighbours point the same way as its
    own. This only shows that its votes agree with those of others, not why the two nodes are neighbours.</p>`,
  theCompetition: `<h2>Competition</h2>
    <p>Each neighbour divides its vote, so what one capsule gains, the others lose. The page shows a single layer with
    the features that it was called with. It doesn't compute what earlier layers would make of a changed edge.</p>`,
});
