// All words of the page, one object per language with the same keys: texts, lists, and functions of numbers and names.
// A text of page.html's elements may hold markup. To translate the page, translate one object.

const KEYS = ["←", "→", "Shift", "Space", "Tab", "↑", "↓", "Esc"].map((key) => `<kbd>${key}</kbd>`);

const WORDS = {
  en: {
    ofData: (text) => text,
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

    language: "Deutsch: this page in German",
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
  },
  de: {
    // of the texts in the data, which are English
    ofData(text) {
      const known = {
        "One of each class": "Eins jeder Klasse",
        "Test images": "Testbilder",
        "Hardest for this network": "Am schwersten für dieses Netz",
        "No digit at all": "Keine Ziffer",
        "Of none of the classes": "Von keiner der Klassen",
        "letter A": "Buchstabe A",
        noise: "Rauschen",
      };
      return known[text] ?? text.replace(/ turned$/, " gedreht").replace(/^run /, "Lauf ").replace(/^(\d+) epochs$/, "$1 Epochen")
        .replace(/^1 epoch$/, "1 Epoche").replace(/^(test )?image (\d+)$/i, (_, test, n) => `${test ? "Testbild" : "Bild"} ${n}`)
        .replace(/^Nothing can be drawn here:/, "Hier kann nichts gezeichnet werden:").replace(/^(\S+) on (\S+)$/, "$1 auf $2");
    },
    choice(free, choosing, nearlyEqual) {
      if (free === 0) return "Für jedes Kind ein Elternteil: nichts zu wählen";
      if (nearlyEqual) return "Kopplungen fast gleich: kaum Routing";
      const children = counted(free, "Kind", "Kinder");
      if (2 * choosing >= free && free > 1) return `${children} wählen: ${thousands(choosing)} von ihnen zu mehr als der Hälfte`;
      const some = choosing > 1 ? thousands(choosing) : choosing ? "Eins" : "Keins";
      return `${some} von ${counted(free, "Kind", "Kindern")} ${choosing > 1 ? "wählen" : "wählt"} zu mehr als der Hälfte`;
    },
    lead(children, parents, pictured, matrix) {
      const seen = pictured
        ? `Das Netz sieht ${counted(children, "Teil", "Teile")} im Bild, die Kinder. Jedes verteilt sich auf ` +
          `${counted(parents, "Klasse", "Klassen")}, die Eltern`
        : `Jedes von ${counted(children, "Kind", "Kindern")} verteilt sich auf ${counted(parents, "Elternteil", "Eltern")}`;
      return `${seen}: je ${matrix ? "kräftiger eine Zelle" : "breiter eine Linie"}, desto größer der Anteil.`;
    },
    damaged: "Diese Seite ist beschädigt oder abgeschnitten: Ihre Daten sind nicht lesbar. Bitte noch einmal speichern oder laden.",

    language: "English: this page in English",
    theme: "Hell oder dunkel",
    share: "Teilen",
    copyLink: "Link kopieren",
    savePng: "PNG speichern",
    saveSvg: "SVG speichern",
    link: "Link zu dem, was die Seite zeigt",
    toTry: "Bilder zum Ausprobieren",
    image: "Bild",
    takenFor: (name, wrong) => `${name}, gehalten für ${wrong}`,
    time: "Zeit",
    iteration: "Iteration",
    epoch: "Epoche",
    playIterations: "Die Iterationen abspielen",
    playEpochs: "Die Epochen des Trainings abspielen",
    of: (one, all) => `${one} von ${all}`,
    beyond: "über das Training hinaus",
    untrained: "untrainiert",
    someEpochs: (some, all) => (some === 1 ? "nur die letzte" : `${some} von ${all} passen`),
    matrix: "Matrix",
    showAll: "Alle zeigen",
    parentsLabel: "Eltern und ihre Längen",
    children: (n) => counted(n, "Kind", "Kinder"),
    parents: (n) => counted(n, "Elternteil", "Eltern"),
    someChildren: (some, all) => `${some} von ${all} Kindern`,
    someCouplings: (some, all) =>
      `${some} von ${all} Kopplungen: die der Kinder, die am stärksten an ein Elternteil gekoppelt sind`,
    numbered: "Zahlen benennen die Kinder. ",
    order: "Kinder stehen in der Reihenfolge der Eltern, zu denen sie im Mittel gehen: für jedes Bild in derselben.",
    oneChild: "Ein Kind",
    selectedChild: "Gewähltes Kind",
    parent: "Eltern",
    agreement: "Einigkeit",
    childWord: "Kind",
    child: (n) => `Kind ${n}`,
    divides: (n) => `Kind ${n} verteilt sich`,
    chooseChild: "Wähle links im Graphen ein Kind, oder eine Linie, um zu sehen, wie es sich auf die Eltern verteilt.",
    sumsTo1: (entropy) => `c ergibt zusammen 1; Entropie ${entropy} nat.`,
    tipEdge: (c, b, agreement) => [`Kopplung c  ${c}`, `Logit b  ${b}`, `Einigkeit der Stimme  ${agreement}`],
    tipChild: (entropy) => `Entropie  ${entropy} nat`,
    longest: ", am längsten",
    amongLongest: (n) => `, unter den ${n} längsten`,
    wrongMark: ", falsch",
    trueMark: ", die wahre Klasse",
    parentLabel: (name, length, mark) => `${name}, Länge ${length}${mark}`,
    trueLabel: (name) => `Wahre Klasse: ${name}. `,
    wrongLabel: (longest, truth) => `Falsch: ${longest} ist am längsten, die wahre Klasse ist ${truth}. `,
    untrainedLabel: "Untrainiert. ",
    inputImage: "Eingabebild",
    whereChildLooks: (child) => `Wohin ${child} sieht`,
    whereChildrenLook: (name) => `Wohin die Kinder von ${name} sehen`,
    glow: (name) => `Leuchten: die Pixel, die die Kinder bewegen, die ${name} gewählt haben, gewichtet mit der Kopplung.`,
    glowOfChild: "Leuchten: die Pixel, die seine Länge am meisten ändern.",
    noneChose: (name) => `Noch hat kein Kind ${name} gewählt.`,
    partsFor: (name) => `Welche Teile für ${name} stimmen`,
    partsForWhat: "Welche Teile wofür stimmen",
    colorOf: (name) => `Farbe: was ${name} von jedem Ort bekommt.`,
    colors: "Farbe: wer von einem Ort am meisten bekommt.",
    noPart: (name) => `Hier stimmt kein Teil für ${name}.`,
    frame: (high, wide, child) => ` Rahmen: die ${high} × ${wide} Pixel, die ${child} sieht.`,
    entropyHead: "Wie unentschieden die Kinder sind",
    mean: "Mittel",
    eachChild: "jedes Kind",
    undecided: "unentschieden",
    meanEntropy: (mean, ratio, undecided) =>
      `Mittlere Entropie ${mean} nat${ratio && `, das ${ratio}-Fache von unentschieden (${undecided})`}.`,
    onAverage: (level) => `${level} im Mittel`,
    beyondTraining: (n) => `mehr als die ${n} des Trainings`,
    axisIteration: "Iteration",
    couplingC: "Kopplung c",
    couplingsHead: "Wie stark die Kopplungen sind",
    all: "alle",
    with: (name, longest) => `mit ${name}${longest ? " (am längsten)" : ""}`,
    largest: (c, strong, edges) => `Größte ${c}; über einem halb: ${strong} von ${edges}.`,
    moment: (r, epoch) => `Iteration ${r}, Epoche ${epoch}`,
    isSelected: (child) => ` ${child} ist gewählt.`,
    graphLabel: (children, parents, chosen) =>
      `Kopplungen: ${children}, ${parents}. Die Tasten nach oben und unten wählen ein Kind.${chosen}`,
    noAnswer: "keine Antwort",
    longestIs: (name, length, wrong) => `am längsten ${name}, ${length}${wrong ? ", falsch" : ""}`,
    scale: (matrix, marks) => `${matrix ? "Stärke der Zellen" : "Breite der Linien"}: ${marks}`,

    how: "Wie man es liest",
    termsLabel: "Begriffe, jeder mit einem Satz",
    reading: [
      ["Eine Linie", "verbindet eine Kind-Kapsel, ein Teil, mit einer Eltern-Kapsel, einer Klasse. Breite und Stärke wachsen mit der Kopplung c: wie viel vom Kind zu diesem Elternteil geht. Ihre Farbe ist die des Elternteils. Die Kopplungen eines Kindes ergeben zusammen 1. Die Matrix zeigt dasselbe als Zellen."],
      ["Eine Iteration", "des Routings macht aus Logits b Kopplungen (ein Softmax über die Eltern), zählt die Stimmen zusammen und erhöht b, wo die Stimme eines Kindes mit dem Elternteil einig ist. In der ersten sind alle Kopplungen gleich."],
      ["Die Längen", "der Eltern, von 0 bis 1, sagen, wie sicher das Netz ist, dass die Klasse da ist. Eine falsche Antwort hat ✗, die wahre Klasse ✓."],
      ["Das Leuchten", "zeigt, wohin die Kinder sehen, die ein Elternteil gewählt haben: das ausgewählte, sonst das längste. Es zählt, wie weit ihre Kopplungen über unentschieden liegen, also über gleichen Anteilen für alle Eltern. Welche Pixel ein Kind bewegen, wurde einmal gemessen, nach der letzten Epoche."],
      ["Farben auf dem Bild", "stehen statt des Leuchtens, wo es viele Kinder gibt, jedes an einem eigenen Ort: für welche Eltern die Kinder eines Ortes stimmen und wie viel sie geben (c mal Einigkeit). Ein gewähltes Elternteil steht allein."],
      ["Entropie", "ist hoch, solange ein Kind sich auf alle Eltern verteilt, und 0, wenn es eins gewählt hat."],
      ["Tasten", `${KEYS[0]} ${KEYS[1]} Iteration, mit ${KEYS[2]} Epoche, ${KEYS[3]} abspielen, ${KEYS[4]} zu einem Elternteil oder dem Graphen, wo ${KEYS[5]} ${KEYS[6]} ein Kind wählen, ${KEYS[7]} alle zeigen.`],
    ],
    terms: {
      child: ["Kind", "Ein Kind ist eine Kapsel der unteren Schicht: ein Vektor, der einen Teil des Bildes beschreibt."],
      parent: ["Eltern", "Ein Elternteil ist eine Kapsel der letzten Schicht: ein Vektor, der für eine Klasse steht."],
      vote: ["Stimme", "Eine Stimme û ist, wie ein Kind den Vektor eines Elternteils vorhersagt: der Vektor des Kindes mal eine gelernte Matrix."],
      logit: ["Logit", "Aus dem Logit b eines Kindes und eines Elternteils entsteht die Kopplung: je größer neben den anderen des Kindes, desto mehr."],
      coupling: ["Kopplung", "Eine Kopplung c, von 0 bis 1, ist, wie viel eines Kindes zu einem Elternteil geht; die eines Kindes ergeben zusammen 1."],
      agreement: ["Einigkeit", "Die Einigkeit ⟨û, v⟩ ist das Skalarprodukt einer Stimme und ihres Elternteils: groß, wo beide in dieselbe Richtung zeigen."],
      entropy: ["Entropie", "Die Entropie −Σ c ln c eines Kindes ist 0, wenn es ein Elternteil gewählt hat, und am größten, wenn alle seine Kopplungen gleich sind."],
      iteration: ["Iteration", "Eine Iteration ist eine Runde des Routings: Kopplungen aus Logits, Eltern aus Kopplungen, neue Logits aus der Einigkeit."],
      routing: ["Routing", "Das Routing entscheidet für jedes Bild neu, zu welchen Eltern die Stimmen der Kinder gehen."],
      squash: ["Stauchen", "Stauchen lässt die Richtung eines Vektors und macht aus seiner Länge n die Länge n² / (1 + n²), die unter 1 liegt."],
      length: ["Länge", "Die Länge des Vektors eines Elternteils, von 0 bis 1, sagt, wie sicher das Netz ist, dass die Klasse da ist."],
      decoder: ["Decoder", "Der Decoder ist ein kleines Netz, das aus dem Vektor eines Elternteils ein Bild zeichnet."],
    },

    about: "Was das ist, wozu, und wo es versagt",
    article: [
      "Eine <b>Kapsel</b> ist eine kleine Gruppe von Zahlen, ein Vektor. Seine Richtung beschreibt etwas, seine Länge sagt, wie sicher das Netz ist, dass es da ist. Das Netz auf dieser Seite findet im Bild kleine Kapseln, die Kinder. Jedes sagt durch eine gelernte Matrix vorher, wie die Kapsel jeder Klasse aussehen müsste. Diese Vorhersagen sind seine Stimmen. Das <b>Routing</b> entscheidet dann, welche Stimmen zählen: In jeder Iteration gewinnen die Stimmen an Gewicht, die mit einer Klasse einig sind, und die anderen verlieren es (Sabour, Frosst und Hinton, 2017).",
      "<b>Wozu?</b> Teile, die zusammengehören, sagen dasselbe Ganze vorher; Teile, die es nicht tun, widersprechen einander. Nutzt ein Netz das, so kann man ablesen, welches Teil wohin ging, für jedes Bild neu. Die Linien oben sind diese Ablesung: keine nachträgliche Erklärung, sondern die Gewichte, mit denen die Antwort berechnet wurde.",
      "<b>Wo es versagt.</b> Manchmal wählen die Kinder kaum: Der Titel sagt es. Auf gewöhnlichen Ziffern antworten gleiche Kopplungen etwa so gut wie die des Routings. Um 60 Grad gedrehte Ziffern werden meist falsch beantwortet, denn im Training war keine so gedreht. Das Routing verstärkt, worin Stimmen sich einig sind, ob richtig oder falsch: Auch ein Buchstabe oder Rauschen bekommt eine Klasse, und mehr Iterationen als im Training machen eine falsche Antwort sicherer. Und das Teil, für das ein Kind steht, muss keins sein, das ein Mensch benennen würde.",
    ],
    try: "Zum Ausprobieren",
    set: "Die Seite darauf einstellen",
    exercises: {
      steps: "Geh zu Iteration 1, in der alle Kopplungen gleich sind, und von dort Schritt für Schritt weiter. Welches Kind wählt zuerst, und sieht es auf den Strich, auf den du sehen würdest?",
      turn: "Dreh die Ziffer langsam. Bei welchem Winkel ändert sich die Antwort? Werden die Kinder vorher unentschieden, oder wählen sie falsch?",
      equal: "Vergleiche dieses Routing mit gleichen Kopplungen und geh dann die zehn schwersten Bilder durch. Wie oft ändert sich die Antwort, und welche der beiden ist richtig?",
      epochs: "Spiel die Epochen ab. Wann beginnen die Kinder zu wählen, und stimmen die Längen vorher oder erst danach?",
      matrix: "Nimm die Matrix und ein Bild mit ✗ oder mit einem kurzen längsten Elternteil. Welche Kinder gingen zur falschen Klasse?",
    },

    back: "Zurück",
    next: "Weiter",
    finish: "Fertig",
    leave: "Verlassen <kbd>Esc</kbd>",
    takeTour: "Rundgang",
    takeUp: (n, all) => `Rundgang fortsetzen: ${n} von ${all}`,
    stop: (n, all, title) => `${n} von ${all}: ${title}`,
    fewVectors: (n) => counted(n, "kleinen Vektor", "kleine Vektoren"),
    looks: (inPicture, framed) =>
      (framed ? "Der Rahmen zeigt, was es sieht" : "Das Leuchten zeigt die Pixel, die es am meisten ändern") +
      (inPicture ? ", auch in seinem kleinen Bild" : ""),
    stops: {
      child: ["Ein Kind", ({ child, few, looks }) =>
        `Das Netz macht aus deinem Bild ${few}, seine Kinder. Jedes ist ein Vektor, der ein Teil beschreibt. ` +
        `${childName(child)} ist gewählt: ${looks}.`],
      votes: ["Seine Stimmen", ({ child, name, parents, decodes }) =>
        `${childName(child)} gibt je eine Stimme für ${parents} ab: wie das Elternteil wäre, wenn dieses Teil am ` +
        `richtigen Ort läge. Hier sind die Stimmen aller Kinder für ${name}.` +
        (decodes ? ` Weiter unten zeichnet der Decoder die von ${childName(child)}.` : "")],
      agreement: ["Einigkeit", ({ child, name, agreement }) =>
        `In Iteration 1 ist ${childName(child)} mit ${name} zu ${agreement(0)} einig: die Summe der Produkte ihrer ` +
        `Zahlen. Wo Balken in dieselbe Richtung gehen, sind sie einig.`],
      softmax: ["Softmax", ({ child, name, coupling, onePass }) =>
        `Ein Softmax macht aus den Logits Kopplungen. Die eines Kindes ergeben zusammen 1. ${name} ` +
        (onePass
          ? `bekommt ${coupling(0)} von ${childName(child)}.`
          : `bekam ${coupling(0)} von ${childName(child)} in Iteration 1 und bekommt ${coupling(1)} in Iteration 2.`)],
      round: ["Eine Runde des Routings", ({ onePass }) =>
        onePass
          ? "Dieses Routing ist ein Durchgang in vier Zeilen mit Zahlen deines Bildes. Spätere Iterationen wiederholen ihn."
          : "Eine Iteration hat vier Zeilen, hier mit Zahlen deines Bildes. Geh sie durch, oder spiel oben die Iterationen ab."],
      entropy: ["Entropie", ({ entropy, trained }) =>
        `Unentschiedene Kinder haben eine hohe Entropie. Ihr Mittel ist ${entropy(0)} nat in Iteration 1 und ` +
        `${entropy(trained - 1)} in Iteration ${trained}, wo das Training endet.`],
      done: ["Was die Iterationen bewirkt haben", ({ name, length, largest, trained }) =>
        `Nach ${counted(trained, "Iteration", "Iterationen")} ist ${name} am längsten, ` +
        `${length(trained - 1)} lang; nach einer war es ${length(0)}. ` +
        `Die größte Kopplung ging von ${largest(0)} auf ${largest(trained - 1)}.`],
      wrong: ["Wo es falsch antwortet", ({ name, length, truth, ofTruth, wrong, any, taken, trained }) => {
        const because = "Routing verstärkt, worin Stimmen sich einig sind. Ob das stimmt, kann es nicht wissen.";
        if (!any) return "Keins der Bilder in der Liste oben wird falsch beantwortet.";
        if (!wrong && taken) return `Dieses Bild zeigt ${taken.name}, und das Netz sagt ${taken.wrong}. ${because}`;
        if (!wrong) return "Ein Bild, das falsch beantwortet wird, ist gerade im Routing.";
        return (
          `Die wahre Klasse dieses Bildes ist ${truth}, und das Netz sagt ${name}: Dessen Elternteil ist ` +
          `${length(trained - 1)} lang, das von ${truth} ${ofTruth}. ${because}`
        );
      }],
    },

    doesntFit: "Das Ende dieses Links passt nicht zu dieser Seite und bleibt weg.",
    tooLong: "Diese Zeichnung ist zu lang für einen Link.",
    linkCopied: "Der Link ist kopiert.",
    linkInField: "Kopiere den Link aus dem Feld.",
    thisMachine: " Er öffnet diese Datei auf diesem Rechner: Andere brauchen auch die Datei.",
    saved: (name) => `Gespeichert als ${name}.`,
    notSaved: (message) => `Die Ansicht lässt sich nicht speichern: ${message}.`,

    deskLabel: "Was dem Netz gezeigt wird",
    drawHere: "Zeichne hier",
    undo: "Zurück",
    undoTitle: "Den letzten Strich zurücknehmen: Strg+Z",
    clear: "Leeren",
    sheet: "Blatt zum Zeichnen mit Maus, Finger oder Stift. Ein Strich ersetzt ein Bild, und Zurück holt es wieder.",
    seen: "Was das Netz sieht",
    seenSize: (wide, high) => `Was das Netz sieht: ${wide} × ${high} Pixel.`,
    noLimits: " Dieser Lauf hat keine Grenzen; bezweifelt werden darum nur leere Blätter.",
    turn: "Drehen",
    right: "Rechts",
    down: "Runter",
    thicker: "Dicker",
    answerLabel: "Was das Netz daraus macht",
    longestParents: "Die längsten Eltern",
    topsNote: (n, epoch, drawn) =>
      `immer in Epoche ${epoch} nach den ${counted(n, "Iteration", "Iterationen")} des Trainings${drawn ? ", wie der Decoder sie zeichnet." : "."}`,
    testImageOf: (name) => `Testbild: ${name}`,
    drawing: "Deine Zeichnung.",
    emptySheet: "Ein leeres Blatt.",
    changed: (name) => `${name}, verändert`,
    cantAnswer: (error) => `Das Netz kann nicht antworten: ${error}.`,
    threadStopped: "der Rechenfaden der Seite ist stehen geblieben",
    noAnswerHead: "Keine Antwort",
    doubtful: "Zweifelhaft",
    emptyMeans: " Längen und Linien sind, was das Netz aus einem leeren Blatt macht; sie benennen keine Klasse.",
    perhaps: (names) => `vielleicht ${names}`,
    inEpoch: (epoch) => `, in Epoche ${epoch}`,
    reconstruction: (name) => `Rekonstruktion von ${name}`,
    capsuleOf: (name, count) => `${counted(count, "Zahl", "Zahlen")} beschreiben ${name}: verändere sie`,
    bendLead: "Jede Zahl der Kapsel steht für eine Art, das Bild zu verändern.",
    bendLabel: "Rekonstruktion der veränderten Kapsel",
    backToOwn: "Wie sie war",
    readAs: (names) => `Das Bild, jeder Strich in der Farbe dessen, als was er gelesen wird: ${names}`,
    and: " und ",
    blank: (contrast, least) =>
      `Das Bild ist leer: Sein hellstes und sein dunkelstes Pixel liegen ${contrast} auseinander, weniger als ${least} von 1`,
    rank: (n) => `die ${{ 1: "", 2: "zweit", 3: "dritt" }[n] ?? `${n}.-`}längste Kapsel`,
    short: (objects, rank, value, share, limit) =>
      `${objects === 1 ? "nichts ist" : `weniger als ${objects} sind`} lang: ${rank} hat ${value}, ` +
      `${share} der richtigen Antworten haben ${limit} oder mehr`,
    several: (objects, rank, value, share, limit) =>
      `${objects === 1 ? "zwei sind" : `mehr als ${objects} sind`} lang: ${rank} hat ${value}, ` +
      `${share} der richtigen Antworten haben ${limit} oder weniger`,
    unlike: (value, share, limit) =>
      `die Rekonstruktion gleicht dem Bild nicht: ihre Korrelation ist ${value}, ${share} der richtigen Antworten haben ${limit} oder mehr`,
    wayTo: (child) => `Von den Pixeln zu ${child}`,
    wayNote: (high, wide, some, all) =>
      `Es sieht ${high} × ${wide} Pixel, im Rahmen. Von ${counted(all, "Merkmalskarte", "Merkmalskarten")} tragen diese ${some} am ` +
      `meisten zu seinem Vektor vor dem Stauchen bei: darunter ihr Anteil. Andere können wegnehmen.`,
    mapOf: (channel, share) => `Merkmalskarte ${channel}, ${share}`,

    why: "Warum die Kopplungen so sind",
    goThere: "Dorthin",
    nextLine: "Nächste Zeile",
    votesAsNumbers: (rows, scroll) =>
      `Diese Stimmen als Zahlen, ${counted(rows, "Zeile", "Zeilen")}${scroll ? ", zum Rollen" : ""}`,
    votesTable: "Die Stimmen als Zahlen",
    along: "längs",
    across: "quer",
    voteMark: "Stimme û",
    strongestWith: (name) => `, am stärksten von allen Kindern an ${name} gekoppelt`,
    subject: (child, how, parent) => `${child}${how}, und sein Elternteil ${parent}. Wähle im Graphen eine andere Linie oder ein Kind.`,
    carriedVotes: (epoch) => `Stimmen sind die des Netzes in dieser Seite, nach Epoche ${epoch}.`,
    pass: (onePass, r) => onePass ? "Der eine Durchgang in seinen vier Zeilen" : `Iteration ${r} in ihren vier Zeilen`,
    stepThrough: "Durchgehen",
    nextIteration: "Nächste Iteration",
    lines: { softmax: "Softmax", sum: "Summe", squash: "Stauchen", agreement: "Einigkeit" },
    votesFor: (n, name) => `${counted(n, "Stimme", "Stimmen")} für ${name}`,
    plane: (name, iterations) =>
      `Nach rechts ist längs zu ${name} nach ${counted(iterations, "Iteration", "Iterationen")}, nach oben quer ` +
      `dazu, wo die Stimmen sich am meisten unterscheiden. Je stärker ein Pfeil, desto größer seine Kopplung. Der dicke ist ` +
      `${name} selbst; gestrichelt: Länge 1. Gepunktet: `,
    meanAngle: (angle, first) =>
      `der mittlere Winkel zwischen Stimmen und Elternteil, gewichtet mit Kopplung und Länge: ${angle}${first && `, in Iteration 1 ${first}`}.`,
    inPlane: (head, chosen, angle) => `${head} in der Ebene. Die Tasten nach oben und unten wählen ein Kind.${chosen} ${angle}`,
    isMarked: (child) => ` ${child} ist markiert.`,
    lengthIs: (name, length) => `${name}, Länge ${length}`,
    ofParent: (what, name) => `${what} von ${name}`,
    bars: (dim, called, cosine, sizes, product, note) =>
      `Die ${dim} Zahlen beider, jeweils so gezeichnet, dass der längste Balken gleich hoch ist; darunter, was jedes Paar zu ⟨û, ${called}⟩ beiträgt. ` +
      `Ihr Kosinus = ${cosine}. Längen mal Kosinus: ${sizes[0]} · ${sizes[1]} · ${cosine} = ${product}. ${note}`,
    pairs: (called, name, pairs) => `Die Stimme und ${called} von ${name}, Zahl für Zahl: ${pairs}`,
    softmaxOf: (child) => `Der Softmax von ${child}`,
    prior: "Prior",
    added: (r, last) =>
      `Die Einigkeit kommt hinzu: b der Iteration ${r + 2}.` +
      (last ? ` Das Training endet nach Iteration ${r + 1}, dieses b wird also nicht mehr benutzt.` : ""),
    replaced: (b, r) =>
      `Es ersetzt b, das ${b} war: b der Iteration ${r + 2}. κ ist die Konzentration, ρ die übliche Länge von Stimmen für dieses Elternteil.`,
    computedOnce: "Einmal berechnet, vor dem einen Durchgang: die Stimme gegen die Summe aller Stimmen für dieses Elternteil.",
    unused: (agreement) => `Ihre Einigkeit ⟨û, v⟩ ist ${agreement}, und das Routing uniform nutzt sie nicht. Es gibt einen Durchgang.`,
    voteAlone: (child, length) => `Die Stimme von ${child} allein, gestaucht auf Länge ${length}, wie der Decoder sie zeichnet.`,
    parentDrawn: (name, r) => `${name} nach Iteration ${r}, alle Stimmen gezählt, wie der Decoder es zeichnet.`,

    compare: "Ein anderes Routing derselben Stimmen",
    compareTwo: "Zwei Arten von Routing für dieses Bild vergleichen",
    firstRouting: "Erstes Routing",
    secondRouting: "Zweites Routing",
    firstIterations: "Iterationen des ersten Routings",
    secondIterations: "Iterationen des zweiten Routings",
    answer: "Antwort",
    meanEntropyRow: "mittlere Entropie",
    differMost: "Kopplungen mit dem größten Unterschied: erste, zweite",
    routing: (name, n) => `Routing ${name}${n === null ? "" : `, ${counted(n, "Iteration", "Iterationen")}`}`,
    iterations: (n) => counted(n, "Iteration", "Iterationen"),
    trainedWith: (name) => `${name} (trainiert)`,
    blankAnswer: "keine: das Blatt ist leer",
    blankSheet: "Ein leeres Blatt hat keine Antwort.",
    bothAnswer: (name) => `Beide antworten ${name}.`,
    answerChanges: (names, routings) => `Die Antwort ändert sich: ${names[0]} mit ${routings[0]}; ${names[1]} mit ${routings[1]}.`,
    noneDiffers: "Keine um 0.001 oder mehr.",
    otherRouting: (routing) =>
      `Die Gewichte wurden mit ${routing} trainiert. Ein anderes Routing hatte am Training keinen Anteil: Hier steht, was es ` +
      `aus denselben Stimmen macht, nicht, was ein damit trainiertes Netz sagen würde.`,
    lastLayerOnly: "Nur das Routing der letzten Schicht wird ausgetauscht.",
    concentration: "Das Routing spherical lernt seine Konzentration κ; hier wurde keine gelernt, sie ist also 1.",
  },
};

let words = WORDS.en;
