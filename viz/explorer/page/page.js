// The page: its controls, and show(trace), which draws a trace wherever it comes from.
// Called by file.js for a trace, and by live.js for a trace and after each answer of the network.

const ENOUGH = 0.3; // share of a pixel that must belong to parents for their full colour
const graph = new Graph($(".stage > canvas"));
let chooser, // the images to choose from
  heat,
  photo,
  fold, // the children and parents that are shown
  looks = null, // pictures of where children look, or null
  // Other files replace these: pictures of the children, or null; the picture of a parent at this moment; maps of the pixels
  // that belong to parents at a moment; {lengths, fold} of the answer before lines were pulled, or null; and how the image is drawn, with a tint and the field of a child.
  portraits = () => looks,
  pictureOf = () => null,
  painted = () => null,
  beforePulls = () => null,
  showSheet = (tinted, frame) => drawPhoto($("#sheet canvas"), photo, tinted, frame);

// Draw a trace, at round r and epoch k from 0. A selection stays where the new one has the same child or parent.
function show(data, r = data.trained - 1, k = data.epochs.length - 1) {
  stop();
  trace = data;
  now.n = Math.min(trace.start, trace.images.length - 1);
  now.k = Math.min(k, trace.epochs.length - 1);
  now.r = Math.min(r, trace.iterations - 1);
  if (now.parent >= trace.parents.length) now.parent = null;
  $("#epochs").hidden = trace.epochs.length < 2;
  $("#epoch").max = trace.epochs.length - 1;
  $("#sheet").hidden = !trace.images[0].pixels;
  $("#desk").hidden = !trace.images[0].pixels && trace.images.length < 2;
  $("main").classList.toggle("unpictured", $("#sheet").hidden);
  recolor();
  takeImage(now.n);
}

// The chooser: `images` have a name, pixels or null, and the parent that a wrong answer took them for; pick(n) is called
// with the one chosen.
function showImages(images, chosen, pick) {
  chooser = images;
  $("#images").hidden = images.length < 2;
  images.forEach(({ name, pixels, wrong }, n) => {
    const label = document.createElement("label");
    label.innerHTML = '<input type="radio" name="image"><canvas></canvas><span></span>';
    const [input, canvas, caption] = label.children;
    input.addEventListener("change", () => pick(n));
    input.checked = n === chosen;
    canvas.hidden = !pixels;
    if (pixels) paste(canvas, photograph(pixels));
    caption.textContent = wrong ? `${name} ${WRONG} ${wrong}` : name;
    caption.title = wrong ? words.takenFor(name, wrong) : name;
    $(".thumbs").append(label);
  });
}

// The control that chooses image n.
function chooserInput(n) {
  return document.querySelectorAll("#images input")[n];
}

function takeImage(n) {
  now.n = n;
  image = unpacked(trace, n);
  image.choices = new Map();
  for (const child of image.src) image.choices.set(child, (image.choices.get(child) ?? 0) + 1);
  if (!image.order.includes(now.child)) now.child = null;
  now.hovered = null;
  photo = image.pixels && photograph(image.pixels);
  heat = photo && image.saliency && new Heat(trace, image);
  looks = trace.network?.decoder ? null : portraitsByHeat();
  $("#lead").textContent = words.lead(noun(), Boolean(photo));
  const columns = words.columns(Boolean(trace.network?.decoder), Boolean(looks));
  columns.forEach((text, at) => ($("#columns").children[at].textContent = text));
  $("#source").textContent = [trace.title, ...trace.source].join(" · ");
  $("#shown-edges").textContent =
    image.order.length < trace.children ? words.someChildren(image.order.length, trace.children) : "";
  redraw();
}

// Without a decoder, where each child looks; dots where children are many.
function portraitsByHeat() {
  if (!heat || image.order.length > PICTURED) return null;
  const portrait = (child) => {
    const { width, height } = photo,
      canvas = raster(height, width, () => [0, 0, 0, 255]),
      context = canvas.getContext("2d");
    context.drawImage(photo, 0, 0);
    multiply(context, tint([heat.spot(child)], [look.glow], 255, height, width), 0, 0, width, height);
    return canvas;
  };
  return new Map(image.order.map((child) => [child, portrait(child)]));
}

function recolor() {
  look = lookWith(trace.parents.map(({ color }) => color));
}

function draw() {
  const c = at(image.c, now),
    lengths = at(image.lengths, now);
  fold = folded();
  const longest = indexOfLargest(lengths),
    parent = now.parent ?? fold.choices.get(spokenOf())?.[0] ?? longest;
  const blank = $("main").classList.contains("blank"), // set by live.js for an empty sheet
    untrained = trace.epochs.length > 1 && trace.epochs[Math.round(now.k)] === 0, // the longest parent means nothing
    verdict = { blank, untrained, wrong: isWrong(image, longest) && !untrained && !blank };
  $(".stage").style.setProperty("--least", `${24 * fold.parents.length}px`);
  graph.take(image, fold, fold.children.length <= PICTURED && isLastEpoch() ? portraits() : null);
  graph.draw(c, now, now.hovered, look);
  drawTitle(blank);
  drawTime();
  drawScale($("#scale"), graph, trace.choices, look, trace.choices && leastToChoose(trace.choices));
  drawParents(lengths, longest, verdict);
  drawTip(c);
  if (photo) drawImage();
  const chosenColor = (child) => look.parents[fold.choices.get(child)?.[0]];
  curve = drawEntropy($("#entropy canvas"), trace, image, now, chosenColor, look);
  drawNumbers(longest, lengths, verdict);
  $("#clear").hidden = now.parent === null && now.child === null;
  $("#folded").hidden = !fold.undecided || (fold.all && !now.all);
  $("#folded").textContent = now.all ? words.fold : words.undecidedParts(fold.undecided);
  $("#folded").setAttribute("aria-pressed", now.all);
  drawPin();
  if (!$("#why").hidden) drawChildTable(c);
  for (const extra of extras) extra(parent);
}

// Pin the chosen child, which then stays in sight, and name it.
function drawPin() {
  const { child, pinned } = now;
  $("#pins").hidden = child === null;
  if (child === null) return;
  $("#pin").textContent = words.pin(child, child in pinned);
  $("#pin").setAttribute("aria-pressed", child in pinned);
  $("#name").hidden = !(child in pinned);
  Object.assign($("#name"), { placeholder: words.name, ariaLabel: words.nameOf(child) });
  if (document.activeElement !== $("#name")) $("#name").value = pinned[child] ?? "";
}

$("#pin").addEventListener("click", () => {
  const { [now.child]: name, ...others } = now.pinned;
  choose({ pinned: name === undefined ? { ...others, [now.child]: "" } : others });
});
$("#name").addEventListener("input", ({ target }) => {
  choose({ pinned: { ...now.pinned, [now.child]: target.value.replaceAll("~", "") } });
});
$("#epoch").addEventListener("input", (event) => go({ k: Number(event.target.value) }));
$("#epochs button").addEventListener("click", () => toggle("epochs"));
$("#folded").addEventListener("click", () => choose({ all: !now.all, hovered: null }));

graph.canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
  if (graph.pull) return;
  const under = graph.under(x, y, now);
  choose({ hovered: under && { ...under, x, y } });
});
graph.canvas.addEventListener("pointerleave", () => choose({ hovered: null }));
graph.canvas.addEventListener("click", ({ offsetX: x, offsetY: y }) => {
  if (graph.pulled) return (graph.pulled = false); // the end of a pull isn't a click
  const under = graph.under(x, y, now);
  if (!under) choose({ child: null, parent: null });
  else if (under.edge === undefined) choose({ child: under.child === now.child ? null : under.child });
  else if (under.child === now.child && under.parent === now.parent) choose({ child: null, parent: null });
  else choose({ child: under.child, parent: under.parent });
});
graph.canvas.addEventListener("keydown", stepChild);

// What formulas.js points at, as what is under the pointer.
function pointedAt({ child, parent }) {
  return { child, parent, edge: graph.edges.find((e) => image.src[e] === child && image.dst[e] === parent) };
}

function stepChild(event) {
  step(event, fold.children, now.child, (child) => choose({ child, hovered: null }));
}

function renew() {
  if (!image) return; // the data aren't read yet
  recolor();
  takeImage(now.n);
  for (const renewal of renewals) renewal();
}
