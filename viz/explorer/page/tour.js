// A guided tour of the reader's own image, which can be left and taken up again. It stands at the lower edge of the
// window, and what it speaks of is scrolled to the room above it.

// The stops, named as in words.js: the element explained, and what it sets on the page. Without a network there are fewer.
const STOPS = [
  { name: "child", at: "#graph", go: () => ({ r: trace.trained - 1, child: edgeOfTour().child }) },
  { name: "votes", at: "#votes", go: () => ({ r: 0, ...edgeOfTour() }) },
  { name: "agreement", at: "#edge", go: () => ({ r: 0, ...edgeOfTour() }) },
  { name: "softmax", at: "#softmax", go: () => ({ r: 1, ...edgeOfTour() }) },
  { name: "round", at: "#lines", go: () => ({ r: 1, ...edgeOfTour() }) },
  { name: "entropy", at: "#entropy", go: () => ({ r: trace.trained - 1 }) },
  { name: "done", at: "#graph", go: () => ({ r: trace.trained - 1, child: null, parent: null }) },
];

let stops = [], // those of this page
  leg = 0; // where the tour is, or was left

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
    few: words.fewVectors(trace.children),
    parents: words.parents(trace.parents.length),
    decoded: Boolean(trace.network?.decoder),
    trained: trace.trained,
    onePass: ["attention", "uniform"].includes(trace.network?.layers.at(-1).routing),
    agreement: of(image.agreement, 2),
    coupling: of(image.c, 3),
    entropy: (r) => at(image.meanEntropy, { k, r }).toFixed(3),
    length: (r) => at(image.lengths, { k, r })[parent].toFixed(2),
  };
}

function beginTour() {
  stops = STOPS.filter(({ at }) => $(at) && !$(at).hidden);
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
  nameBegin();
  openDrawer(null);
  $("#doors button").focus();
}

function touring() {
  return !$("#tour").hidden;
}

function nameBegin() {
  $("#begin").textContent = leg === 0 ? words.takeTour : words.takeUp(leg + 1, stops.length);
}

function visit(n) {
  leg = n;
  const target = $(stops[leg].at),
    { r, ...selection } = stops[leg].go();
  go({ k: trace.epochs.length - 1, r: r === undefined ? now.r : Math.min(r, trace.iterations - 1) });
  choose({ parent: null, ...selection, hovered: null });
  $(".toured")?.classList.remove("toured");
  target.classList.add("toured");
  openDrawer(target.closest(".drawer")?.id);
  drawTour();
  nameBegin();
  bringIntoSight(target);
}

function drawTour() {
  if (!touring()) return;
  const [title, say] = words.stops[stops[leg].name],
    texts = [words.stop(leg + 1, stops.length, title), say(facts())];
  ["#tour-head", "#tour-text"].forEach((id, at) => $(id).textContent === texts[at] || ($(id).textContent = texts[at]));
  $("#tour-back").disabled = leg === 0;
  $("#tour-next").textContent = leg === stops.length - 1 ? words.finish : words.next;
  document.body.style.setProperty("--tour", `${$("#tour").offsetHeight}px`); // what it speaks of keeps clear of it
}

function nextStop() {
  if (leg < stops.length - 1) return visit(leg + 1);
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
