// The parts of a link that the graph's page has: what is chosen, and the edges that are cut, added or held. Then the page opens.

const edgeOf = (u, v) => conv.edges.src.findIndex((from, e) => from === u && conv.edges.dst[e] === v);

renew();
share({
  limits: { nodes: conv.N, capsules: conv.K, iterations: ROUNDS, epochs: trace.epochs, sliders: {}, routings: [] },
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
      for (const [u, v, l] of hold) if (edgeOf(u, v) >= 0) conv.hold(edgeOf(u, v), l);
    });
    resume(moment);
    choosePair(node, other);
    choose({ capsule });
  },
});
