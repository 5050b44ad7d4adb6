// Words of the graph's page: they take the place of words.js's where that speaks of images, or has none.

const NODE_WORDS = {
  en: {
    choice(edges, choosing, nearlyEqual) {
      if (nearlyEqual) return "Couplings nearly equal: hardly any routing";
      return `${thousands(choosing)} of ${counted(edges, "edge", "edges")} ${choosing === 1 ? "goes" : "go"} to one capsule by more than half`;
    },
    lead: (K, matrix) =>
      `Along each edge a node sends its neighbour a vote for each of ${K} capsules, and divides itself among them. ` +
      `Colour: the capsule that gets most; the ${matrix ? "stronger a cell" : "wider a line"}, the more.`,
    layer: ({ routing, iterations, unit_votes: unit, mutual }) =>
      [`${routing} routing, ${counted(iterations, "iteration", "iterations")}`, ...(unit ? ["unit votes"] : []), ...(mutual ? ["mutual"] : [])].join(", "),
    size: (nodes, edges) => `${counted(nodes, "node", "nodes")}, ${counted(edges, "edge", "edges")}`,
    sample: ({ edges, around }, shown, whole, mutual) =>
      `${thousands(shown)} of ${thousands(edges)} edges: all that arrive at ${counted(whole, "node", "nodes")}, ` +
      `${around === null ? "those of most edges" : `those around ${around}`}. ` +
      (mutual ? "Small nodes lack edges, and what they and their neighbours get is off." : "Small nodes send votes; what arrives at them isn't in the page."),
    change: "Change the graph",
    node: "Node",
    nodeWords: ["node", "nodes"],
    edgeWords: ["edge", "edges"],
    other: "Neighbour",
    none: "none",
    pick: "Pick",
    picking: "Click on a node in the graph.",
    chooseTwo: "Choose an edge to cut it, or two nodes to join them.",
    outside: (name) => `What arrives at ${name} isn't in the page, so no edge can be added there.`,
    cut: (one, other) => `Cut ${one} → ${other}`,
    cutBoth: (one, other) => `Cut ${one} – ${other}`,
    add: (one, other) => `Add ${one} → ${other}`,
    addBoth: (one, other) => `Add ${one} – ${other}`,
    features: (name) => `Features of ${name}`,
    towards: (name) => `like ${name}`,
    feature: (f) => `feature ${f}`,
    reset: "Reset all",
    unchanged: "Nothing is changed.",
    changed: (cut, added, moved) => {
      const parts = [cut && `${counted(cut, "edge", "edges")} cut`, added && `${added} added`, moved && `features of ${counted(moved, "node", "nodes")} moved`];
      return `${sentence(parts.filter(Boolean).join(", "))}.`;
    },
    rerouted: (count, names) =>
      count ? ` ${counted(count, "edge goes", "edges go")} to another capsule than before, outlined: ${names}` : " No edge goes to another capsule.",
    parent: "capsule",
    capsule: (l) => `capsule ${l}`,
    capsuleOf: (l, node) => `capsule ${l} of ${node}`,
    capsulesOfAll: "Edges by capsule",
    capsulesOf: (name) => `Capsules of ${name}`,
    capsuleLabel: (l, value, node) => (node === null ? `Capsule ${l}: ${counted(value, "edge", "edges")}` : `Capsule ${l} of ${node}, length ${value}`),
    from: "from",
    arrivals: "The edges that arrive, with their couplings",
    oneChild: "A node or an edge",
    chooseChild: "Choose a node in the graph to see what arrives there, or an edge to see why it goes to its capsule.",
    arrive: (name, n) => `${counted(n, "edge arrives", "edges arrive")} at ${name}`,
    noneArrives: "Without in-edges its capsules are those of the bias. CapsuleConv takes such graphs with allow_zero_in_degree=True.",
    notHere: "What arrives at this node isn't in the page.",
    class: (name) => `Class ${name}. `,
    output: (formula) => `Capsule l is ${formula}.`,
    head: (two) => (two ? "Lines: at each end what arrives there" : "Arrows: votes"),
    graphLabel: (nodes, edges, chosen) => `Graph of ${nodes} and ${edges}. Up and down choose a node.${chosen}`,
    matrixLabel: "From a row to a column",
    isSelected: (name) => ` ${name} is selected.`,
    moment: (r) => `Iteration ${r}`,
    entropyHead: "How undecided the edges are",
    eachChild: "each edge",
    childWord: "edge",
    strongestWith: () => "",
    subject: (edge, how, parent) => `Edge ${edge}, and ${parent}. `,
    vote: (name, unit, weight) =>
      `Its vote û is the features of ${name} times W${unit ? ", brought to length 1" : ""}${weight === 1 ? "" : `, times the edge's weight ${fixed(weight, 2)}`}.`,
    plane: (name, iterations) =>
      `To the right is along ${name} as it is after ${counted(iterations, "iteration", "iterations")}, up is across ` +
      `it, where votes differ most. The stronger an arrow, the larger its coupling. The thick one is what they are compared with; ` +
      `dashed: length 1. Dotted: `,
    lengthIs: (name, length) => name,
    meanAngle: (angle, first) => `the mean angle between votes and capsule, weighed by coupling and length: ${angle}${first && `, in iteration 1 ${first}`}.`,
    replaced: (b, r) => `It replaces b, which was ${b}: b of iteration ${r + 2}. κ is the concentration, ρ the usual length of votes for this capsule.`,
    inPlane: (head, chosen, angle) => `${head} in the plane. Up and down choose an edge.${chosen} ${angle}`,
    lines: { softmax: "softmax", sum: "sum", squash: "squash", output: "output", agreement: "agreement" },
    ofBack: (edge) => `that of ${edge}`,
    bothWays: (own, edge, other) => `With mutual=True it is this edge's own ${own} and that of ${edge}, ${other}.`,
    reading: [
      ["A line", "joins two nodes. At each end it shows what arrives there: the capsule of this node that the other one goes to most, by colour, and the coupling c, by width and strength. Grey: undecided. An arrow is an edge that has no other one back. A ring is a node's edge to itself. In the matrix a row's node votes for a column's."],
      ["An iteration", "of routing turns logits b into couplings (a softmax over the capsules of the edge's target), adds up the votes at each node, and makes new logits from how well votes agree with the sums. In the first all couplings are equal."],
      ["Changes", "are routed at once, with all iterations. A node depends on the edges that arrive there alone, so what you change shows at the neighbours; with mutual routing further away."],
      ["Entropy", "is high while an edge spreads over all capsules and 0 when it has chosen one."],
      ["Keys", `${KEYS[0]} ${KEYS[1]} iteration, ${KEYS[3]} play, ${KEYS[4]} to the graph, where ${KEYS[5]} ${KEYS[6]} choose a node, ${KEYS[7]} show all. With ${KEYS[2]} a click chooses the second node.`],
    ],
    terms: {
      parent: ["capsule", "A capsule is a vector that a node has; each node has as many, and each stands for one kind of neighbour."],
      child: ["edge", "An edge goes from a node that votes to a node that is voted for."],
      vote: ["vote", "A vote û is what a node sends along an edge to one capsule: its features times a learned matrix."],
      logit: ["logit", "From the logits b of an edge its couplings are made: the larger beside the others, the more."],
      coupling: ["coupling", "A coupling c, from 0 to 1, is how much of an edge goes to a capsule; those of one edge sum to 1."],
      agreement: ["agreement", "Agreement is the inner product of a vote and its capsule: large where they point the same way."],
      entropy: ["entropy", "Entropy −Σ c ln c of an edge is 0 when it has chosen one capsule and largest when all its couplings are equal."],
      iteration: ["iteration", "An iteration is one round of routing: couplings from logits, sums from couplings, new logits from agreement."],
      routing: ["routing", "Routing decides to which capsules of a node the votes of its neighbours go."],
      squash: ["squash", "Squashing keeps a vector's direction and makes its length n into n² / (1 + n²), which is below 1."],
      output: ["output", "What the layer gives for a node: the mean of what arrived, with the bias added, squashed."],
    },
    about: "What this is, and what it doesn't show",
    article: [
      "The page computes a <b>CapsuleConv</b>, a graph convolution by routing, with the weights that it was given. A graph convolution takes the mean of what a node's neighbours send. This one has several capsules for it, and each neighbour divides itself among them: to a capsule where the votes of other neighbours point the same way as its own, it gives more.",
      "It shows one layer. What a layer before it would make of a changed edge isn't computed: features are those that the layer was called with. And that a neighbour goes to a capsule says that its votes agree with those of others there, not why it is a neighbour.",
    ],
  },
  de: {
    choice(edges, choosing, nearlyEqual) {
      if (nearlyEqual) return "Kopplungen fast gleich: kaum Routing";
      return `${thousands(choosing)} von ${counted(edges, "Kante", "Kanten")} ${choosing === 1 ? "geht" : "gehen"} zu mehr als der Hälfte an eine Kapsel`;
    },
    lead: (K, matrix) =>
      `Entlang jeder Kante schickt ein Knoten seinem Nachbarn je eine Stimme für ${K} Kapseln und verteilt sich auf sie. ` +
      `Farbe: die Kapsel, die am meisten bekommt; je ${matrix ? "kräftiger eine Zelle" : "breiter eine Linie"}, desto mehr.`,
    layer: ({ routing, iterations, unit_votes: unit, mutual }) =>
      [`Routing ${routing}, ${counted(iterations, "Iteration", "Iterationen")}`, ...(unit ? ["Stimmen der Länge 1"] : []), ...(mutual ? ["gegenseitig"] : [])].join(", "),
    size: (nodes, edges) => `${counted(nodes, "Knoten", "Knoten")}, ${counted(edges, "Kante", "Kanten")}`,
    sample: ({ edges, around }, shown, whole, mutual) =>
      `${thousands(shown)} von ${thousands(edges)} Kanten: alle, die bei ${counted(whole, "Knoten", "Knoten")} ankommen, ` +
      `${around === null ? "denen mit den meisten Kanten" : `denen um ${around}`}. ` +
      (mutual ? "Kleinen Knoten fehlen Kanten, und was sie und ihre Nachbarn bekommen, stimmt nicht genau." : "Kleine Knoten schicken Stimmen; was bei ihnen ankommt, ist nicht auf der Seite."),
    change: "Den Graphen ändern",
    node: "Knoten",
    nodeWords: ["Knoten", "Knoten"],
    edgeWords: ["Kante", "Kanten"],
    other: "Nachbar",
    none: "keiner",
    pick: "Zeigen",
    picking: "Klick im Graphen auf einen Knoten.",
    chooseTwo: "Wähle eine Kante, um sie zu kappen, oder zwei Knoten, um sie zu verbinden.",
    outside: (name) => `Was bei ${name} ankommt, ist nicht auf der Seite, darum kann dort keine Kante dazukommen.`,
    cut: (one, other) => `${one} → ${other} kappen`,
    cutBoth: (one, other) => `${one} – ${other} kappen`,
    add: (one, other) => `${one} → ${other} verbinden`,
    addBoth: (one, other) => `${one} – ${other} verbinden`,
    features: (name) => `Merkmale von ${name}`,
    towards: (name) => `wie ${name}`,
    feature: (f) => `Merkmal ${f}`,
    reset: "Alles zurück",
    unchanged: "Nichts ist geändert.",
    changed: (cut, added, moved) => {
      const parts = [cut && `${counted(cut, "Kante", "Kanten")} gekappt`, added && `${added} dazu`, moved && `Merkmale von ${counted(moved, "Knoten", "Knoten")} bewegt`];
      return `${sentence(parts.filter(Boolean).join(", "))}.`;
    },
    rerouted: (count, names) =>
      count ? ` ${counted(count, "Kante geht", "Kanten gehen")} an eine andere Kapsel als zuvor, umrandet: ${names}` : " Keine Kante geht an eine andere Kapsel.",
    parent: "Kapsel",
    capsule: (l) => `Kapsel ${l}`,
    capsuleOf: (l, node) => `Kapsel ${l} von ${node}`,
    capsulesOfAll: "Kanten nach Kapsel",
    capsulesOf: (name) => `Kapseln von ${name}`,
    capsuleLabel: (l, value, node) => (node === null ? `Kapsel ${l}: ${counted(value, "Kante", "Kanten")}` : `Kapsel ${l} von ${node}, Länge ${value}`),
    from: "von",
    arrivals: "Die Kanten, die ankommen, mit ihren Kopplungen",
    oneChild: "Ein Knoten oder eine Kante",
    chooseChild: "Wähle im Graphen einen Knoten, um zu sehen, was dort ankommt, oder eine Kante, um zu sehen, warum sie an ihre Kapsel geht.",
    arrive: (name, n) => `${counted(n, "Kante kommt", "Kanten kommen")} bei ${name} an`,
    noneArrives: "Ohne eingehende Kanten sind seine Kapseln die des Bias. CapsuleConv nimmt solche Graphen mit allow_zero_in_degree=True.",
    notHere: "Was bei diesem Knoten ankommt, ist nicht auf der Seite.",
    class: (name) => `Klasse ${name}. `,
    output: (formula) => `Kapsel l ist ${formula}.`,
    head: (two) => (two ? "Linien: an jedem Ende, was dort ankommt" : "Pfeile: Stimmen"),
    graphLabel: (nodes, edges, chosen) => `Graph: ${nodes}, ${edges}. Die Tasten nach oben und unten wählen einen Knoten.${chosen}`,
    matrixLabel: "Von einer Zeile zu einer Spalte",
    isSelected: (name) => ` ${name} ist gewählt.`,
    moment: (r) => `Iteration ${r}`,
    entropyHead: "Wie unentschieden die Kanten sind",
    eachChild: "jede Kante",
    childWord: "Kante",
    strongestWith: () => "",
    subject: (edge, how, parent) => `Kante ${edge} und ${parent}. `,
    vote: (name, unit, weight) =>
      `Ihre Stimme û ist W mal die Merkmale von ${name}${unit ? ", auf Länge 1 gebracht" : ""}${weight === 1 ? "" : `, mal das Gewicht ${fixed(weight, 2)} der Kante`}.`,
    plane: (name, iterations) =>
      `Nach rechts ist entlang ${name}, wie es nach ${counted(iterations, "Iteration", "Iterationen")} ist, nach oben quer ` +
      `dazu, wo Stimmen sich am meisten unterscheiden. Je kräftiger ein Pfeil, desto größer seine Kopplung. Mit dem dicken werden sie verglichen; ` +
      `gestrichelt: Länge 1. Gepunktet: `,
    lengthIs: (name, length) => name,
    meanAngle: (angle, first) => `der mittlere Winkel zwischen Stimmen und Kapsel, gewichtet mit Kopplung und Länge: ${angle}${first && `, in Iteration 1 ${first}`}.`,
    replaced: (b, r) => `Es ersetzt b, das ${b} war: b der Iteration ${r + 2}. κ ist die Konzentration, ρ die übliche Länge von Stimmen für diese Kapsel.`,
    inPlane: (head, chosen, angle) => `${head} in der Ebene. Die Tasten nach oben und unten wählen eine Kante.${chosen} ${angle}`,
    lines: { softmax: "Softmax", sum: "Summe", squash: "Stauchen", output: "Ausgabe", agreement: "Einigkeit" },
    ofBack: (edge) => `das von ${edge}`,
    bothWays: (own, edge, other) => `Mit mutual=True sind es das eigene ${own} dieser Kante und das von ${edge}, ${other}.`,
    reading: [
      ["Eine Linie", "verbindet zwei Knoten. An jedem Ende zeigt sie, was dort ankommt: mit der Farbe die Kapsel dieses Knotens, an die der andere am meisten geht, mit Breite und Stärke die Kopplung c. Grau: unentschieden. Ein Pfeil ist eine Kante ohne eine zurück. Ein Ring ist die Kante eines Knotens zu sich selbst. In der Matrix stimmt der Knoten der Zeile für den der Spalte."],
      ["Eine Iteration", "des Routings macht aus Logits b Kopplungen (ein Softmax über die Kapseln des Knotens, bei dem die Kante ankommt), zählt bei jedem Knoten die Stimmen zusammen und macht neue Logits daraus, wie einig Stimmen mit den Summen sind. In der ersten sind alle Kopplungen gleich."],
      ["Änderungen", "gehen sofort durch alle Iterationen. Ein Knoten hängt nur von den Kanten ab, die bei ihm ankommen; was du änderst, zeigt sich also bei den Nachbarn, mit gegenseitigem Routing auch weiter weg."],
      ["Entropie", "ist hoch, solange eine Kante sich auf alle Kapseln verteilt, und 0, wenn sie eine gewählt hat."],
      ["Tasten", `${KEYS[0]} ${KEYS[1]} Iteration, ${KEYS[3]} abspielen, ${KEYS[4]} zum Graphen, wo ${KEYS[5]} ${KEYS[6]} einen Knoten wählen, ${KEYS[7]} alle zeigen. Mit ${KEYS[2]} wählt ein Klick den zweiten Knoten.`],
    ],
    terms: {
      parent: ["Kapsel", "Eine Kapsel ist ein Vektor eines Knotens; jeder Knoten hat gleich viele, und jede steht für eine Art von Nachbarn."],
      child: ["Kante", "Eine Kante geht von einem Knoten, der stimmt, zu einem, für den gestimmt wird."],
      vote: ["Stimme", "Eine Stimme û ist, was ein Knoten entlang einer Kante an eine Kapsel schickt: seine Merkmale mal eine gelernte Matrix."],
      logit: ["Logit", "Aus den Logits b einer Kante entstehen ihre Kopplungen: je größer neben den anderen, desto mehr."],
      coupling: ["Kopplung", "Eine Kopplung c, von 0 bis 1, ist, wie viel einer Kante an eine Kapsel geht; die einer Kante ergeben zusammen 1."],
      agreement: ["Einigkeit", "Die Einigkeit ist das Skalarprodukt einer Stimme und ihrer Kapsel: groß, wo beide in dieselbe Richtung zeigen."],
      entropy: ["Entropie", "Die Entropie −Σ c ln c einer Kante ist 0, wenn sie eine Kapsel gewählt hat, und am größten, wenn alle ihre Kopplungen gleich sind."],
      iteration: ["Iteration", "Eine Iteration ist eine Runde des Routings: Kopplungen aus Logits, Summen aus Kopplungen, neue Logits aus der Einigkeit."],
      routing: ["Routing", "Das Routing entscheidet, an welche Kapseln eines Knotens die Stimmen seiner Nachbarn gehen."],
      squash: ["Stauchen", "Stauchen lässt die Richtung eines Vektors und macht aus seiner Länge n die Länge n² / (1 + n²), die unter 1 liegt."],
      output: ["Ausgabe", "Was die Schicht für einen Knoten gibt: das Mittel dessen, was ankam, mit dem Bias, gestaucht."],
    },
    about: "Was das ist, und was es nicht zeigt",
    article: [
      "Die Seite rechnet ein <b>CapsuleConv</b>, eine Faltung auf Graphen durch Routing, mit den Gewichten, die man ihr gab. Eine Faltung auf Graphen nimmt das Mittel dessen, was die Nachbarn eines Knotens schicken. Diese hat dafür mehrere Kapseln, und jeder Nachbar verteilt sich auf sie: An eine Kapsel, bei der die Stimmen anderer Nachbarn in dieselbe Richtung zeigen wie seine, gibt er mehr.",
      "Sie zeigt eine Schicht. Was eine Schicht davor aus einer geänderten Kante machen würde, wird nicht berechnet: Die Merkmale sind die, mit denen diese Schicht aufgerufen wurde. Und dass ein Nachbar an eine Kapsel geht, heißt, dass seine Stimmen dort mit denen anderer einig sind, nicht, warum er ein Nachbar ist.",
    ],
  },
};

for (const language of Object.keys(WORDS)) Object.assign(WORDS[language], NODE_WORDS[language]);
