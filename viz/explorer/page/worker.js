// The network in a thread of its own, so that the page never waits. A question {id, kind, ...} gets {id, ...answer},
// or {id, error}. The first one is {kind: "load", network}.

import { Network } from "./network.js";

let network,
  seen = { pixels: [], u_hat: null }; // the newest image and its votes

function votesOf(pixels) {
  const known = seen.pixels.length === pixels.length && pixels.every((value, x) => value === seen.pixels[x]);
  if (!known) seen = { pixels, u_hat: network.votes(pixels) };
  return seen.u_hat.slice(); // route() silences votes in it
}

const ANSWERS = {
  load: (question) => {
    network = new Network(question.network);
    return {};
  },
  // How pixels (C, H, W) in 0 to 255 are routed, `rounds` times, with children held as route() of layer.js has it; and what
  // the decoder makes of the longest parents.
  explain: ({ pixels, rounds, held, tops }) => {
    const { last } = network,
      u_hat = votesOf(pixels),
      states = last.route(u_hat, Math.max(rounds, last.iterations), last.routing, held),
      { v, lengths } = states[last.iterations - 1];
    const longest = [...lengths.keys()].sort((a, b) => lengths[b] - lengths[a] || a - b).slice(0, tops);
    return {
      states,
      u_hat: Float32Array.from(u_hat),
      tops: longest.map((parent) => {
        const capsule = [...v.subarray(parent * last.dim, (parent + 1) * last.dim)];
        return { parent, length: lengths[parent], capsule, picture: network.decode(parent, capsule) };
      }),
    };
  },
  // The states of votes u_hat (E, D) under any routing.
  route: ({ u_hat, rounds, routing, held }) => ({ states: network.last.route(Float64Array.from(u_hat), rounds, routing, held) }),
  decode: ({ capsules }) => ({ pictures: capsules.map(({ parent, capsule }) => network.decode(parent, capsule)) }),
};

onmessage = ({ data: { id, kind, ...question } }) => {
  try {
    postMessage({ id, ...ANSWERS[kind](question) });
  } catch (error) {
    postMessage({ id, error: String(error.message) });
  }
};
