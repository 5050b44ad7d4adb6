// A softmax without votes: the words of its record, and loads of parents in place of their lengths. Its time goes over the
// epochs where the record has one iteration.

import "./image_words.js";
import { $, counted, sentence } from "./tools.js";
import { stored } from "./trace.js";
import { KEYS, words } from "./words.js";

if (stored.words) {
  const { child, parent, image, step } = stored.words,
    { steps } = stored,
    one = (word) => `${/^[aeiou]/.test(word) ? "an" : "a"} ${word}`,
    many = (word) => (word === "child" ? "children" : `${word}s`),
    share = (part) => `${(100 * part).toFixed(1)}\u202f%`;
  Object.assign(words, {
    parent,
    part: child,
    plurals: { ...words.plurals, [parent]: many(parent) },
    parts: (n) => counted(n, child, many(child)),
    others: (n, noun, most) => `${counted(n, `other ${parent}`, `other ${many(parent)}`)}: none above ${share(most)}`,
    children: (n) => counted(n, child, many(child)),
    parents: (n) => counted(n, parent, many(parent)),
    someChildren: (some, all) => `The graph shows ${some} of ${words.children(all)}, those that choose most clearly`,
    child: (n) => stored.child_names[n] ?? `${child} #${n}`,
    tag: (n) => stored.child_names[n] ?? `#${n}`,
    amount: share,
    lead: () => `Each ${child} divides itself among ${many(parent)}, by a softmax. A load is the share of all ${many(child)} that one ${parent} receives. One that receives less than a tenth of an equal load is dead (†).`,
    columns: () => [sentence(many(child)), `${sentence(many(parent))} and their loads`],
    tick: (r) => steps[r - 1],
    round: (r) => `${steps[r - 1]}${r === steps.length ? ", the last" : ""}`,
    moment: (r) => `${sentence(step)} ${steps[r - 1]}`,
    oneChild: `One ${child}`,
    chooseChild: `Choose ${one(child)} or a ribbon in the graph to see how it divides itself among the ${many(parent)}.`,
    divides: (named) => `${sentence(named)} divides itself`,
    gives: (named, c, name) => `${sentence(named)} gives ${share(c)} to ${name}`,
    tipEdge: (c) => [`coupling c  ${c}`],
    entropyHead: `How undecided each ${child} is`,
    longestIs: (name, load) => `the largest load is that of ${name}, ${load}`,
    marks: (largest, wrong, truth, dead) => (dead ? ", dead" : largest ? ", the largest load" : ""),
    reading: [
      ["A strip", `is ${one(child)}, cut into the shares that flow to the ${many(parent)}. A share is a coupling c, from 0
        to 1, and the shares of one ${child} are its softmax.`],
      ["A load", `is the sum of ${one(parent)}'s couplings, divided by the number of ${many(child)}.
        ${sentence(one(parent))} is dead (†) if its load, over the whole record, is under a tenth of its load with equal
        couplings.`],
      ["The curve", `shows the entropy of each ${child}. It is high while the ${child} spreads over all ${many(parent)},
        and 0 when it has chosen one. Drag along the curve to move through time.`],
      ["Keys", `${KEYS[0]} ${KEYS[1]} change the ${step}. ${KEYS[3]} plays. ${KEYS[4]} moves to ${one(parent)} or to the
        graph, where ${KEYS[5]} ${KEYS[6]} choose ${one(child)}. ${KEYS[7]} shows all lines.`],
    ],
    terms: {
      parent: [parent, `${sentence(one(parent))} is one of the things among which each ${child} divides itself.`],
      coupling: ["coupling", `A coupling c, from 0 to 1, is the share of ${one(child)} that ${one(parent)} receives. The couplings of one ${child} are a softmax, so they sum to 1.`],
      entropy: ["entropy", `The entropy −Σ c ln c of ${one(child)} is 0 when it has chosen one ${parent}. It is largest when all its couplings are equal.`],
      iteration: [step, step === "epoch" ? "An epoch of training in the record." : "A call of the module in one call of the network."],
    },
  });
  for (const part of document.querySelectorAll("#child :is([data-term=logit], [data-term=agreement])")) part.remove();
  if (steps.length < 2) for (const part of document.querySelectorAll("#entropy :is(button, label, output, canvas, input)")) part.hidden = true;
  for (const [selector, text] of [
    ["#entropy label", sentence(step)],
    ["#child th", parent],
    ["#images legend", sentence(many(image))],
    ["#doors button", "Numbers"],
  ]) $(selector).textContent = text;
  $("#why").ariaLabel = "Numbers";
  $("#parents").ariaLabel = `${sentence(many(parent))} and their loads`;
}
