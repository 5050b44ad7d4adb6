// A softmax without votes: the words of its record, and loads of parents in place of their lengths. Its time goes over the
// epochs where the record has one iteration.

import "./image_words.js";
import { $, counted, sentence } from "./tools.js";
import { stored } from "./trace.js";
import { words, wordsOf } from "./words.js";

if (stored.words) {
  const { child, parent, image, step } = stored.words,
    { steps } = stored,
    one = (word) => `${/^[aeiou]/.test(word) ? "an" : "a"} ${word}`,
    many = (word) => (word === "child" ? "children" : `${word}s`),
    share = (part) => `${(100 * part).toFixed(1)}\u202f%`,
    nouns = [child, many(child), parent, many(parent), step, one(child), one(parent), step === "epoch"];
  // The texts, in which these nouns have places.
  const filled = (texts) => Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, typeof text === "function" ? text(...nouns) : filled(text)]));
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
    ...filled(wordsOf("softmax")),
    lead: () => words.leadText,
    columns: () => [sentence(many(child)), `${sentence(many(parent))} and their loads`],
    tick: (r) => steps[r - 1],
    round: (r) => `${steps[r - 1]}${r === steps.length ? ", the last" : ""}`,
    moment: (r) => `${sentence(step)} ${steps[r - 1]}`,
    divides: (named) => `${sentence(named)} divides itself`,
    gives: (named, c, name) => `${sentence(named)} gives ${share(c)} to ${name}`,
    tipEdge: (c) => [`coupling c  ${c}`],
    longestIs: (name, load) => `the largest load is that of ${name}, ${load}`,
    marks: (largest, wrong, truth, dead) => (dead ? ", dead" : largest ? ", the largest load" : ""),
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
