// The edges that arrive at a chosen node as ribbons: each edge is a strip of one voice, cut into the shares that flow to the
// node's capsules.

import { Ribbons } from "./ribbons.js";
import { now, state } from "./state.js";

const LONGEST_NAME = 14, // letters
  HIGH = 22, // pixels of an edge's strip and the room around it
  HIGHEST = 300;

export class Strips extends Ribbons {
  narrowest = 0; // names stand beside strips of any width

  get held() {
    return this.isGiven ? {} : state.held;
  }

  nameOf([edge, ...others]) {
    const name = this.names[this.from[edge]];
    return (name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name) + (others.length ? ", …" : "");
  }

  colorOf(capsule, look) {
    return look.parents[capsule];
  }

  // The strips of a node's edges in a layer, with the couplings c (edges * K,).
  drawNode(node, { conv, ends: { src, dst } }, c) {
    const edges = [...dst.keys()].filter((e) => dst[e] === node),
      { K, names } = conv,
      capsules = [...Array(K).keys()];
    Object.assign(this, { from: src, names });
    this.canvas.style.height = `${Math.max(3 * HIGH, Math.min(HIGHEST, HIGH * edges.length))}px`;
    this.take({ src: edges.flatMap((e) => capsules.map(() => e)), dst: edges.flatMap(() => capsules) }, { children: edges, columns: capsules });
    const shares = Float64Array.from(edges.flatMap((e) => [...c.subarray(e * K, (e + 1) * K)]));
    this.draw(shares, { parent: now.capsule, child: this.isGiven ? null : now.child }, null, state.look);
  }
}
