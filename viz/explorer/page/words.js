// The words of the page that it puts together: texts, lists, and functions of numbers and names. Others stand in its HTML.

import { counted, sentence, thousands } from "./tools.js";

export const KEYS = ["←", "→", "Shift", "Space", "Tab", "↑", "↓", "Esc"].map((key) => `<kbd>${key}</kbd>`);
export const SHOWN = 3; // parents that the title names, at most

export const words = {
  // `chosen` are [name, how many children choose it], the largest number first, or null for an empty sheet
  title(noun, objects, chosen, children) {
    const question = `Which ${objects > 1 ? words.plurals[noun] : noun}?`;
    if (chosen === null) return `${question} The sheet is empty`;
    if (!chosen.length) return `${question} ${words.parts(children)}, ${children === 1 ? "" : "all "}undecided`;
    const texts = chosen.slice(0, SHOWN).map(([name, count], at) => `${at ? thousands(count) : words.parts(count)} ${count === 1 ? "chooses" : "choose"} ${name}`),
      others = chosen.slice(SHOWN).reduce((sum, [, count]) => sum + count, 0);
    return `${question} ${texts.join(", ")}${others ? `, ${others === 1 ? "1 chooses another" : `${thousands(others)} choose others`}` : ""}`;
  },
  plurals: { digit: "digits", class: "classes", parent: "parents" },
  parts: (n) => counted(n, "part", "parts"),
  lead: (noun, pictured) =>
    `Each part ${pictured ? `that the network finds votes for what the whole ${noun === "class" ? "object" : noun} looks like` : "votes for its parents"}. ` +
    "Votes that agree count more in the next round: their lines grow.",
  columns: (decoded, seen) => [
    `Parts (child capsules)${decoded ? ": what each votes for; faint counts less" : seen ? ": where each looks" : ""}`,
    "Wholes (parents): how sure",
  ],
  pulling: 'Pull a line<span class="wide"> to another parent</span>.',
  hint: (noun, objects) => (noun === "digit" ? `Draw a digit here${objects > 1 ? ", then another one over it" : ""}` : "Draw here"),
  damaged: "This page is damaged or cut short: its data can't be read. Save or download it again.",

  takenFor: (name, wrong) => `${name}, taken for ${wrong}`,
  tick: (r) => r,
  round: (r, trained) => `${r}${r === trained ? ": the answer" : r > trained ? ": beyond training" : ""}`,
  of: (one, all) => `${one} of ${all}`,
  untrained: "untrained",
  undecidedParts: (n) => `+ ${thousands(n)} undecided in the answer: show all`,
  fold: "Show only what is decided",
  children: (n) => counted(n, "child", "children"),
  parents: (n) => counted(n, "parent", "parents"),
  someChildren: (some, all) => `${some} of ${words.children(all)}: those that couple most strongly with each parent`,
  goesTo: (child) => `Send ${child} to`,
  pin: (child, pinned) => (pinned ? "Unpin" : `Pin: keep ${child} in sight`),
  nameOf: (child) => `Name of ${child}`,
  name: "its name",
  whereItVotes: "where its votes agree",
  noParent: "no parent",
  setTo: (c) => `c is set to ${c} by your pull`,
  pulled: "pulled",
  was: (length) => `was ${length.toFixed(2)}`,
  again: "All rounds ran again, and the other parts chose anew",
  joined: (child, name, before, after) => ` ${name} rises because ${child} now gives it ${Math.round(100 * after)} % of its vote instead of ${Math.round(100 * before)} %.`,
  disagrees: (child, name) => ` ${sentence(child)}'s vote for ${name} hardly agrees with the other parts' votes, and these now add up to less.`,
  inAnswer: (r) => `. In round ${r}, the answer: `,
  pulledFrom: (child) => `, from which you pulled ${child}, `,
  pulledTo: (child) => `, to which you pulled ${child}, `,
  change: (name, before, after, pulled = " ") =>
    before.toFixed(2) === after.toFixed(2) ? `${name}${pulled}stays at ${after.toFixed(2)}` : `${name} ${after < before ? "falls" : "rises"} from ${before.toFixed(2)} to ${after.toFixed(2)}`,
  noChange: "no parent changes by 0.03",
  oneChild: "One child",
  child: (n) => `part #${n}`, // a bare number would look like a class
  tag: (n) => `#${n}`,
  amount: (length) => length.toFixed(2),
  divides: (child) => `${sentence(child)} divides itself`,
  chooseChild: "Choose a child or a line in the graph to see how it divides itself among the parents.",
  sumsTo1: (entropy) => `c sums to 1; entropy ${entropy} nat.`,
  gives: (child, c, name) => `${sentence(child)} gives ${Math.round(100 * c)} % of its vote to ${name}`,
  tipEdge: (c, b, agreement) => [`coupling c  ${c}`, `logit b  ${b}`, `vote agreement  ${agreement}`],
  tipChild: (entropy) => `entropy  ${entropy} nat`,
  marks: (longest, wrong, truth) => [longest && ", the longest", wrong && ", wrong", truth && ", the true label"].filter(Boolean).join(""),
  sheet: (truth) => `The image${truth === undefined ? "" : `, true label ${truth}`}.`,
  glowOfChild: (child) => `Yellow: the pixels that change the length of ${child} most.`,
  colors: "Strokes take their parent's colour; white: undecided.",
  frame: (high, wide, child) => `Frame: the ${high} × ${wide} pixels that ${child} sees.`,
  entropyHead: "How undecided each part is",
  undecided: "undecided",
  chooses: (c) => `${c.toFixed(2)} chooses it`,
  nats: "entropy (nat): 0 decided, dashed equal among all",
  meanEntropy: (mean, undecided) => `mean ${mean} nat; equal: ${undecided}`,
  onAverage: (level) => `${level} on average`,
  beyondTraining: "beyond training",
  couplingC: "coupling c",
  moment: (r, epoch) => `Round ${r}, epoch ${epoch}`,
  isSelected: (child) => ` ${child} is selected.`,
  graphLabel: (children, parents, chosen) => `Couplings of ${children} with ${parents}. Up and down choose a child.${chosen}`,
  noAnswer: "no answer",
  longestIs: (name, length, wrong) => `longest parent ${name}, ${length}${wrong ? ", wrong" : ""}`,
  scale: (marks) => `Width of lines: ${marks}`,

  reading: [
    ["A line", "joins a child capsule, a part, to a parent capsule, a class. Its width grows with the coupling c, from 0 to 1: how much of the child goes to that parent. Its colour is the parent's. The couplings of one child sum to 1. A child chooses a parent if c has gone a tenth of the way from an equal share to 1; at or below, it is undecided."],
    ["Pull a line", "to another parent: its child then goes there alone, and all rounds run again. Let it go over the graph, and the child votes for none. Undo takes it back. A child that you pin stays in sight, and can have a name."],
    ["A round", "of routing turns logits b into couplings (a softmax over the parents), adds up the votes, and raises b where a child's vote agrees with the parent. In the first all couplings are equal. Drag along the curve to go through the rounds."],
    ["The lengths", "of the parents, from 0 to 1, say how sure the network is that the class is there. A wrong answer has ✗, and the true label ✓."],
    ["The pictures", "of children and parents are drawn by the decoder: of a child what its vote alone would look like, of a parent what it is in this round. A network without a decoder shows which pixels move each child."],
    ["The curve", "of a child's entropy is high while it spreads over all parents and 0 when it has chosen one. It has the colour of the parent that the child chooses."],
    ["Keys", `${KEYS[0]} ${KEYS[1]} round, ${KEYS[2]} with them epoch, ${KEYS[3]} play, ${KEYS[4]} to a parent or the graph, where ${KEYS[5]} ${KEYS[6]} choose a child, ${KEYS[7]} show all lines.`],
  ],
  terms: {
    child: ["child", "A child is a capsule of the lower layer: a vector that describes one part of the image."],
    parent: ["parent", "A parent is a capsule of the last layer: a vector that stands for one class."],
    vote: ["vote", "A vote û is what a child predicts a parent's vector to be: the child's vector times a learned matrix."],
    logit: ["logit", "A logit b of a child and a parent is what the coupling is made of: the larger beside the child's others, the more."],
    coupling: ["coupling", "A coupling c, from 0 to 1, is how much of a child goes to a parent; those of one child sum to 1."],
    agreement: ["agreement", "Agreement ⟨û, v⟩ is the inner product of a vote and its parent: large where they point the same way."],
    entropy: ["entropy", "Entropy −Σ c ln c of a child is 0 when it has chosen one parent and largest when all its couplings are equal."],
    iteration: ["round", "A round of routing, or iteration: couplings from logits, parents from couplings, new logits from agreement."],
    routing: ["routing", "Routing decides for each image to which parents the children's votes go."],
    squash: ["squash", "Squashing keeps a vector's direction and makes its length n into n² / (1 + n²), which is below 1."],
    length: ["length", "The length of a parent's vector, from 0 to 1, says how sure the network is that the class is there."],
    decoder: ["decoder", "The decoder is a small network that draws an image from one parent's vector."],
  },

  aCapsule: `<h2>1. What a capsule is</h2>
    <p>Most networks describe what they find with single numbers, one for each kind of thing. A <b>capsule</b> is a small
    group of numbers, a vector. Its <dfn tabindex="0" data-term="length">length</dfn> says how sure the network is that the thing is
    there. Its direction says how the thing looks: how it leans, how bold it is, where it lies.</p>
    <p>This network has capsules of two kinds. It turns the image into <span data-fact="children"></span>, the
    <dfn tabindex="0" data-term="child">children</dfn>, which stand for parts. Its last layer has <span data-fact="parents"></span>
    which stand for what the image can show.</p>
    <p>A <dfn tabindex="0" data-term="parent">parent</dfn> holds more than a yes or no. A <dfn tabindex="0" data-term="decoder">decoder</dfn> can
    draw an image from its numbers alone. Move one of them: the drawing changes in one way, it leans, it widens, or a
    stroke gets longer. Nobody told the network what a number should mean.</p>`,
  aVote: `<h2>2. A vote</h2>
    <p>Whoever sees a nose knows roughly where the face is, how large it is and how it is turned. A child does the same
    with numbers. It multiplies its vector by a matrix that was learned, another one for each parent. The result is its
    <dfn tabindex="0" data-term="vote">vote</dfn> û: what that parent would be, if this child were a part of it.</p>
    <p>The arrows are all votes for <span data-fact="parent"></span>. The thick arrow is
    <span data-fact="parent"></span> itself: the sum of the votes, each times its coupling,
    <dfn tabindex="0" data-term="squash">squashed</dfn> to a length below 1.</p>
    <p>Point at an arrow: the same vote lights up in the graph, in the four lines above, and in the figures below. Votes
    stay as they are in all rounds.<span class="by-rounds"> What changes is how much each one counts. Go back to round 1
    and forward again: arrows that point where many others point grow, and the rest fades.</span></p>`,
  anAgreement: `<h2>3. Agreement</h2>
    <p>Parts of one thing predict the same thing: their votes point the same way. Parts that have nothing to do with
    each other contradict each other.</p>
    <p>The <dfn tabindex="0" data-term="agreement">agreement</dfn> of a vote with a parent is the sum of the products of their
    numbers. Each pair of bars is one number: the outline belongs to the vote of
    <span data-fact="child"></span>, the filled bar to <span data-fact="parent"></span>. Below is what the pair adds.
    All in all they agree by <span data-fact="agreementFirst"></span><span class="by-rounds"> in round 1, and by
    <span data-fact="agreementLast"></span> in round <span data-fact="rounds"></span></span>.</p>
    <p><span class="by-rounds">What a vote agrees with was made by the votes themselves: a few that agree pull their
    parent towards them, so they agree with it more. </span>Agreement goes into the
    <dfn tabindex="0" data-term="logit">logit</dfn> b: a child has one for each parent.</p>`,
  theCompetition: `<h2>4. Competition</h2>
    <p>No child can go to everyone. A <b>softmax</b> makes its logits into <dfn tabindex="0" data-term="coupling">couplings</dfn> that
    sum to 1, so what one parent gains, the others lose. Each line is a parent and what it gets. Of <span data-fact="child"></span>,
    <span data-fact="parent"></span> gets <span data-fact="cFirst"></span><span class="by-rounds"> in round 1, and
    <span data-fact="cLast"></span> in round <span data-fact="rounds"></span></span>.</p>
    <p>This is how routing takes things apart that lie over each other. Both claim the same strokes, but a part that
    helps to build one is lost to the other.</p>
    <p>How undecided a child is, is its <dfn tabindex="0" data-term="entropy">entropy</dfn>: 0 nat where it has chosen, most where it
    spreads equally.<span class="by-rounds"> On this image the mean falls from <span data-fact="entropyFirst"></span> to
    <span data-fact="entropyLast"></span> nat, in a few <dfn tabindex="0" data-term="iteration">rounds</dfn>.</span></p>
    <p>Now interfere: in the graph, pull a line to another parent. That parent grows if the vote agrees with its
    others, the one it left shrinks, and other parts may change sides.</p>`,
  itsLimits: `<h2>5. What it is not good for</h2>
    <p>The lines aren't an explanation made afterwards: the answer was computed with them. But they say which
    parts went where, not that the answer is right, or that routing was needed for it.</p>
    <p><b>It is often not needed.</b> With equal couplings, <i>uniform</i>, the same votes often give the same answer:
    compare here. Networks trained that way answer images about as well as routed ones.</p>
    <p><b>It doesn't know what it never saw.</b> Capsules were invented to cope with new points of view. Yet digits
    turned by 60 degrees are mostly answered wrongly, if none was turned in training. Turn yours.</p>
    <p><b>It is sure of nonsense.</b> Routing strengthens what votes agree on, right or wrong. A letter or a scribble
    gets a class too, and rounds beyond training make a wrong answer surer, not better.</p>
    <p><b>Its parts are not ours.</b> A child needn't be a part that a person would name, and some never choose.</p>
    <p>It pays where several causes compete for the same parts and you want to know which part has which cause, as in
    some graphs. For accuracy on images alone, try a convolutional network first. The idea is by Sabour, Frosst and
    Hinton (2017).</p>`,

  fewVectors: (n) => counted(n, "small vector", "small vectors"),

  doesntFit: "The end of this link doesn't fit this page, so it is left out.",
  tooLong: "This drawing is too long for a link.",
  linkCopied: "The link is copied.",
  linkInField: "Copy the link from the field.",
  thisMachine: " It opens this file, on this machine: others need the file too.",
  saved: (name) => `Saved as ${name}.`,
  notSaved: (message) => `The view can't be saved: ${message}.`,

  seenSize: (wide, high) => `What the network sees: ${wide} × ${high} pixels.`,
  testImageOf: (name) => `Test image: ${name}`,
  drawing: "Your drawing",
  changed: (name) => `${name}, changed`,
  cantAnswer: (error) => `The network can't answer: ${error}.`,
  threadStopped: "the page's thread has stopped",
  readAs: (names, doubt) =>
    doubt === "short"
      ? `read as ${names.slice(0, -1).join(" + ")}, perhaps ${names.at(-1)}`
      : `${doubt ? "perhaps" : "read as"} ${names.join(" + ")}`,
  capsuleOf: (name, count) => `Vary the ${name}: its capsule is ${counted(count, "number", "numbers")}`,
  number: (d) => `number ${d}`,
  and: " and ",
  blank: "No answer: there is nothing on the sheet.",
  short: (name, share) => `${name} is doubtful: ${share} of right answers are surer. `,
  always: (noun, n) => `Trained on ${n} ${words.plurals[noun]} at once, it names ${n} even where you draw one.`,
  unlike: (share) => `Doubtful: unlike the images of training. ${share} of right answers are surer.`,
  wayTo: (child) => `From the pixels to ${child}`,
  wayNote: (high, wide, some, all) =>
    `It sees ${high} × ${wide} pixels, in the frame. Of ${counted(all, "feature map", "feature maps")} these ${some} add ` +
    `most to its vector before squash: below each, its part. Others can take away.`,
  mapOf: (channel, share) => `Feature map ${channel}, ${share}`,

  why: "How routing came to this, in five figures",
  nextLine: "Next line",
  parent: "parent",
  childWord: "child",
  votesAsNumbers: (rows, scroll) => `These votes as numbers, ${counted(rows, "row", "rows")}${scroll ? ", which scroll" : ""}`,
  strongestWith: (name) => `, the part that couples most strongly with ${name}`,
  subject: (child, how, parent) => `${child}${how}, and its parent ${parent}. Choose another line or child in the graph.`,
  carriedVotes: (epoch) => `Votes are those of the network that the page carries, after epoch ${epoch}.`,
  pass: (onePass, r, child, parent) => `${onePass ? "The one pass" : `Round ${r}`} for ${child} → ${parent}`,
  stepThrough: "Step through",
  nextIteration: "Next round",
  lines: { softmax: "softmax", sum: "sum", squash: "squash", agreement: "agreement" },
  votesFor: (n, name) => `${counted(n, "vote", "votes")} for ${name}`,
  plane: (name, rounds) =>
    `To the right is along ${name} as it is after ${counted(rounds, "round", "rounds")}, up is across ` +
    `it, where votes differ most. The stronger an arrow, the larger its coupling. The thick one is ${name} itself; ` +
    `dashed: length 1. Dotted: `,
  meanAngle: (angle, first) =>
    `the mean angle between votes and parent, weighed by coupling and length: ${angle}${first && `, in round 1 ${first}`}.`,
  inPlane: (head, chosen, angle) => `${head} in the plane. Up and down choose a child.${chosen} ${angle}`,
  isMarked: (child) => ` ${child} is marked.`,
  lengthIs: (name, length) => `${name}, length ${length}`,
  ofParent: (what, name) => `${what} of ${name}`,
  bars: (dim, called, cosine, sizes, product, note) =>
    `The ${dim} numbers of both, each drawn so that its longest bar is equally high; below, what each pair adds to ⟨û, ${called}⟩. ` +
    `Their cosine = ${cosine}. Lengths times cosine: ${sizes[0]} · ${sizes[1]} · ${cosine} = ${product}. ${note}`,
  pairs: (called, name, pairs) => `The vote and ${called} of ${name}, number by number: ${pairs}`,
  softmaxOf: (child) => `The softmax of ${child}`,
  shares: (child, name, shares) => `Couplings of ${child} over the rounds. With ${name}: ${shares}`,
  prior: "prior",
  added: (r, last) =>
    `The agreement is added: b of round ${r + 2}.` + (last ? ` Training ends after round ${r + 1}, so this b is no longer used.` : ""),
  replaced: (b, r) =>
    `It replaces b, which was ${b}: b of round ${r + 2}. κ is the concentration, ρ the usual length of votes for this parent.`,
  computedOnce: "Computed once, before the one pass: the vote against the sum of all votes for this parent.",
  unused: (agreement) => `Its agreement ⟨û, v⟩ is ${agreement}, and uniform routing doesn't use it. There is one pass.`,
  voteAlone: (child, length) => `The vote of ${child} alone, squashed to length ${length}, as the decoder draws it.`,
  parentDrawn: (name, r) => `${name} after round ${r}, all votes counted, as the decoder draws it.`,

  routing: (name, n) => `${name} routing${n === null ? "" : `, ${counted(n, "round", "rounds")}`}`,
  iterations: (n) => counted(n, "round", "rounds"),
  trainedWith: (name) => `${name} (trained)`,
  blankAnswer: "none: the sheet is blank",
  blankSheet: "A blank sheet has no answer.",
  bothAnswer: (name) => `Both answer ${name}.`,
  answerChanges: (names, routings) => `The answer changes: ${names[0]} with ${routings[0]}; ${names[1]} with ${routings[1]}.`,
  noneDiffers: "None by 0.001 or more.",
  otherRouting: (routing) =>
    `The weights were trained with ${routing}. Any other routing never took part in training: this shows what it ` +
    `makes of the same votes, not what a network trained with it would say.`,
  lastLayerOnly: "Only the routing of the last layer is exchanged.",
  concentration: "Spherical routing learns its concentration κ; none was learned here, so it is 1.",
};

// Take words of the page's own, some in place of those above.
export function speak(own) {
  Object.assign(words, own);
}
