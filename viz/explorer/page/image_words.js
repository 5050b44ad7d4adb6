// The words of the explorer of images that depend on more than one value.

import { thousands } from "./tools.js";
import { SHOWN, words, wordsOf } from "./words.js";

const own = wordsOf("image");
Object.assign(words, own, {
  // `given` are [name, how many children choose it], the largest number first, or null for an empty sheet
  title(noun, objects, given, children) {
    const question = own.question(objects > 1 ? words.plurals[noun] : noun),
      all = thousands(children);
    if (given === null) return `${question} ${own.emptyTitle}`;
    if (!given.length) return `${question} ${own.noneTitle(words.part)}`;
    const [[name, count], ...more] = given.slice(0, SHOWN),
      others = given.slice(SHOWN).reduce((sum, [, count]) => sum + count, 0),
      none = children - given.reduce((sum, [, count]) => sum + count, 0),
      the = (name) => (noun === "digit" ? own.the(name) : name),
      texts = [own.firstGiven(thousands(count), words.parts(children), count === 1, the(name)), ...more.map(([name, count]) => own.given(thousands(count), the(name)))];
    return `${question} ${texts.join(", ")}${others ? `, ${own.givenOthers(thousands(others), others === 1)}` : ""}${none ? `, ${own.givenNone(thousands(none))}` : ""}`;
  },
  lead: (noun, pictured) => (pictured ? own.leadPictured(noun === "class" ? own.object : noun) : own.leadPlain) + own.leadRounds,
  columns: (decoded, parents) => [own.children_ + (decoded ? own.withVote : ""), own.wholes(parents)],
  hint: (noun, objects) => (noun === "digit" ? own.drawDigit + (objects > 1 ? own.drawOver : "") : own.drawHere),
  others: (n, noun, most, all) => own.othersAre(n, n === 1 ? noun : words.plurals[noun], Math.ceil(100 * most) / 100, !all),
  change(name, before, after, pulled = " ") {
    const kind = before.toFixed(2) === after.toFixed(2) ? "changeStays" : after < before ? "changeFalls" : "changeRises";
    return own[kind](name, before, after, pulled);
  },
  marks: (named, wrong, truth) => (named ? own.markNamed : "") + (wrong ? own.markWrong : "") + (truth ? own.markTrue : ""),
  readAs: (names, doubt, noun) => (names.length ? own[doubt === "unlike" ? "readPerhaps" : "readPlain"](names.join(" + ")) : own.noneNamed(noun)),
  routing: (name, n) => (n === null ? own.routingOnce(name) : own.routingRounds(name, n)),
  answerChanges: (names, routings) => own.answerChanges(...names, ...routings),
});
