// The words of all pages, from words.json, which a translator edits. A text with places for values is a function of them:
// {0} is the first, {0|row|rows} the first with its noun, {0?so|else} one of two texts, {0^} begins a sentence, {0%} is in
// percent, and {0.2} has two digits. Each page adds its own, some in place of more general ones.

import { $, counted, fixed, sentence } from "./tools.js";

const PLACE = /\{(\d)(?:\|([^|}]*)\|([^}]*)|\?([^|}]*)\|([^}]*)|(\^)|(%)|(\.2))?\}/g;

function phrased(found) {
  if (Array.isArray(found) || typeof found === "object") {
    const parts = Object.entries(found).map(([key, part]) => [key, phrased(part)]);
    if (!Array.isArray(found)) return Object.fromEntries(parts);
    const texts = parts.map(([, part]) => part);
    return texts.some((part) => typeof part === "function") ? (...values) => texts.map((part) => (typeof part === "function" ? part(...values) : part)) : texts;
  }
  if (found.search(PLACE) < 0) return found;
  return (...values) =>
    found.replace(PLACE, (_, at, one, many, so, other, first, percent, digits) => {
      const value = values[at];
      if (one !== undefined) return counted(value, one, many);
      if (so !== undefined) return value ? so : other;
      if (first) return sentence(String(value));
      if (percent) return Math.round(100 * value);
      return digits ? fixed(value, 2) : value ?? "";
    });
}

const stored = JSON.parse($("#words").textContent);
export const SHOWN = 3; // parents that the title names, at most
export const screens = phrased(stored.screens);
export const wordsOf = (page) => phrased(stored[page]);

const common = wordsOf("common");
export const words = {
  ...common,
  tick: (r) => r,
  round: (r, trained) => common.round(r, r === trained, r > trained),
  pass: (onePass, r, ...ends) => common.pass(onePass, onePass ? "" : r, ...ends),
  bars: (dim, called, cosine, sizes, ...rest) => common.bars(dim, called, cosine, `${sizes.join(" · ")} · ${cosine}`, ...rest),
  plane: (name, rounds) => common.plane(name, rounds, words.thickArrow(name)),
  meanAngle: (angle, first) => common.meanAngle(words.parent, angle, first && common.inRound1(first)),
  inPlane: (head, chosen, angle) => common.inPlane(head, words.childWord, chosen, angle),
  replaced: (b, r) => common.replaced(b, r + 2, words.parent),
  added: (r, last) => common.added(r + 2) + (last ? common.addedLast : ""),
};
