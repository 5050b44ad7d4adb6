// The page: its controls, and show(trace), which draws a trace wherever it comes from.
// Called by file.js for a trace, and by live.js for a trace and after each answer of the network.

const graph = new Graph($(".stage > canvas"));
let chooser, // the images to choose from
  heat,
  photo;

// Draw a trace, at iteration r and epoch k from 0. Where it has fewer epochs than the page, `drawn` is how many that has.
// A selection stays where the new one has the same child or parent.
function show(data, r = data.trained - 1, k = data.epochs.length - 1) {
  stop();
  trace = data;
  now.n = Math.min(trace.start, trace.images.length - 1);
  now.k = Math.min(k, trace.epochs.length - 1);
  now.r = Math.min(r, trace.iterations - 1);
  if (now.parent >= trace.parents.length) now.parent = null;
  const alone = trace.epochs.length < 2;
  if (alone) now.last = "iterations"; // there are no epochs to play
  $("#epochs").hidden = alone && !trace.drawn;
  for (const control of $("#epochs").querySelectorAll("button, input")) control.disabled = alone;
  $("#iteration").max = trace.iterations;
  Object.assign($("#epoch"), { min: alone ? -1 : 0, max: trace.epochs.length - 1 }); // one epoch is the last: at the right
  fill($("#parents"), trace.parents.length, "button", (row, j) => {
    row.type = "button";
    row.innerHTML = `<span class="dot"></span><span class="name"></span>
      <span><span class="bar"></span></span><span class="value"></span>`;
    row.addEventListener("click", () => choose({ parent: now.parent === j ? null : j }));
  });
  trace.parents.forEach(({ name }, j) => {
    $("#parents").children[j].querySelector(".name").textContent = name;
    $("#parents").children[j].title = name;
  });
  const letters = Math.max(...trace.parents.map(({ name }) => name.length));
  $("#graph").style.setProperty("--names", `${Math.min(5.5, 0.52 * letters + 0.3)}rem`);
  $("#picture").hidden = !trace.images[0].pixels;
  $("main").classList.toggle("unpictured", !trace.images[0].pixels);
  recolor();
  takeImage(now.n);
}

// The chooser: `images` have a name, pixels or null, what a wrong answer took them for, and the group they stand in;
// pick(n) is called with the one chosen.
function showImages(images, chosen, pick) {
  chooser = images;
  $("#images").hidden = images.length < 2 && !images[0].pixels;
  const groups = [...new Set(images.map(({ group = "" }) => group))];
  for (const [at, group] of groups.entries()) {
    const row = $("#images").appendChild(document.createElement("div"));
    row.innerHTML = '<p></p><div class="thumbs"></div>';
    const [head, thumbs] = row.children;
    head.hidden = !group;
    head.id = `group-${at}`;
    if (group) thumbs.setAttribute("role", "group");
    if (group) thumbs.setAttribute("aria-labelledby", head.id);
  }
  images.forEach((each, n) => {
    const label = document.createElement("label"),
      { pixels, group = "" } = each;
    label.innerHTML = '<input type="radio" name="image"><canvas></canvas><span></span>';
    const [input, canvas, caption] = label.children;
    input.addEventListener("change", () => pick(n));
    input.checked = n === chosen;
    canvas.hidden = !pixels;
    if (pixels) showPicture(canvas, pixels);
    document.querySelectorAll(".thumbs")[groups.indexOf(group)].append(label);
  });
  nameImages();
}

function nameImages() {
  const groups = [...new Set(chooser.map(({ group = "" }) => group))];
  groups.forEach((group, at) => ($(`#group-${at}`).textContent = group));
  chooser.forEach((each, n) => {
    const name = each.name,
      caption = chooserInput(n).parentElement.querySelector("span");
    caption.textContent = each.wrong ? `${name} ${WRONG} ${each.wrong}` : name;
    caption.title = each.wrong ? words.takenFor(name, each.wrong) : name;
    chooserInput(n).setAttribute("aria-label", caption.title);
  });
}

// The control that chooses image n.
function chooserInput(n) {
  return document.querySelectorAll("#images input")[n];
}

function takeImage(n) {
  now.n = n;
  image = unpacked(trace, n);
  if (!image.order.includes(now.child)) now.child = null;
  now.hovered = null;
  photo = image.pixels && photograph(image.pixels);
  heat = photo && new Heat(trace, image);
  const known = heat?.kind === "saliency",
    pictured = (known || (photo && trace.looks)) && image.order.length <= PICTURED;
  const picture = (child) => {
    const { width, height } = photo,
      canvas = raster(height, width, () => [0, 0, 0, 255]),
      context = canvas.getContext("2d"),
      spot = known ? heat.ofChild(child) : new Float64Array(height * width);
    context.drawImage(photo, 0, 0);
    context.drawImage(glowing(spot, height, width, look.glow), 0, 0);
    return canvas;
  };
  const same = pictured && !known && picture(); // until a drawing rests, and where children look is measured
  graph.take(image, trace.parents, pictured ? new Map(image.order.map((child) => [child, same || picture(child)])) : null);
  $("#source").textContent = [trace.title, ...trace.source].join(" · ");
  $("#parents-head").textContent = words.parents(trace.parents.length);
  const all = image.order.length === trace.children;
  $("#children-head").textContent = all ? words.children(trace.children) : words.someChildren(image.order.length, trace.children);
  const cut = words.someCouplings(...[image.src.length, trace.edges].map(thousands));
  $("#shown-edges").textContent = image.src.length < trace.edges ? cut : "";
  $(".stage").style.setProperty("--least", `${22 * trace.parents.length}px`);
  redraw();
}

function recolor() {
  look = lookWith(trace.parents.map(({ color }) => color));
  look.parents.forEach((color, j) => $("#parents").children[j].style.setProperty("--of", color));
}

function draw() {
  const c = at(image.c, now),
    lengths = at(image.lengths, now);
  const longest = indexOfLargest(lengths),
    parent = now.parent ?? longest;
  const blank = $("main").classList.contains("blank"), // set by live.js for an empty sheet
    untrained = isUntrained(now),
    verdict = { blank, untrained, wrong: isWrong(image, longest) && !untrained && !blank };
  graph.matrix = now.matrix;
  $("#as-matrix").setAttribute("aria-pressed", now.matrix);
  drawTitle();
  drawTime();
  graph.draw(c, now, now.hovered, look);
  $("#named").hidden = !graph.numbered;
  drawScale($("#scale"), graph, trace.choices, look);
  drawParents(lengths, longest, verdict);
  drawTip(c);
  if (photo) drawImage(parent, longest, verdict);
  drawChildTable(c);
  drawEntropy($("#entropy canvas"), trace, image, now, now.child, look);
  drawHistogram($("#histogram canvas"), trace, image, now, parent, look);
  drawNumbers(parent, longest, lengths, verdict);
  for (const extra of extras) extra(parent);
}

$("#epoch").addEventListener("input", (event) => go({ k: Number(event.target.value) }));

graph.canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
  const found = graph.under(x, y, now);
  choose({ hovered: found && { ...found, x, y } });
});
graph.canvas.addEventListener("pointerleave", () => choose({ hovered: null }));
graph.canvas.addEventListener("click", ({ offsetX: x, offsetY: y }) => {
  const found = graph.under(x, y, now);
  if (!found) choose({ child: null, parent: null });
  else if (found.edge === undefined) choose({ child: found.child === now.child ? null : found.child });
  else if (found.child === now.child && found.parent === now.parent) choose({ child: null, parent: null });
  else choose({ child: found.child, parent: found.parent });
  requestAnimationFrame(bringChild); // once it is drawn
});

// Scroll so far that the table of the chosen child is in sight, where it lies below the window.
function bringChild() {
  const below = $("#child").getBoundingClientRect().bottom + 8 - innerHeight;
  if (now.child !== null && below > 0 && !still.matches) scrollBy({ top: below, behavior: "smooth" });
}
graph.canvas.addEventListener("keydown", stepChild);

// Up and down choose the child before and after.
function stepChild(event) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const count = image.order.length,
    from = now.child === null ? (by > 0 ? -1 : count) : image.order.indexOf(now.child);
  choose({ child: image.order[(from + by + count) % count], hovered: null });
}

function renew() {
  if (!image) return; // the data aren't read yet
  recolor();
  takeImage(now.n);
  for (const renewal of renewals) renewal();
}

renewals.push(nameImages);
