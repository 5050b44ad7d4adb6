// The words that all pages put together: texts, and functions of numbers and names. Others stand in the pages' HTML. Each
// page adds its own, some in place of more general ones. What is translated stands in words.json, where {0} is a function's
// first argument.

import { $, counted } from "./tools.js";

const stored = JSON.parse($("#words").textContent);

function phrase(text) {
  return /\{\d\}/.test(text) ? (...values) => text.replace(/\{(\d)\}/g, (_, at) => values[at]) : text;
}

export const screens = Object.fromEntries(Object.entries(stored.screens).map(([key, text]) => [key, phrase(text)]));

export const KEYS = ["←", "→", "Shift", "Space", "Tab", "↑", "↓", "Esc"].map((key) => `<kbd>${key}</kbd>`);
export const SHOWN = 3; // parents that the title names, at most

export const words = {
  damaged: "This page is damaged or cut short, so its data can't be read. Please save or download it again.",

  tick: (r) => r,
  round: (r, trained) => `${r}${r === trained ? ", the answer" : r > trained ? ", beyond training" : ""}`,
  whereItVotes: "where its votes agree",
  setTo: (c) => `your pull sets c to ${c}`,
  pulled: "pulled",
  tipEdge: (c, b, agreement) => [`coupling c  ${c}`, `logit b  ${b}`, `vote agreement  ${agreement}`],
  undecided: "undecided",
  chooses: (c) => `${c.toFixed(2)} chooses it`,
  nats: "entropy (nat), 0 if decided; the dashed line is equal shares",
  meanEntropy: (mean, most) => `mean ${mean} nat of ${most}`,
  beyondTraining: "beyond training",
  couplingC: "coupling c",
  scale: (marks) => `The width of a line shows its coupling: ${marks}`,

  linkHolds: "",
  doesntFit: "This link couldn't be read: it was cut short, changed, or made for another page. So the page shows nothing of what its sender saw.",
  tooLong: "This drawing is too long for a link.",
  linkCopied: "The link is copied.",
  linkInField: "Copy the link from the field.",
  thisMachine: " The link opens a file on this computer, so other people need the file too.",

  nextLine: "Next line",
  votesAsNumbers: (rows, scroll) => `These votes as numbers, in ${counted(rows, "row", "rows")}${scroll ? " that scroll" : ""}`,
  carriedVotes: (epoch) => `The votes come from the network in this page, which was trained for ${counted(epoch, "epoch", "epochs")}.`,
  pass: (onePass, r, child, parent) => `${onePass ? "The one pass" : `Round ${r}`} for ${child} → ${parent}`,
  stepThrough: "Step through",
  nextIteration: "Next round",
  lines: { softmax: "softmax", sum: "sum", squash: "squash", output: "output", agreement: "agreement" },
  votesFor: (n, name) => `${counted(n, "vote", "votes")} for ${name}`,
  isMarked: (child) => ` ${child} is marked.`,
  ofParent: (what, name) => `${what} of ${name}`,
  bars: (dim, called, cosine, sizes, product, note) =>
    `The bars show the ${dim} numbers of both vectors, and each vector has its own scale. The small bars show what each pair adds to ⟨û, ${called}⟩. ` +
    `The cosine of the two vectors is ${cosine}. Lengths times cosine: ${sizes[0]} · ${sizes[1]} · ${cosine} = ${product}. ${note}`,
  and: " and ",
  pairs: (called, name, pairs) => `The vote and ${called} of ${name}, number by number: ${pairs}`,
  softmaxOf: (child) => `The softmax of ${child}`,
  shares: (child, name, shares) => `Couplings of ${child} over the rounds. With ${name} they are ${shares}`,
  plane: (name, rounds) =>
    `The axis to the right is the direction of ${name} after ${counted(rounds, "round", "rounds")}. The axis upwards is the ` +
    `direction across it in which the votes differ most. Stronger arrows have larger couplings, and the thick arrow is ` +
    `${words.thickArrow(name)}. The dashed circle has radius 1. The dotted lines show `,
  meanAngle: (angle, first) =>
    `the mean angle between votes and ${words.parent}, weighted by coupling and length: ${angle}${first && `, and ${first} in round 1`}.`,
  inPlane: (head, chosen, angle) => `${head} in the plane. The keys Up and Down choose the ${words.childWord}.${chosen} ${angle}`,
  replaced: (b, r) =>
    `This replaces b, which was ${b}, and gives b of round ${r + 2}. κ is the concentration, and ρ is the usual length of ` +
    `votes for this ${words.parent}.`,
  prior: "prior",
  added: (r, last) =>
    `Routing adds the agreement to b, which gives b of round ${r + 2}.` + (last ? ` Training ends after round ${r + 1}, so this b is never used.` : ""),
  computedOnce: "This b is computed once, before the only pass. It compares the vote with the sum of all votes for this parent.",
  unused: (agreement) => `The agreement ⟨û, v⟩ is ${agreement}, but uniform routing doesn't use it. There is only one pass.`,
};
