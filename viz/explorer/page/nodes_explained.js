// The formulas that only CapsuleConv has: its output, mutual logits, and the terms of a vote.

import { explainBy, explanations, plus, squashLine } from "./formulas.js";
import { conv, lengthsAt, outputOf } from "./nodes.js";
import { strengthOf } from "./routed.js";
import { childName } from "./shell.js";
import { state } from "./state.js";
import { $, fixed } from "./tools.js";
import { words } from "./words.js";

// Dynamic routing compares votes with the squashed sum; otherwise the output stands in its place.
function outputLine(parent, r) {
  if (state.layer.routing === "dynamic") return squashLine(parent, r);
  const node = state.layer.nodeOf(parent),
    [letters, factor] = outputOf(node);
  return ["output", `v = ${letters}`, `${fixed(factor, 3)} · s: ‖v‖ = ${fixed(lengthsAt(r, node)[parent % conv.K], 3)}`];
}

// With `mutual` the logit of the edge that goes back is added.
function rule(usual, e, r) {
  if (!conv.mutual) return usual;
  const { K } = conv,
    back = state.layer.back[Math.floor(e / K)],
    ownLogit = (vote) => strengthOf(state.layer.dst[vote]) * state.routed.states[r].agreement[vote], // without that of the edge that goes back
    [own, other] = [e, back * K + (e % K)].map(ownLogit),
    edge = childName(back);
  return {
    ...usual,
    letters: `${usual.letters} + ${words.ofBack(edge)}`,
    numbers: `${fixed(own, 3)} ${plus(other)} = ${fixed(own + other, 3)}`,
    note: `${usual.note} ${words.bothWays(fixed(own, 3), edge, fixed(other, 3))}`,
  };
}

explainBy({ outputLine, rule });
explanations.push(({ child }) => {
  const { src, weight } = state.layer.ends;
  $("#subject").append(words.vote(conv.names[src[child]], conv.unit_votes, weight[child]));
});
