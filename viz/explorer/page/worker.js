// The network in a thread of its own, so that the page never waits. A question {id, kind, ...} gets {id, ...answer},
// or {id, error}. The first one is {kind: "load", network}.

import { Network } from "./network.js";
import { feeds, saliency } from "./origins.js";

let network,
  seen = { pixels: [], maps: [], u_hat: null }; // the newest image, what went into each step of the stem, and its votes

function see(pixels) {
  if (seen.pixels.length === pixels.length && pixels.every((value, x) => value === seen.pixels[x])) return;
  seen = { pixels, maps: [] };
  seen.u_hat = network.votes(pixels, seen.maps);
}

const ANSWERS = {
  load: (question) => {
    network = new Network(question.network);
    return {};
  },
  // How pixels (C, H, W) in 0 to 255 are routed, `rounds` times, with children held as route() of layer.js has it; and what
  // the decoder makes of the longest parents.
  explain: ({ pixels, rounds, held, tops }) => {
    see(pixels);
    const { last } = network,
      u_hat = seen.u_hat.slice(), // route() silences votes in it
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
  feeds: ({ pixels, child }) => {
    see(pixels);
    return { feeds: feeds(network, seen.maps, child) };
  },
  saliency: ({ pixels }) => ({ saliency: saliency(network, pixels) }),
};

onmessage = ({ data: { id, kind, ...question } }) => {
  try {
    postMessage({ id, ...ANSWERS[kind](question) });
  } catch (error) {
    postMessage({ id, error: String(error.message) });
  }
};
