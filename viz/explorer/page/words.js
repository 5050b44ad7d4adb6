// All words of the page: texts, lists, and functions of numbers and names. A text of page.html's elements may hold markup.

const KEYS = ["←", "→", "Shift", "Space", "Tab", "↑", "↓", "Esc"].map((key) => `<kbd>${key}</kbd>`);

const words = {
  // the title, by the rule of viz/routing/entropy.py
  choice(free, choosing, nearlyEqual) {
    if (free === 0) return "One parent for each child: nothing to choose";
    if (nearlyEqual) return "Couplings nearly equal: hardly any routing";
    const children = counted(free, "child", "children");
    if (2 * choosing >= free && free > 1) return `${children} choose: ${thousands(choosing)} of them by more than half`;
    return `${choosing ? thousands(choosing) : "None"} of ${children} ${choosing > 1 ? "choose" : "chooses"} by more than half`;
  },
  lead(children, parents, pictured, matrix) {
    const seen = pictured
      ? `The network sees ${counted(children, "part", "parts")} in the image, the children. Each divides itself among ` +
        `${counted(parents, "class", "classes")}, the parents`
      : `Each of ${counted(children, "child", "children")} divides itself among ${counted(parents, "parent", "parents")}`;
    return `${seen}: the ${matrix ? "stronger a cell" : "wider a line"}, the larger the share.`;
  },
  damaged: "This page is damaged or cut short: its data can't be read. Save or download it again.",

  theme: "Light or dark",
  share: "Share",
  copyLink: "Copy link",
  savePng: "Save PNG",
  saveSvg: "Save SVG",
  link: "Link to what the page shows",
  toTry: "Images to try",
  image: "Image",
  takenFor: (name, wrong) => `${name}, taken for ${wrong}`,
  time: "Time",
  iteration: "Iteration",
  epoch: "Epoch",
  playIterations: "Play the iterations",
  playEpochs: "Play the epochs of training",
  of: (one, all) => `${one} of ${all}`,
  beyond: "beyond training",
  untrained: "untrained",
  someEpochs: (some, all) => (some === 1 ? "the last only" : `${some} of ${all} fit`),
  matrix: "Matrix",
  showAll: "Show all",
  parentsLabel: "Parents and their lengths",
  children: (n) => counted(n, "child", "children"),
  parents: (n) => counted(n, "parent", "parents"),
  someChildren: (some, all) => `${some} of ${all} children`,
  someCouplings: (some, all) =>
    `${some} of ${all} couplings: those of the children that couple most strongly with each parent`,
  numbered: "Numbers name the children. ",
  order: "Children stand in the order of the parents that they go to on average: the same order for every image.",
  oneChild: "One child",
  selectedChild: "Selected child",
  parent: "parent",
  agreement: "agreement",
  childWord: "child",
  child: (n) => `child ${n}`,
  divides: (n) => `Child ${n} divides itself`,
  chooseChild: "Choose a child at the left of the graph, or a line, to see how it divides itself among the parents.",
  sumsTo1: (entropy) => `c sums to 1; entropy ${entropy} nat.`,
  tipEdge: (c, b, agreement) => [`coupling c  ${c}`, `logit b  ${b}`, `vote agreement  ${agreement}`],
  tipChild: (entropy) => `entropy  ${entropy} nat`,
  longest: ", the longest",
  amongLongest: (n) => `, among the ${n} longest`,
  wrongMark: ", wrong",
  trueMark: ", the true label",
  parentLabel: (name, length, mark) => `${name}, length ${length}${mark}`,
  trueLabel: (name) => `True label: ${name}. `,
  wrongLabel: (longest, truth) => `Wrong: ${longest} is longest, the true label is ${truth}. `,
  untrainedLabel: "Untrained. ",
  inputImage: "Input image",
  whereChildLooks: (child) => `Where ${child} looks`,
  whereChildrenLook: (name) => `Where the children of ${name} look`,
  glow: (name) => `Glow: the pixels that move the children which chose ${name}, weighted by coupling.`,
  glowOfChild: "Glow: the pixels that change its length most.",
  noneChose: (name) => `No child has chosen ${name} yet.`,
  partsFor: (name) => `Which parts vote for ${name}`,
  partsForWhat: "Which parts vote for what",
  colorOf: (name) => `Colour: what ${name} gets from each place.`,
  colors: "Colour: who gets most from each place.",
  noPart: (name) => `No part votes for ${name} here.`,
  frame: (high, wide, child) => ` Frame: the ${high} × ${wide} pixels that ${child} sees.`,
  entropyHead: "How undecided the children are",
  mean: "mean",
  eachChild: "each child",
  undecided: "undecided",
  meanEntropy: (mean, ratio, undecided) =>
    `Mean entropy ${mean} nat${ratio && `, ${ratio} of undecided (${undecided})`}.`,
  onAverage: (level) => `${level} on average`,
  beyondTraining: (n) => `beyond the ${n} of training`,
  axisIteration: "iteration",
  couplingC: "coupling c",
  couplingsHead: "How strong the couplings are",
  all: "all",
  with: (name, longest) => `with ${name}${longest ? " (the longest)" : ""}`,
  largest: (c, strong, edges) => `Largest ${c}; above one half: ${strong} of ${edges}.`,
  moment: (r, epoch) => `Iteration ${r}, epoch ${epoch}`,
  isSelected: (child) => ` ${child} is selected.`,
  graphLabel: (children, parents, chosen) => `Couplings of ${children} with ${parents}. Up and down choose a child.${chosen}`,
  noAnswer: "no answer",
  longestIs: (name, length, wrong) => `longest parent ${name}, ${length}${wrong ? ", wrong" : ""}`,
  scale: (matrix, marks) => `${matrix ? "Strength of cells" : "Width of lines"}: ${marks}`,

  how: "How to read it",
  termsLabel: "Terms, each with a sentence",
  reading: [
    ["A line", "joins a child capsule, a part, to a parent capsule, a class. Its width and strength grow with the coupling c: how much of the child goes to that parent. Its colour is the parent's. The couplings of one child sum to 1. The matrix shows the same as cells."],
    ["An iteration", "of routing turns logits b into couplings (a softmax over the parents), adds up the votes, and raises b where a child's vote agrees with the parent. In the first all couplings are equal."],
    ["The lengths", "of the parents, from 0 to 1, say how sure the network is that the class is there. A wrong answer has ✗, and the true label ✓."],
    ["The glow", "lights up where the children look that chose a parent: the selected one, else the longest. It counts how far their couplings are above undecided, which is an equal share for every parent. Which pixels move a child was measured once, after the last epoch."],
    ["Colours on the image", "take the glow's place where children are many, each at a place of its own: for which parents the children of a place vote, and how much they give (c times agreement). A selected parent is shown alone."],
    ["Entropy", "is high while a child spreads over all parents and 0 when it has chosen one."],
    ["Keys", `${KEYS[0]} ${KEYS[1]} iteration, ${KEYS[2]} with them epoch, ${KEYS[3]} play, ${KEYS[4]} to a parent or the graph, where ${KEYS[5]} ${KEYS[6]} choose a child, ${KEYS[7]} show all.`],
  ],
  terms: {
    child: ["child", "A child is a capsule of the lower layer: a vector that describes one part of the image."],
    parent: ["parent", "A parent is a capsule of the last layer: a vector that stands for one class."],
    vote: ["vote", "A vote û is what a child predicts a parent's vector to be: the child's vector times a learned matrix."],
    logit: ["logit", "A logit b of a child and a parent is what the coupling is made of: the larger beside the child's others, the more."],
    coupling: ["coupling", "A coupling c, from 0 to 1, is how much of a child goes to a parent; those of one child sum to 1."],
    agreement: ["agreement", "Agreement ⟨û, v⟩ is the inner product of a vote and its parent: large where they point the same way."],
    entropy: ["entropy", "Entropy −Σ c ln c of a child is 0 when it has chosen one parent and largest when all its couplings are equal."],
    iteration: ["iteration", "An iteration is one round of routing: couplings from logits, parents from couplings, new logits from agreement."],
    routing: ["routing", "Routing decides, anew for each image, to which parents the children's votes go."],
    squash: ["squash", "Squashing keeps a vector's direction and makes its length n into n² / (1 + n²), which is below 1."],
    length: ["length", "The length of a parent's vector, from 0 to 1, says how sure the network is that the class is there."],
    decoder: ["decoder", "The decoder is a small network that draws an image from one parent's vector."],
  },

  about: "What this is, why, and where it fails",
  article: [
    "A <b>capsule</b> is a small group of numbers, a vector. Its direction describes something, its length says how sure the network is that it is there. The network on this page finds small capsules in the image, the children. Each predicts, by a matrix that was learned, what the capsule of every class should be. These predictions are its votes. <b>Routing</b> then decides which votes count: in each iteration, votes that agree with a class gain weight, and the others lose it (Sabour, Frosst and Hinton, 2017).",
    "<b>Why?</b> Parts that belong together predict the same whole; parts that don't, contradict each other. If a network uses this, one can read off which part went where, for each image anew. The lines above are that reading: they are no explanation made afterwards, but the weights that the answer was computed with.",
    "<b>Where it fails.</b> Children may hardly choose at all: the title says so. On plain digits equal couplings answer about as well as routed ones. Digits that are turned by 60 degrees are mostly answered wrongly, since none was turned so in training. Routing strengthens what votes agree on, right or wrong: a letter or noise gets a class too, and more iterations than in training make a wrong answer surer. And a part that a child stands for need not be a part that a person would name.",
  ],
  try: "Try it",
  set: "Set the page for it",
  exercises: {
    steps: "Go to iteration 1, where all couplings are equal, and on, one by one. Which child chooses first, and does it look at the stroke that you would?",
    turn: "Turn the digit slowly. At which angle does the answer change? Do the children become undecided before it, or do they choose wrongly?",
    equal: "Compare this routing with equal couplings, then go through the ten hardest images. How often does the answer change, and which of the two is right?",
    epochs: "Play the epochs. When do the children begin to choose, and are the lengths right before or after that?",
    matrix: "Take the matrix, and an image with ✗ or a short longest parent. Which children went to the wrong class?",
  },

  back: "Back",
  next: "Next",
  finish: "Finish",
  leave: "Leave <kbd>Esc</kbd>",
  takeTour: "Take the tour",
  takeUp: (n, all) => `Take up the tour at ${n} of ${all}`,
  stop: (n, all, title) => `${n} of ${all}: ${title}`,
  fewVectors: (n) => counted(n, "small vector", "small vectors"),
  looks: (inPicture, framed) =>
    `${inPicture ? "in its picture " : ""}${framed ? "the frame shows what it sees" : "the glow shows the pixels that change it most"}`,
  stops: {
    child: ["A child", ({ child, few, looks }) =>
      `The network turns your image into ${few}, its children. Each is a vector that describes a part. ` +
      `${sentence(childName(child))} is selected: ${looks}.`],
    votes: ["Its votes", ({ child, name, parents, decodes }) =>
      `${sentence(childName(child))} casts a vote for each of ${parents}: what that parent would be if this part were in ` +
      `the right place. Here are the votes of all children for parent ${name}.` +
      (decodes ? ` Further on, the decoder draws the one of ${childName(child)}.` : "")],
    agreement: ["Agreement", ({ child, name, agreement }) =>
      `In iteration 1, ${childName(child)} agrees with parent ${name} by ${agreement(0)}: the sum of the products of their ` +
      `numbers. Where bars go the same way, they agree.`],
    softmax: ["Softmax", ({ child, name, coupling, onePass }) =>
      `A softmax makes couplings of the logits. Those of one child sum to 1. Parent ${name} ` +
      (onePass
        ? `gets ${coupling(0)} of ${childName(child)}.`
        : `got ${coupling(0)} of ${childName(child)} in iteration 1 and gets ${coupling(1)} in iteration 2.`)],
    round: ["A round of routing", ({ onePass }) =>
      onePass
        ? "This routing is one pass, in four lines with numbers of your image. Later iterations repeat it."
        : "One iteration is four lines, here with numbers of your image. Step through them, or play the iterations above."],
    entropy: ["Entropy", ({ entropy, trained }) =>
      `Children that are undecided have a high entropy. Their mean is ${entropy(0)} nat in iteration 1 and ` +
      `${entropy(trained - 1)} in iteration ${trained}, where training ends.`],
    done: ["What the iterations did", ({ name, length, largest, trained }) =>
      `After ${counted(trained, "iteration", "iterations")} the longest parent is ${name}, ` +
      `${length(trained - 1)} long; after one it was ${length(0)}. ` +
      `The largest coupling went from ${largest(0)} to ${largest(trained - 1)}.`],
    wrong: ["Where it goes wrong", ({ name, length, truth, ofTruth, wrong, any, taken, trained }) => {
      const because = "Routing strengthens what votes agree on. Whether that is right it can't know.";
      if (!any) return "None of the images in the list above is answered wrongly.";
      if (!wrong && taken) return `This image shows ${taken.name}, and the network says ${taken.wrong}. ${because}`;
      if (!wrong) return "An image that is answered wrongly is being routed.";
      return (
        `The label of this image is ${truth}, and the network says ${name}: its parent is ${length(trained - 1)} long, ` +
        `that of ${truth} ${ofTruth}. ${because}`
      );
    }],
  },

  doesntFit: "The end of this link doesn't fit this page, so it is left out.",
  tooLong: "This drawing is too long for a link.",
  linkCopied: "The link is copied.",
  linkInField: "Copy the link from the field.",
  thisMachine: " It opens this file, on this machine: others need the file too.",
  saved: (name) => `Saved as ${name}.`,
  notSaved: (message) => `The view can't be saved: ${message}.`,

  deskLabel: "What the network is shown",
  drawHere: "Draw here",
  undo: "Undo",
  undoTitle: "Take back the last stroke: Ctrl+Z",
  clear: "Clear",
  sheet: "Canvas to draw on with a mouse, a finger or a pen. A stroke takes an image's place, and Undo brings it back.",
  seen: "What the network sees",
  seenSize: (wide, high) => `What the network sees: ${wide} × ${high} pixels.`,
  noLimits: " This run has no limits, so only blank sheets are doubted.",
  turn: "Turn",
  right: "Right",
  down: "Down",
  thicker: "Thicker",
  answerLabel: "What the network makes of it",
  longestParents: "The longest parents",
  topsNote: (n, epoch, drawn) =>
    `always in epoch ${epoch} after the ${counted(n, "iteration", "iterations")} of training${drawn ? ", as the decoder draws them." : "."}`,
  testImageOf: (name) => `Test image: ${name}`,
  drawing: "Your drawing.",
  emptySheet: "An empty sheet.",
  changed: (name) => `${name}, changed`,
  cantAnswer: (error) => `The network can't answer: ${error}.`,
  threadStopped: "the page's thread has stopped",
  noAnswerHead: "No answer",
  doubtful: "Doubtful",
  emptyMeans: " The lengths and lines are what the network makes of an empty sheet; they name no class.",
  perhaps: (names) => `perhaps ${names}`,
  inEpoch: (epoch) => `, in epoch ${epoch}`,
  reconstruction: (name) => `Reconstruction of ${name}`,
  capsuleOf: (name, count) => `Vary the ${name}: its capsule is ${counted(count, "number", "numbers")}`,
  bendLead: "Each stands for one way to vary it. Move them:",
  bendLabel: "Reconstruction of the changed capsule",
  backToOwn: "Back to its own",
  readAs: (names) => `The image, each stroke in the colour of what it is read as: ${names}`,
  and: " and ",
  blank: (contrast, least) =>
    `the image is blank: its lightest and its darkest pixel are ${contrast} apart, less than ${least} of 1`,
  rank: (n) => `the ${{ 1: "", 2: "second ", 3: "third " }[n] ?? `${n}th `}longest capsule`,
  short: (objects, rank, value, share, limit) =>
    `${objects === 1 ? "nothing is" : `fewer than ${objects} are`} long: ${rank} has ${value}, ` +
    `${share} of right answers have ${limit} or more`,
  several: (objects, rank, value, share, limit) =>
    `${objects === 1 ? "two are" : `more than ${objects} are`} long: ${rank} has ${value}, ` +
    `${share} of right answers have ${limit} or less`,
  unlike: (value, share, limit) =>
    `the reconstruction is unlike the image: their correlation is ${value}, ${share} of right answers have ${limit} or more`,
  wayTo: (child) => `From the pixels to ${child}`,
  wayNote: (high, wide, some, all) =>
    `It sees ${high} × ${wide} pixels, in the frame. Of ${counted(all, "feature map", "feature maps")} these ${some} add ` +
    `most to its vector before squash: below each, its part. Others can take away.`,
  mapOf: (channel, share) => `Feature map ${channel}, ${share}`,

  why: "Why the couplings are what they are",
  goThere: "Go there",
  nextLine: "Next line",
  votesAsNumbers: (rows, scroll) => `These votes as numbers, ${counted(rows, "row", "rows")}${scroll ? ", which scroll" : ""}`,
  votesTable: "The votes as numbers",
  along: "along",
  across: "across",
  voteMark: "vote û",
  strongestWith: (name) => `, the child that couples most strongly with ${name}`,
  subject: (child, how, parent) => `${child}${how}, and its parent ${parent}. Choose another line or child in the graph.`,
  carriedVotes: (epoch) => `Votes are those of the network that the page carries, after epoch ${epoch}.`,
  pass: (onePass, r) => `${onePass ? "The one pass" : `Iteration ${r}`} in its four lines`,
  stepThrough: "Step through",
  nextIteration: "Next iteration",
  lines: { softmax: "softmax", sum: "sum", squash: "squash", agreement: "agreement" },
  votesFor: (n, name) => `${counted(n, "vote", "votes")} for ${name}`,
  plane: (name, iterations) =>
    `To the right is along ${name} as it is after ${counted(iterations, "iteration", "iterations")}, up is across ` +
    `it, where votes differ most. The stronger an arrow, the larger its coupling. The thick one is ${name} itself; ` +
    `dashed: length 1. Dotted: `,
  meanAngle: (angle, first) =>
    `the mean angle between votes and parent, weighed by coupling and length: ${angle}${first && `, in iteration 1 ${first}`}.`,
  inPlane: (head, chosen, angle) => `${head} in the plane. Up and down choose a child.${chosen} ${angle}`,
  isMarked: (child) => ` ${child} is marked.`,
  lengthIs: (name, length) => `${name}, length ${length}`,
  ofParent: (what, name) => `${what} of ${name}`,
  bars: (dim, called, cosine, sizes, product, note) =>
    `The ${dim} numbers of both, each drawn so that its longest bar is equally high; below, what each pair adds to ⟨û, ${called}⟩. ` +
    `Their cosine = ${cosine}. Lengths times cosine: ${sizes[0]} · ${sizes[1]} · ${cosine} = ${product}. ${note}`,
  pairs: (called, name, pairs) => `The vote and ${called} of ${name}, number by number: ${pairs}`,
  softmaxOf: (child) => `The softmax of ${child}`,
  prior: "prior",
  added: (r, last) =>
    `The agreement is added: b of iteration ${r + 2}.` +
    (last ? ` Training ends after iteration ${r + 1}, so this b is no longer used.` : ""),
  replaced: (b, r) =>
    `It replaces b, which was ${b}: b of iteration ${r + 2}. κ is the concentration, ρ the usual length of votes for this parent.`,
  computedOnce: "Computed once, before the one pass: the vote against the sum of all votes for this parent.",
  unused: (agreement) => `Its agreement ⟨û, v⟩ is ${agreement}, and uniform routing doesn't use it. There is one pass.`,
  voteAlone: (child, length) => `The vote of ${child} alone, squashed to length ${length}, as the decoder draws it.`,
  parentDrawn: (name, r) => `${name} after iteration ${r}, all votes counted, as the decoder draws it.`,

  compare: "Another routing of the same votes",
  compareTwo: "Compare two routings of this image",
  firstRouting: "First routing",
  secondRouting: "Second routing",
  firstIterations: "Iterations of the first routing",
  secondIterations: "Iterations of the second routing",
  answer: "answer",
  meanEntropyRow: "mean entropy",
  differMost: "Couplings that differ most: first, second",
  routing: (name, n) => `${name} routing${n === null ? "" : `, ${counted(n, "iteration", "iterations")}`}`,
  iterations: (n) => counted(n, "iteration", "iterations"),
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
