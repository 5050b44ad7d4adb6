// The graph's page: its modules, in the order in which they draw; the formulas that only CapsuleConv has, its output, mutual
// logits and the terms of a vote; and the parts of a link: what is chosen, and the edges that are cut, added or held.

import "./node_words.js";
import "./nodes.js";
import { explanations, own, plus, squashLine } from "./formulas.js";
import { change, choosePair, conv, lengthsAt, outputOf, ROUNDS } from "./nodes.js";
import { resume, share } from "./share.js";
import { childName, choose } from "./shell.js";
import { now, state, strengthOf } from "./state.js";
import { $, fixed } from "./tools.js";
import { stored } from "./trace.js";
import { words } from "./words.js";

// Dynamic routing compares votes with the squashed sum; otherwise the output stands in its place.
function outputLine(parent, r) {
  if (state.layer.routing === "dynamic") return squashLine(parent, r);
  const node = Math.floor(parent / conv.K),
    [letters, factor] = outputOf(node);
  return ["output", `v = ${letters}`, `${fixed(factor, 3)} · s: ‖v‖ = ${fixed(lengthsAt(r, node)[parent % conv.K], 3)}`];
}

// With `mutual` the logit of the edge that goes back is added.
function rule(usual, e, r) {
  if (!conv.mutual) return usual;
  const { K } = conv,
    back = state.layer.back[Math.floor(e / K)],
    ownLogit = (vote) => strengthOf(state.layer.dst[vote]) * state.routed.states[r].agreement[vote], // without that of the edge that goes back
    [logit, other] = [e, back * K + (e % K)].map(ownLogit),
    edge = childName(back);
  return {
    ...usual,
    letters: `${usual.letters} + ${words.ofBack(edge)}`,
    numbers: `${fixed(logit, 3)} ${plus(other)} = ${fixed(logit + other, 3)}`,
    note: `${usual.note} ${words.bothWays(fixed(logit, 3), edge, fixed(other, 3))}`,
  };
}

Object.assign(own, { outputLine, rule });
explanations.push(({ child }) => {
  const { src, weight } = state.layer.ends;
  $("#subject").append(words.vote(conv.names[src[child]], conv.unit_votes, weight[child]));
});

const edgeOf = (u, v) => conv.edges.src.findIndex((from, e) => from === u && conv.edges.dst[e] === v);

share({
  limits: { nodes: conv.N, capsules: conv.K, iterations: ROUNDS, epochs: state.trace.epochs },
  read() {
    const { src, dst, number, held } = conv.edges,
      edges = [...src.keys()],
      cut = stored.src.map((u, e) => [u, stored.dst[e]]).filter((_, e) => !number.includes(e)),
      gone = new Set(cut.map(String));
    return {
      node: now.node,
      other: now.other,
      capsule: now.capsule,
      cut,
      add: edges.filter((e) => number[e] < 0 || gone.has(`${src[e]},${dst[e]}`)).map((e) => [src[e], dst[e]]),
      hold: edges.filter((e) => held[e] !== null).map((e) => [src[e], dst[e], held[e]]),
    };
  },
  restore({ node = null, other = null, capsule = null, cut = [], add = [], hold = [] }, moment) {
    change(() => {
      conv.reset();
      for (const [u, v] of cut) conv.cut(u, v);
      for (const [u, v] of add) if (edgeOf(u, v) < 0) conv.add(u, v);
      for (const [u, v, l] of hold) if (edgeOf(u, v) >= 0) conv.edges.held[edgeOf(u, v)] = l;
    });
    resume(moment);
    choosePair(node, other);
    choose({ capsule });
  },
});
