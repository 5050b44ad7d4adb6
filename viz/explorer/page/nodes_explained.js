// The formulas that only CapsuleConv has: its output, mutual logits, and the terms of a vote.

const plainOutput = readout,
  ofOneWay = RULES.spherical;

// Dynamic routing compares votes with the squashed sum; otherwise the output stands in its place.
readout = (parent, r) => {
  if (layer.routing === "dynamic") return plainOutput(parent, r);
  const node = layer.nodeOf(parent),
    [letters, factor] = outputOf(node);
  return ["output", `v = ${letters}`, `${fixed(factor, 3)} · s: ‖v‖ = ${fixed(lengthsAt(r, node)[parent % conv.K], 3)}`];
};

RULES.spherical = (e, r) => {
  const rule = ofOneWay(e, r);
  if (!conv.mutual) return rule;
  const { K } = conv,
    back = layer.back[Math.floor(e / K)],
    ownLogit = (vote) => strengthOf(layer.dst[vote]) * routed.states[r].agreement[vote], // without that of the edge that goes back
    [own, other] = [e, back * K + (e % K)].map(ownLogit),
    edge = childName(back);
  return {
    ...rule,
    letters: `${rule.letters} + ${words.ofBack(edge)}`,
    numbers: `${started(e)}${fixed(own, 3)} ${plus(other)} = ${fixed(priorOf(e) + own + other, 3)}`,
    note: `${rule.note} ${words.bothWays(fixed(own, 3), edge, fixed(other, 3))}`,
  };
};

explanations.push(({ child }) => {
  const { src, weight } = layer.ends;
  $("#subject").append(words.vote(conv.names[src[child]], conv.unit_votes, weight[child]));
});
