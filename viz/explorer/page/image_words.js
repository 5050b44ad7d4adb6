// The words of the explorer of images.

import { counted, sentence, thousands } from "./tools.js";
import { KEYS, SHOWN, words } from "./words.js";

Object.assign(words, {
  // `given` are [name, how many children give it most of themselves], the largest number first, or null for an empty sheet
  title(noun, objects, given, children) {
    const question = `Which ${objects > 1 ? words.plurals[noun] : noun}?`;
    if (given === null) return `${question} The sheet is empty`;
    if (!given.length) return `${question} No ${words.part} of ${thousands(children)} gives most of itself to one`;
    const texts = given.slice(0, SHOWN).map(([name, count], at) => `${thousands(count)}${at ? "" : ` of ${words.parts(children)}`} ${at ? "" : count === 1 ? "gives most of itself " : "give most of themselves "}to ${name}`),
      others = given.slice(SHOWN).reduce((sum, [, count]) => sum + count, 0);
    return `${question} ${texts.join(", ")}${others ? `, ${thousands(others)} to others` : ""}`;
  },
  plurals: { digit: "digits", class: "classes", parent: "parents" },
  part: "part",
  parts: (n) => counted(n, "part", "parts"),
  lead: (noun, pictured) =>
    `Each part ${pictured ? `that the network finds votes for how the whole ${noun === "class" ? "object" : noun} looks` : "votes for its parents"}. ` +
    "Votes that agree with each other receive a larger share in the next round, and their ribbons grow.",
  columns: (decoded, seen) => [`Parts (child capsules)${decoded ? ", each with its vote" : seen ? ", each with the pixels that it depends on" : ""}`, "Wholes (parents), length"],
  pulling: 'Pull a ribbon<span class="wide"> to another parent</span>.',
  hint: (noun, objects) => (noun === "digit" ? `Draw a digit here${objects > 1 ? ", then another one over it" : ""}` : "Draw here"),

  takenFor: (name, wrong) => `The network took ${name} for ${wrong}`,
  of: (one, all) => `${one} of ${all}`,
  untrained: "untrained",
  others: (n, noun, most) => `${counted(n, `other ${noun}`, `other ${words.plurals[noun]}`)}: none above ${(Math.ceil(100 * most) / 100).toFixed(2)}`,
  unfold: "Show each parent",
  fold: "Join the others",
  givesOthers: (name, n) => `${sentence(name)} gives this to ${counted(n, "other parent", "other parents")}`,
  children: (n) => counted(n, "child", "children"),
  parents: (n) => counted(n, "parent", "parents"),
  someChildren: (some, all) => `The graph shows ${some} of ${words.children(all)}, those that couple most strongly with each parent`,
  goesTo: (child) => `Send ${child} to`,
  pin: (child, pinned) => (pinned ? "Unpin" : `Pin ${child} to keep it in sight`),
  nameOf: (child) => `Name of ${child}`,
  name: "a name for it",
  noParent: "no parent",
  was: (length) => `was ${length.toFixed(2)}`,
  again: "All rounds ran again, and the other parts chose anew. ",
  joined: (child, name, before, after) => ` ${name} rises because ${child} now gives it ${Math.round(100 * after)} % of its vote instead of ${Math.round(100 * before)} %.`,
  disagrees: (child, name) => ` ${sentence(child)}'s vote for ${name} hardly agrees with the votes of the other parts, and the sum of those votes is now shorter.`,
  inAnswer: (r) => `In round ${r}, which gives the answer, `,
  pulledFrom: (child) => `, from which you pulled ${child}, `,
  pulledTo: (child) => `, to which you pulled ${child}, `,
  change: (name, before, after, pulled = " ") =>
    before.toFixed(2) === after.toFixed(2) ? `${name}${pulled}stays at ${after.toFixed(2)}` : `${name} ${after < before ? "falls" : "rises"} from ${before.toFixed(2)} to ${after.toFixed(2)}`,
  noChange: "no length changes by 0.03 or more",
  oneChild: "One child",
  child: (n) => `part #${n}`, // a bare number would look like a class
  tag: (n) => `#${n}`,
  amount: (length) => length.toFixed(2),
  divides: (child) => `${sentence(child)} divides its vote`,
  chooseChild: "Choose a child or a ribbon in the graph to see how the child divides its vote among the parents.",
  sumsTo1: (entropy) => `The couplings c sum to 1. Their entropy is ${entropy} nat.`,
  gives: (child, c, name) => `${sentence(child)} gives ${Math.round(100 * c)} % of its vote to ${name}`,
  tipChild: (entropy) => `entropy  ${entropy} nat`,
  marks: (named, wrong, truth) => [named && ", named by the network", wrong && ", wrong", truth && ", the true label"].filter(Boolean).join(""),
  sheet: (truth) => `The image${truth === undefined ? "" : `, whose true label is ${truth}`}.`,
  glowOfChild: (child) => `The yellow pixels change the length of ${child} most.`,
  colors: "Each stroke has the colour of its parent. White strokes are undecided.",
  frame: (high, wide, child) => `The frame holds the ${high} × ${wide} pixels that ${child} sees.`,
  entropyHead: "How undecided each part is",
  onAverage: (level) => `${level} on average`,
  moment: (r, epoch) => `Round ${r}, epoch ${epoch}`,
  isSelected: (child) => ` ${child} is selected.`,
  graphLabel: (children, parents, chosen) => `Couplings of ${children} with ${parents}. The keys Up and Down choose a child.${chosen}`,
  noAnswer: "no answer",
  longestIs: (name, length, wrong) => `the longest parent is ${name} with ${length}${wrong ? ", which is wrong" : ""}`,

  reading: [
    ["A strip", `is a child capsule, which stands for a part. It is cut into the shares that the child gives to the parent
      capsules, which stand for classes. A share is a coupling c, a number from 0 to 1, and the shares of one child sum to
      1. Each share flows as a ribbon to its parent, where all that arrives stacks up. The parents that the network names
      are coloured. All others share one grey bar.`],
    ["Three words", `A child gives most of itself to a parent if their coupling is above one half. It chooses a parent if
      the coupling is more than half of the way from chance (an equal share) to 1, and it is undecided if its largest
      coupling has gone less than a tenth of that way.`],
    ["Pull a ribbon", `to another parent, and all rounds run again with the child's whole vote going there. If you let the
      ribbon go over the graph, the child votes for no parent. Undo takes the pull back. You can pin a child and give it a
      name.`],
    ["A round", `of routing has three steps. A softmax over the parents turns the logits b into couplings. Each parent
      adds up its votes. Then b rises where a child's vote agrees with the parent. All couplings are equal in the first
      round. Drag along the curve to move through the rounds.`],
    ["The lengths", `of the parents, from 0 to 1, are the network's evidence that the class is in the image. They don't tell
      how sure the answer is. A parent is named if it is longer than the network's threshold. The mark ✗ stands beside a
      wrong answer, and ✓ beside the true label.`],
    ["The pictures", `are drawn by the decoder. A child is drawn as its vote alone would look, and a parent as it looks
      in this round. If the network has no decoder, you see instead which pixels each child depends on.`],
    ["The curve", `shows the entropy of each child. It is high while the child spreads its vote over all parents, and 0
      when the child has chosen one. Each curve has the colour of the parent that its child chooses.`],
    ["Keys", `${KEYS[0]} ${KEYS[1]} change the round, and with ${KEYS[2]} the epoch. ${KEYS[3]} plays the rounds.
      ${KEYS[4]} moves to a parent or to the graph, where ${KEYS[5]} ${KEYS[6]} choose a child. ${KEYS[7]} shows all
      ribbons.`],
  ],
  terms: {
    child: ["child", "A child is a capsule of the lower layer. Its vector describes one part of the image."],
    parent: ["parent", "A parent is a capsule of the last layer. Its vector stands for one class."],
    vote: ["vote", "A vote û is a child's prediction of a parent's vector. It is the child's vector times a learned matrix."],
    logit: ["logit", "A child has a logit b for each parent. The larger this logit is than the child's other logits, the larger is the coupling with this parent."],
    coupling: ["coupling", "A coupling c, from 0 to 1, is the share of a child's vote that a parent receives. The couplings of one child sum to 1."],
    agreement: ["agreement", "The agreement ⟨û, v⟩ is the inner product of a vote and its parent. It is large if both are long and point the same way."],
    entropy: ["entropy", "The entropy −Σ c ln c of a child is 0 when the child has chosen one parent. It is largest when all its couplings are equal."],
    iteration: ["round", "A round, or iteration, of routing computes couplings from logits, then parents from couplings, then new logits from agreement."],
    routing: ["routing", "Routing decides, for each image, to which parents the votes of the children go."],
    squash: ["squash", "Squashing keeps the direction of a vector and changes its length from n to n² / (1 + n²), which is below 1."],
    length: ["length", "The length of a parent's vector, from 0 to 1, is the network's evidence that the class is in the image."],
    decoder: ["decoder", "The decoder is a small network that draws an image from the vector of one parent."],
  },

  aCapsule: `<h2>1. What a capsule is</h2>
    <p>Most networks describe what they find with single numbers, one for each kind of thing. A <b>capsule</b> is a
    small group of numbers, a vector. Its <dfn tabindex="0" data-term="length">length</dfn> is the network's
    evidence that the thing is there. Its direction tells how the thing looks: its slant, its thickness and its place.</p>
    <p>This network has two kinds of capsules. It turns the image into <span data-fact="children"></span>, the
    <dfn tabindex="0" data-term="child">children</dfn>, which stand for parts. Its last layer has
    <span data-fact="parents"></span>, which stand for what the image can show.</p>
    <p>A <dfn tabindex="0" data-term="parent">parent</dfn> holds more than a yes or no. A
    <dfn tabindex="0" data-term="decoder">decoder</dfn> can draw an image from its numbers alone. Move one of the
    numbers, and the drawing changes in one way: it may lean, widen, or grow a longer stroke. Nobody chose what each
    number means.</p>`,
  aVote: `<h2>2. A vote</h2>
    <p>If you see a nose, you can tell roughly where the face is, how large it is and how it is turned. A child does the
    same with numbers. It multiplies its vector by a learned matrix, a different one for each parent. The result is its
    <dfn tabindex="0" data-term="vote">vote</dfn> û, a prediction of how that parent looks if this child is a part of
    it.</p>
    <p>Each arrow is a vote for <span data-fact="parent"></span>. The thick arrow is <span data-fact="parent"></span>
    itself: each vote is multiplied by its coupling, the products are added, and the sum is
    <dfn tabindex="0" data-term="squash">squashed</dfn> to a length below 1.</p>
    <p>Point at an arrow, and the same vote lights up in the graph, in the four lines above and in the figures below.
    The votes are the same in all rounds.<span class="by-rounds"> Only their couplings change. Go back to round 1 and
    then forward again: the arrows that point the same way as many others grow, and the rest fade.</span></p>`,
  anAgreement: `<h2>3. Agreement</h2>
    <p>Parts of one thing predict the same thing, so their votes point the same way. Parts that have nothing to do with
    each other contradict each other.</p>
    <p>The <dfn tabindex="0" data-term="agreement">agreement</dfn> of a vote with a parent is computed number by number:
    multiply the two numbers of each pair, then add the products. In each pair of bars, the outline belongs to the vote
    of <span data-fact="child"></span> and the filled bar to <span data-fact="parent"></span>. The small bar below is
    their product. The agreement of the two is <span data-fact="agreementFirst"></span><span class="by-rounds"> in round
    1 and <span data-fact="agreementLast"></span> in round <span data-fact="rounds"></span></span>.</p>
    <p><span class="by-rounds">The votes themselves make the parent that they are compared with. A few votes that agree
    pull the parent towards them, and in the next round they agree with it even more. </span>Routing adds the agreement
    to the <dfn tabindex="0" data-term="logit">logit</dfn> b, of which a child has one for each parent.</p>`,
  theCompetition: `<h2>4. Competition</h2>
    <p>No child can give its whole vote to everyone. A <b>softmax</b> turns its logits into
    <dfn tabindex="0" data-term="coupling">couplings</dfn> that sum to 1, so what one parent gains, the others lose.
    Each curve shows the share of one parent. <span data-fact="parent"></span> receives a share of
    <span data-fact="cFirst"></span><span class="by-rounds"> in round 1 and <span data-fact="cLast"></span> in round
    <span data-fact="rounds"></span></span> from <span data-fact="child"></span>.</p>
    <p>This is how routing separates things that lie over each other. Two digits may claim the same strokes, but a part
    that helps to build one of them is lost to the other.</p>
    <p>The <dfn tabindex="0" data-term="entropy">entropy</dfn> measures how undecided a child is. It is 0 nat when the
    child has chosen, and largest when its shares are equal.<span class="by-rounds"> On this image, the mean falls from
    <span data-fact="entropyFirst"></span> to <span data-fact="entropyLast"></span> nat within a few
    <dfn tabindex="0" data-term="iteration">rounds</dfn>.</span></p>
    <p>Now interfere. Pull a ribbon in the graph to another parent. The new parent grows if the vote agrees with its other
    votes, the old parent shrinks, and other parts may change sides.</p>`,
  itsLimits: `<h2>5. What routing is not good for</h2>
    <p>The ribbons are not an explanation made afterwards, because the network computed its answer with them. But they
    only show which parts went where. They don't prove that the answer is right, or that routing was needed for it.</p>
    <p><b>Routing is often not needed.</b> With equal couplings (<i>uniform</i>), the same votes often give the same
    answer, as you can compare here. Networks that were trained with equal couplings answer about as many images
    correctly.</p>
    <p><b>Routing can't recognise what the network never saw.</b> Capsules were invented to cope with new points of
    view. Yet the network misreads most digits that are turned by 60 degrees, if no digit was turned in training. Turn
    yours.</p>
    <p><b>Routing is sure of nonsense.</b> It strengthens what the votes agree on, right or wrong. A letter or a
    scribble is read as a class too, and rounds beyond training make a wrong answer surer, not better.</p>
    <p><b>The parts are not ours.</b> A child may stand for a part that no person would name, and some children never
    choose.</p>
    <p>Routing pays where several causes compete for the same parts and you want to find out which part has which cause,
    as in some graphs. If you only need accuracy on images, try a convolutional network first. The idea of routing comes
    from Sabour, Frosst and Hinton (2017).</p>`,

  fewVectors: (n) => counted(n, "small vector", "small vectors"),
  saved: (name) => `Saved as ${name}.`,
  notSaved: (message) => `The view can't be saved: ${message}.`,

  seenSize: (wide, high) => `The network sees ${wide} × ${high} pixels.`,
  testImageOf: (name) => `Test image: ${name}`,
  drawing: "Your drawing",
  changed: (name) => `${name}, changed`,
  cantAnswer: (error) => `The network can't answer: ${error}.`,
  threadStopped: "the page's thread has stopped",
  readAs: (names, doubt, noun) => (names.length ? `${doubt === "unlike" ? "perhaps" : "read as"} ${names.join(" + ")}` : words.noneNamed(noun)),
  noneNamed: (noun) => `no ${noun} is named`,
  capsuleOf: (name, count) => `Vary the ${name}, a capsule of ${counted(count, "number", "numbers")}`,
  number: (d) => `number ${d}`,
  blank: "There is no answer, because the sheet is empty.",
  unlike: (share) => `This answer is doubtful, because the drawing is unlike the images of training. The network is surer of ${share} of its right answers.`,
  wayTo: (child) => `From the pixels to ${child}`,
  wayNote: (high, wide, some, all) =>
    `The child sees the ${high} × ${wide} pixels in the frame. Of ${counted(all, "feature map", "feature maps")}, these ${some} add ` +
    `most to its vector before squashing, each by the share below it. Other maps may subtract from it.`,
  mapOf: (channel, share) => `Feature map ${channel}, ${share}`,

  why: "How routing reached this answer, in five figures",
  parent: "parent",
  childWord: "child",
  strongestWith: (name) => `, the part that couples most strongly with ${name}`,
  subject: (child, reason, parent) => `This is about ${child}${reason}, and its parent ${parent}. Choose another ribbon or child in the graph.`,
  thickArrow: (name) => `${name} itself`,
  lengthIs: (name, length) => `${name}, length ${length}`,
  voteAlone: (child, length) => `The decoder's drawing of the vote of ${child} alone, squashed to length ${length}.`,
  parentDrawn: (name, r) => `The decoder's drawing of ${name} after round ${r}, from all votes.`,

  routing: (name, n) => `${name} routing${n === null ? "" : `, ${counted(n, "round", "rounds")}`}`,
  iterations: (n) => counted(n, "round", "rounds"),
  trainedWith: (name) => `${name} (trained)`,
  none: "none above the threshold",
  blankAnswer: "none, because the sheet is empty",
  blankSheet: "An empty sheet has no answer.",
  bothAnswer: (name) => `Both routings answer ${name}.`,
  answerChanges: (names, routings) => `The answer changes from ${names[0]} with ${routings[0]} to ${names[1]} with ${routings[1]}.`,
  noneDiffers: "No coupling differs by 0.001 or more.",
  otherRouting: (routing) =>
    `The weights were trained with ${routing}. Other routings took no part in training. You see what they make ` +
    `of the same votes, not what a network trained with them would answer.`,
  lastLayerOnly: "Only the routing of the last layer is exchanged.",
  concentration: "Spherical routing learns its concentration κ. This network has none, so κ is 1.",
});
