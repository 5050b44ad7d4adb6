// A guided tour of the reader's own image, which can be left and taken up again. It stands at the lower edge of the
// window, and what it speaks of is scrolled to the room above it.

// The stops: the element explained, whether it needs the network's votes, what it sets on the page, and its text.
const STOPS = [
  {
    title: "A child",
    at: () => (graph.side ? "#graph" : "#picture"), // where it is pictured
    go: () => ({ r: trace.trained - 1, child: edgeOfTour().child }),
    say: ({ child, few, looks }) =>
      `The network turns your image into ${few}, its children. Each is a vector that describes a part. ` +
      `${sentence(childName(child))} is selected: ${looks}.`,
  },
  {
    title: "Its votes",
    at: "#votes",
    votes: true,
    go: () => ({ r: 0, ...edgeOfTour() }),
    say: ({ child, name, parents, decodes }) =>
      `${sentence(childName(child))} casts a vote for each of ${parents}: what that parent would be if this part were in ` +
      `the right place. ` +
      `Here are the votes of all children for parent ${name}.` +
      (decodes ? ` Further on, the decoder draws the one of ${childName(child)}.` : ""),
  },
  {
    title: "Agreement",
    at: "#edge",
    votes: true,
    go: () => ({ r: 0, ...edgeOfTour() }),
    say: ({ child, name, agreement }) =>
      `In iteration 1, ${childName(child)} agrees with parent ${name} by ${agreement(0)}: the sum of the products of their ` +
      `numbers. ` +
      `Where bars go the same way, they agree.`,
  },
  {
    title: "Softmax",
    at: "#softmax",
    votes: true,
    go: () => ({ r: 1, ...edgeOfTour() }),
    say: ({ child, name, coupling, onePass }) =>
      onePass
        ? `A softmax makes couplings of the logits. Those of one child sum to 1. Parent ${name} gets ${coupling(0)} of ${childName(child)}.`
        : `A softmax makes couplings of the logits. Those of one child sum to 1. ` +
          `Parent ${name} got ${coupling(0)} of ${childName(child)} in iteration 1 and gets ${coupling(1)} in iteration 2.`,
  },
  {
    title: "A round of routing",
    at: "#lines",
    votes: true,
    go: () => ({ r: 1, ...edgeOfTour() }),
    say: ({ onePass }) =>
      onePass
        ? "This routing is one pass, in four lines with numbers of your image. Later iterations repeat it."
        : "One iteration is four lines, here with numbers of your image. Step through them, or play the iterations above.",
  },
  {
    title: "Entropy",
    at: "#entropy",
    go: () => ({ r: trace.trained - 1 }),
    say: ({ entropy }) =>
      `Children that are undecided have a high entropy. Their mean is ${entropy(0)} nat in iteration 1 and ` +
      `${entropy(trace.trained - 1)} in iteration ${trace.trained}, where training ends.`,
  },
  {
    title: "What the iterations did",
    at: "#graph",
    go: () => ({ r: trace.trained - 1, child: null, parent: null }),
    say: ({ name, length, largest }) =>
      `After ${counted(trace.trained, "iteration", "iterations")} the longest parent is ${name}, ` +
      `${length(trace.trained - 1)} long; after one it was ${length(0)}. ` +
      `The largest coupling went from ${largest(0)} to ${largest(trace.trained - 1)}.`,
  },
  {
    title: "Where it goes wrong",
    at: "#graph",
    go: () => (takeWrong(), { child: null, parent: null }),
    say: ({ name, length, truth, ofTruth, wrong }) => {
      if (!chooser.some((each) => each.wrong)) return "None of the images in the list above is answered wrongly.";
      const taken = chooser.find((each, n) => each.wrong && chooserInput(n).checked),
        because = "Routing strengthens what votes agree on. Whether that is right it can't know.";
      if (!wrong && taken && image.label === null) { // of several objects
        return `This image shows ${taken.name}, and the network says ${taken.wrong}. ${because}`;
      }
      if (!wrong) return "An image that is answered wrongly is being routed.";
      return (
        `The label of this image is ${truth}, and the network says ${name}: its parent is ${length(trace.trained - 1)} long, ` +
        `that of ${truth} ${ofTruth}. ${because}`
      );
    },
  },
];

const GLOWING = "the glow shows the pixels that change it most",
  FRAMED = "the frame shows what it sees";

let stops = [], // those of this page
  leg = 0, // where the tour is, or was left
  own = null; // how to bring the reader's image back, while another is shown

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}

// The longest parent where training ends, and the child of the image that couples most strongly with it.
function edgeOfTour() {
  const moment = { k: trace.epochs.length - 1, r: trace.trained - 1 },
    c = at(image.c, moment),
    parent = indexOfLargest(at(image.lengths, moment));
  const edges = [...image.src.keys()].filter((edge) => image.dst[edge] === parent),
    best = edges.reduce((best, edge) => (c[edge] > c[best] ? edge : best), edges[0]);
  return { parent, child: image.src[best] ?? image.order[0] };
}

// The numbers of this image that the tour speaks of.
function facts() {
  const k = Math.round(now.k),
    child = now.child ?? edgeOfTour().child,
    lengths = at(image.lengths, { k, r: trace.trained - 1 }),
    parent = indexOfLargest(lengths);
  const edge = image.src.findIndex((from, e) => from === child && image.dst[e] === parent),
    of = (read, digits) => (r) => fixed(at(read, { k, r })[edge] ?? 0, digits);
  return {
    child,
    name: trace.parents[parent].name,
    few: counted(trace.children, "small vector", "small vectors"),
    parents: counted(trace.parents.length, "parent", "parents"),
    looks: `${graph.side ? "in its picture " : ""}${heat?.kind === "fields" ? FRAMED : GLOWING}`,
    decodes: Boolean(trace.network?.decoder),
    onePass: ["attention", "uniform"].includes(trace.network?.layers.at(-1).routing),
    agreement: of(image.agreement, 2),
    coupling: of(image.c, 3),
    entropy: (r) => at(image.meanEntropy, { k, r }).toFixed(3),
    largest: (r) => at(image.largest, { k, r }).toFixed(3),
    length: (r) => at(image.lengths, { k, r })[parent].toFixed(2),
    truth: trace.parents[image.label]?.name,
    ofTruth: lengths[image.label]?.toFixed(2),
    wrong: isWrong(image, parent),
  };
}

// Show an image that is answered wrongly; the reader's own comes back afterwards.
function takeWrong() {
  const wrong = chooser.findIndex((each) => each.wrong);
  if (wrong < 0 || own) return;
  const input = chooserInput(wrong),
    back = snapshot();
  own = () => input.checked && back(); // or the reader has gone on to another
  input.click();
}

function giveBack() {
  own?.();
  own = null;
}

// The element that a stop speaks of.
function subjectAt({ at }) {
  return $(typeof at === "function" ? at() : at);
}

function beginTour() {
  stops = STOPS.filter((stop) => (!stop.votes || $("#why")) && !subjectAt(stop).hidden);
  document.body.classList.add("touring");
  $("#tour").hidden = false;
  visit(Math.min(leg, stops.length - 1));
  $("#tour-head").focus({ preventScroll: true });
}

function leaveTour() {
  $("#tour").hidden = true;
  document.body.classList.remove("touring");
  document.body.style.removeProperty("--tour");
  $(".toured")?.classList.remove("toured");
  giveBack();
  nameBegin();
  $("#begin").focus();
}

function touring() {
  return !$("#tour").hidden;
}

function nameBegin() {
  $("#begin").hidden = touring();
  $("#begin").textContent = leg === 0 ? "Take the tour" : `Take up the tour at ${leg + 1} of ${stops.length}`;
}

function visit(n) {
  if (stops[leg]?.title !== stops[n].title && stops[leg]?.title === "Where it goes wrong") giveBack();
  leg = n;
  const target = subjectAt(stops[leg]),
    { r, ...selection } = stops[leg].go();
  go({ k: trace.epochs.length - 1, r: r === undefined ? now.r : Math.min(r, trace.iterations - 1) });
  choose({ parent: null, ...selection, hovered: null });
  $(".toured")?.classList.remove("toured");
  target.classList.add("toured");
  drawTour();
  nameBegin();
  bringIntoSight(target);
}

// Scroll so that the target begins below the sliders; they and the tour leave it the room between them.
function bringIntoSight(target) {
  const { top } = target.getBoundingClientRect(),
    above = $("#time").offsetHeight + 14;
  scrollBy({ top: top - above, behavior: still.matches ? "instant" : "smooth" });
}

function drawTour() {
  if (!touring()) return;
  const { title, say } = stops[leg],
    texts = [`${leg + 1} of ${stops.length}: ${title}`, say(facts())];
  ["#tour-head", "#tour-text"].forEach((id, at) => $(id).textContent === texts[at] || ($(id).textContent = texts[at]));
  $("#tour-back").disabled = leg === 0;
  $("#tour-next").textContent = leg === stops.length - 1 ? "Finish" : "Next";
  document.body.style.setProperty("--tour", `${$("#tour").offsetHeight}px`); // what it speaks of keeps clear of it
}

function nextStop() {
  if (leg < stops.length - 1) return visit(leg + 1);
  giveBack();
  leg = 0;
  leaveTour();
}

$("#begin").addEventListener("click", beginTour);
$("#tour-next").addEventListener("click", nextStop);
$("#tour-back").addEventListener("click", () => {
  visit(leg - 1);
  if (leg === 0) $("#tour-next").focus();
});
$("#tour-end").addEventListener("click", leaveTour);

// Escape closes a card that the focus is on, else the tour; else it is the page's.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || !(spoken || touring())) return;
    const card = spoken && spoken === document.activeElement;
    hideCard();
    if (!card && !touring()) return;
    event.stopImmediatePropagation();
    if (!card) leaveTour();
  },
  { capture: true },
);
extras.push(drawTour);
nameBegin();
