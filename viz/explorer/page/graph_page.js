// The graph's page: its modules, in the order in which they draw, and the parts of a link that it has: what is chosen, and
// the edges that are cut, added or held.

import "./node_words.js";
import "./nodes.js";
import "./terms.js";
import "./nodes_explained.js";
import "./node_zoom.js";
import { change, choosePair, conv, ROUNDS } from "./nodes.js";
import { resume, share } from "./share.js";
import { choose } from "./shell.js";
import { now, state } from "./state.js";
import { stored } from "./trace.js";

const edgeOf = (u, v) => conv.edges.src.findIndex((from, e) => from === u && conv.edges.dst[e] === v);

share({
  limits: { nodes: conv.N, capsules: conv.K, iterations: ROUNDS, epochs: state.trace.epochs, sliders: {}, routings: [] },
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
