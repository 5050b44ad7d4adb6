// The words of the graph's page that depend on more than one value; the others stand in words.json.

import { state } from "./state.js";
import { counted, fixed, sentence, thousands } from "./tools.js";
import { stored } from "./trace.js";
import { SHOWN, words, wordsOf } from "./words.js";

const ofGraph = wordsOf("graph"),
  graphWords = stored.capsules ? { ...ofGraph, ...ofGraph.beliefs } : ofGraph;
Object.assign(words, graphWords, {
  title(counts, edges, causes) {
    const none = stored.capsules ? counts.length - 1 : null, // of a BeliefConv's edges, named last
      chosen = counts.map((count, l) => [count, l]).filter(([count, l]) => count && l !== none).sort(([a], [b]) => b - a),
      cause = (l) => (causes[l] ? ` (${causes[l]})` : ""),
      name = (l) => stored.capsules?.[l] ?? `${l}${cause(l)}`,
      texts = chosen.slice(0, SHOWN).map(([count, l], at) => `${at ? thousands(count) : counted(count, "edge", "edges")} to ${name(l)}`),
      rest = edges - counts.reduce((sum, count) => sum + count, 0),
      others = chosen.slice(SHOWN).reduce((sum, [count]) => sum + count, 0);
    if (others) texts.push(`${thousands(others)} to other capsules`);
    if (counts[none]) texts.push(`${thousands(counts[none])} to ${name(none)}`);
    if (chosen.length && rest) texts.push(`${thousands(rest)} others`);
    return `${words.which} ${texts.join(", ") || `${counted(edges, "edge", "edges")}, none chooses`}`;
  },
  lead: (K, what) => graphWords.lead(K) + words.leads[what],
  capsule: (l) => stored.capsules?.[l] ?? graphWords.capsule(l),
  // Where each direction is an edge, also how many pairs of nodes are joined.
  edges({ src, dst }, twoWay) {
    if (!twoWay) return counted(src.length, "edge", "edges");
    const pairs = src.filter((u, e) => u < dst[e]).length,
      loops = src.length - 2 * pairs;
    return `${counted(src.length, "directed edge", "directed edges")} (${counted(pairs, "pair", "pairs")}${loops ? `, ${counted(loops, "self-loop", "self-loops")}` : ""})`;
  },
  // What random graphs show, beside the numbers of the graph, which come first.
  chance: ({ strength, chosen: [own, ...random], found }, agrees, all) => {
    const span = (numbers) => (Math.min(...numbers) === Math.max(...numbers) ? thousands(numbers[0]) : `${thousands(Math.min(...numbers))} to ${thousands(Math.max(...numbers))}`),
      percent = found.map((share) => Math.round(100 * share)),
      [repeated, ...others] = strength,
      ends = [Math.min(...others), Math.max(...others)].map((value) => fixed(value, 2));
    return agrees
      ? graphWords.chanceTrained(thousands(own), all, random.length, span(random), percent[0], span(percent.slice(1)), fixed(repeated, 2), ...ends)
      : graphWords.chanceGiven(thousands(own), all, random.length, span(random));
  },
  layer: ({ routing, iterations, unit_votes: unit, mutual }) =>
    [(routing && `${routing} routing, `) + counted(iterations, "round", "rounds"), ...(unit ? ["unit votes"] : []), ...(mutual ? ["mutual"] : [])].join(", "),
  sample: ({ edges, around }, shown, whole, mutual) =>
    graphWords.sample(thousands(shown), thousands(edges), whole, around === null ? graphWords.most : graphWords.around(around)) + (mutual ? graphWords.lacking : graphWords.sending),
  changed: (cut, added, held, both) => {
    const parts = [cut && `${counted(cut, "edge", "edges")} cut`, added && `${added} added`, held && `${counted(held, "edge", "edges")} held`];
    return `${sentence(parts.filter(Boolean).join(", "))}.${both && cut + added > 1 ? " Each line is two edges, one per direction." : ""}`;
  },
  turned: (n, what) => (n ? ` ${counted(n, "edge is", "edges are")} ${what} now.` : ""),
  rerouted: (count, names, undecided, decided) =>
    (count ? ` ${counted(count, "edge goes", "edges go")} to another capsule than before and ${count === 1 ? "has an outline" : "have outlines"}: ${names}` : " No edge goes to another capsule.") +
    words.turned(undecided, "undecided") + words.turned(decided, "decided"),
  child: (e) => `${stored.names[state.layer.ends.src[e]]} → ${stored.names[state.layer.ends.dst[e]]}`,
  tag: (e) => words.child(e),
  strongestWith: () => "",
  vote: (name, unit, weight) =>
    `The edge's vote û is the features of ${name} times W${unit ? ", scaled to length 1" : ""}${weight === 1 ? "" : `, times the edge's weight ${fixed(weight, 2)}`}.`,
  thickArrow: () => "what the votes are compared with",
  lengthIs: (name, length) => name,
});
