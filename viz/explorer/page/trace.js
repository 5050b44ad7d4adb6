// The trace's JSON (described in data.py) as numbers that can be asked for at any moment.
// A moment is {k, r}: indices of an epoch of the trace and of an iteration, from 0; fractions lie between two states.

import { $ } from "./tools.js";
import { words } from "./words.js";

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// (k, r) => the row of numbers of each of K x R states.
function quantised({ low, step, data }, K, R) {
  const size = data.length / (K * R),
    q = data.slice();
  q.forEach((rise, at) => at % (size * R) >= size && (q[at] = rise + q[at - size]));
  const numbers = Float64Array.from(q, (byte, at) => {
    const state = Math.floor(at / size),
      k = Math.floor(state / R),
      r = state % R;
    return low[k][r] + step[k][r] * byte;
  });
  return (k, r) => numbers.subarray((k * R + r) * size, (k * R + r + 1) * size);
}

function mixed(a, b, part) {
  if (typeof a === "number") return a + (b - a) * part;
  return Float64Array.from(a, (value, at) => value + (b[at] - value) * part);
}

// The number or row that `read(k, r)` gives, linear between whole k and r.
export function at(read, { k, r }) {
  const k0 = Math.floor(k),
    r0 = Math.floor(r);
  const along = (k) => (r > r0 ? mixed(read(k, r0), read(k, r0 + 1), r - r0) : read(k, r0));
  return k > k0 ? mixed(along(k0), along(k0 + 1), k - k0) : along(k0);
}

// The data in the page, gzipped: JSON, a line's end, and the bytes of its arrays, whose places stand for them in the JSON.
// Without them it shows why there is nothing to see.
async function storedData() {
  try {
    const unzipped = new Blob([bytes($("#trace").textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
    const all = new Uint8Array(await new Response(unzipped).arrayBuffer()),
      end = all.indexOf(10);
    const arrays = all.subarray(end + 1),
      filled = (name, value) => (name === "data" ? arrays.slice(...value) : value);
    return JSON.parse(new TextDecoder().decode(all.subarray(0, end)), filled);
  } catch {
    Object.assign($("#broken"), { textContent: words.damaged, hidden: false });
    $("#page").hidden = true;
    throw new Error(words.damaged);
  }
}

// One image of the trace: every list of lists becomes a reader (k, r) => numbers.
export function unpacked(trace, n) {
  const { epochs, iterations: R } = trace,
    K = epochs.length,
    raw = trace.images[n];
  const packed = (field) => raw[field] && quantised(raw[field], K, R);
  const listed = (field) => (k, r) => raw[field][k][r];
  if (typeof raw.c === "function") return raw; // computed in the page
  return {
    ...raw,
    c: packed("c"),
    b: packed("b"),
    agreement: packed("agreement"),
    entropy: packed("entropy"),
    linked: [...Array(trace.children).keys()].filter((i) => !trace.unlinked.includes(i)),
    meanEntropy: listed("mean_entropy"),
    lengths: listed("lengths"),
    chosen: raw.chosen && listed("chosen"),
  };
}

export const stored = await storedData();
