// The page: what is chosen, the controls, and show(trace), which draws a trace wherever it comes from.

const $ = (selector) => document.querySelector(selector);
const still = matchMedia("(prefers-reduced-motion: reduce)"), night = matchMedia("(prefers-color-scheme: dark)");
const STEP = 900, MOVE = 450; // milliseconds from step to step of a play, and of them in motion

const graph = new Graph($(".stage > canvas"));
const now = { n: 0, k: 0, r: 0, parent: null, child: null, hovered: null, playing: null, last: "iterations" };
let trace, image, heat, photo, look, waiting = false;

// Draw a trace; a selection stays where the new one has the same child or parent.
function show(data) {
  stop();
  trace = data;
  now.n = Math.min(trace.start, trace.images.length - 1);
  now.k = trace.epochs.length - 1;
  now.r = trace.iterations - 1;
  if (now.parent >= trace.parents.length) now.parent = null;
  $("#source").textContent = [trace.title, ...trace.source].join(" · ");
  $("#epochs").hidden = trace.epochs.length < 2;
  $("#iteration").max = trace.iterations;
  $("#epoch").max = trace.epochs.length - 1;
  $("#parents-head").textContent = counted(trace.parents.length, "parent", "parents");
  fill($("#parents"), trace.parents.length, "button", (row, j) => {
    row.type = "button";
    row.innerHTML = '<span class="dot"></span><span class="name"></span><span><span class="bar"></span></span><span class="value"></span>';
    row.addEventListener("click", () => choose({ parent: now.parent === j ? null : j }));
  });
  trace.parents.forEach(({ name }, j) => {
    $("#parents").children[j].querySelector(".name").textContent = name;
    $("#parents").children[j].title = name;
  });
  const letters = Math.max(...trace.parents.map(({ name }) => name.length));
  $("#parents").style.setProperty("--names", `${Math.min(6, 0.62 * letters + 0.3)}em`);
  showImages();
  recolor();
  takeImage(now.n);
}

function showImages() {
  const shown = trace.images.length > 1 || trace.images[0].pixels;
  $("#images").hidden = !shown;
  $("#picture").hidden = !trace.images[0].pixels;
  $("main").classList.toggle("unpictured", !trace.images[0].pixels);
  fill($(".thumbs"), trace.images.length, "label", (label, n) => {
    label.innerHTML = '<input type="radio" name="image"><canvas></canvas><span></span>';
    label.firstChild.addEventListener("change", () => takeImage(n));
  });
  trace.images.forEach(({ pixels, label }, n) => {
    const [input, canvas, name] = $(".thumbs").children[n].children;
    input.checked = n === now.n;
    name.textContent = trace.parents[label]?.name ?? `image ${n}`;
    name.title = name.textContent;
    canvas.hidden = !pixels;
    if (!pixels) return;
    const whole = photograph({ shape: pixels.shape, data: bytes(pixels.data) });
    Object.assign(canvas, { width: whole.width, height: whole.height }).getContext("2d").drawImage(whole, 0, 0);
  });
}

function takeImage(n) {
  now.n = n;
  image = unpacked(trace, n);
  if (!image.order.includes(now.child)) now.child = null;
  now.hovered = null;
  photo = image.pixels && photograph(image.pixels);
  heat = photo && new Heat(trace, image);
  const pictured = heat?.kind === "saliency" && image.order.length <= PICTURED;
  const picture = (child) => {
    const canvas = raster(heat.height, heat.width, () => [0, 0, 0, 255]), context = canvas.getContext("2d");
    context.drawImage(photo, 0, 0);
    context.drawImage(glowing(heat.ofChild(child), heat.height, heat.width, look.glow), 0, 0);
    return canvas;
  };
  graph.take(image, trace.parents, pictured ? new Map(image.order.map((child) => [child, picture(child)])) : null);
  const all = image.order.length === trace.children, kept = `${image.order.length} of ${trace.children}`;
  $("#children-head").textContent = all ? counted(trace.children, "child", "children") : `${kept} children`;
  const whole = image.src.length === trace.edges;
  $("#kept").textContent = whole ? "" : `${thousands(image.src.length)} of ${thousands(trace.edges)} couplings: those of the children that couple most strongly with each parent`;
  $(".stage").style.setProperty("--least", `${22 * trace.parents.length}px`);
  redraw();
}

function recolor() {
  const css = getComputedStyle(document.documentElement), value = (name) => css.getPropertyValue(`--${name}`).trim();
  const [ink, muted, faint, shade, accent] = ["ink", "muted", "faint", "shade", "accent"].map(value);
  const parents = trace.parents.map(({ color }) => (night.matches ? lighter(color) : color));
  look = { ink, muted, faint, shade, accent, parents, glow: channels(value("glow")), font: `12px ${css.fontFamily}` };
  parents.forEach((color, j) => $("#parents").children[j].style.setProperty("--of", color));
}

function channels(hex) {
  return [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16));
}

function lighter(hex) {
  return `rgb(${channels(hex).map((channel) => Math.round(channel + 0.28 * (255 - channel))).join(" ")})`;
}

// Make the list hold `count` elements; the new ones are handed to make(element, index).
function fill(list, count, tag, make) {
  while (list.children.length > count) list.lastChild.remove();
  while (list.children.length < count) {
    const element = list.appendChild(document.createElement(tag));
    make(element, list.children.length - 1);
  }
}

function counted(number, one, many) {
  return `${thousands(number)} ${number === 1 ? one : many}`;
}

function thousands(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function fixed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "\u2212");
}

// Draw everything at the next frame.
function redraw() {
  if (!waiting) requestAnimationFrame(() => ((waiting = false), draw()));
  waiting = true;
}

function draw() {
  const c = at(image.c, now), lengths = at(image.lengths, now);
  const longest = lengths.indexOf(Math.max(...lengths)), parent = now.parent ?? longest;
  drawTime();
  graph.draw(c, now, now.hovered, look);
  drawScale($("#scale"), graph, look);
  drawParents(lengths, longest);
  drawTip(c);
  if (photo) drawImage(parent);
  drawChildTable(c);
  drawEntropy($("#entropy canvas"), trace, image, now, now.child, look);
  drawHistogram($("#histogram canvas"), trace, image, now, parent, look);
  drawNumbers(parent, longest, lengths);
}

function drawTime() {
  const step = Math.round(now.r) + 1, epoch = trace.epochs[Math.round(now.k)];
  $("#iteration").value = step;
  $("#epoch").value = Math.round(now.k);
  $("#iterations output").innerHTML = `${step} of ${trace.iterations}${step > trace.trained ? " <small>beyond training</small>" : ""}`;
  $("#epochs output").innerHTML = `${epoch} of ${trace.epochs.at(-1)}${epoch === 0 ? " <small>untrained</small>" : ""}`;
  $("#epoch").setAttribute("aria-valuetext", `epoch ${epoch}`);
  for (const over of ["iterations", "epochs"]) $(`#${over} button`).setAttribute("aria-pressed", now.playing?.over === over);
}

function drawParents(lengths, longest) {
  $("#parents").classList.toggle("filtered", now.parent !== null);
  $("#clear").hidden = now.parent === null && now.child === null;
  lengths.forEach((length, j) => {
    const row = $("#parents").children[j];
    row.classList.toggle("longest", j === longest);
    row.setAttribute("aria-pressed", j === now.parent);
    row.setAttribute("aria-label", `${trace.parents[j].name}, length ${length.toFixed(2)}${j === longest ? ", the longest" : ""}`);
    row.querySelector(".bar").style.setProperty("--share", length);
    row.querySelector(".value").textContent = length.toFixed(2);
  });
}

function drawTip(c) {
  const tip = $("#tip"), { hovered } = now;
  tip.hidden = !hovered;
  if (!hovered) return;
  const { child, parent, edge, x, y } = hovered;
  const lines = [childName(child)];
  if (edge !== undefined) {
    lines[0] += ` → ${trace.parents[parent].name}`;
    lines.push(`coupling c  ${fixed(c[edge], 3)}`, `logit b  ${fixed(at(image.b, now)[edge], 2)}`);
    lines.push(`vote agreement  ${fixed(at(image.agreement, now)[edge], 2)}`);
  } else lines.push(`entropy  ${at(image.entropy, now)[child].toFixed(3)} nat`);
  tip.textContent = lines.join("\n");
  const { clientWidth: wide, clientHeight: high } = $(".stage");
  tip.style.left = `${Math.max(0, Math.min(x + 14, wide - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, y + 18 + tip.offsetHeight > high ? y - tip.offsetHeight - 10 : y + 18)}px`;
}

function childName(child) {
  return `child ${child}`;
}

function drawImage(parent) {
  const child = now.hovered?.child ?? now.child, seen = child !== null && trace.fields ? trace.fields.places[trace.fields.of[child]] : null;
  const alone = child !== null && heat.kind === "saliency", { name } = trace.parents[parent];
  const warm = heat.kind && (alone ? heat.ofChild(child) : heat.map(parent, now));
  drawPicture($("#picture canvas"), photo, warm, alone ? null : seen, look.glow);
  $("#picture h2").textContent = alone ? `Where ${childName(child)} looks` : heat.kind ? `Where the children of ${name} ${heat.kind === "saliency" ? "look" : "sit"}` : "Input image";
  const truth = trace.parents[image.label], label = truth ? `True label: ${truth.name}. ` : "";
  let said = "";
  if (alone) said = "Glow: the pixels that change its length most.";
  else if (heat.kind && !warm.some((value) => value > 0.02)) said = `No child has chosen ${name} yet.`;
  else if (heat.kind === "saliency") said = `Glow: the pixels that move the children which chose ${name}, weighted by coupling.`;
  else if (heat.kind) said = `Glow: fields of the children which chose ${name}, weighted by coupling.`;
  if (seen && !alone) said += ` Frame: the ${seen[2]} × ${seen[3]} pixels that ${childName(child)} sees.`;
  $("#picture figcaption").textContent = label + said;
  $("#picture canvas").setAttribute("aria-label", `Input image. ${label}${said}`);
}

function drawChildTable(c) {
  const { child } = now, edges = child === null ? [] : [...image.src.keys()].filter((edge) => image.src[edge] === child);
  $("#child table").hidden = child === null;
  $("#child h2").textContent = child === null ? "One child" : `${childName(child)[0].toUpperCase()}${childName(child).slice(1)} divides itself`;
  $("#child p").textContent = child === null
    ? "Choose a child at the left of the graph, or a line, to see how it divides itself among the parents."
    : `Its couplings sum to 1; entropy ${at(image.entropy, now)[child].toFixed(3)} nat.`;
  const b = at(image.b, now), agreement = at(image.agreement, now);
  fill($("#child tbody"), edges.length, "tr", (row) => (row.innerHTML = '<td></td><td><span class="bar"></span></td><td></td><td></td><td></td>'));
  edges.forEach((edge, at) => {
    const { cells } = $("#child tbody").rows[at], parent = image.dst[edge];
    cells[0].textContent = trace.parents[parent].name;
    cells[1].firstChild.style.setProperty("--share", c[edge]);
    cells[1].firstChild.style.setProperty("--of", look.parents[parent]);
    [fixed(c[edge], 3), fixed(b[edge], 2), fixed(agreement[edge], 2)].forEach((text, column) => (cells[2 + column].textContent = text));
  });
}

function drawNumbers(parent, longest, lengths) {
  const mean = at(image.meanEntropy, now), { level, choices } = trace, { name } = trace.parents[parent];
  const undecided = choices ? `ln ${choices} = ${level.toFixed(3)}` : `${level.toFixed(3)} on average`;
  const ratio = level > 0 ? `, ${(mean / level).toFixed(2)} of undecided (${undecided})` : "";
  $("#entropy figcaption").textContent = `Mean entropy ${mean.toFixed(3)} nat${ratio}.`;
  $("#histogram .own").style.setProperty("--of", look.parents[parent]);
  $("#histogram .legend span").textContent = `with ${name}${now.parent === null ? " (the longest)" : ""}`;
  const strong = thousands(Math.round(at(image.aboveHalf, now)));
  $("#histogram figcaption").textContent = `Largest ${at(image.largest, now).toFixed(3)}; above one half: ${strong} of ${thousands(trace.edges)}.`;
  for (const id of ["entropy", "histogram"]) $(`#${id} canvas`).setAttribute("aria-label", $(`#${id} figcaption`).textContent);
  const place = `Iteration ${Math.round(now.r) + 1}, epoch ${trace.epochs[Math.round(now.k)]}`;
  const chosen = now.child === null ? "" : ` ${childName(now.child)} is selected.`;
  graph.canvas.setAttribute("aria-label", `Couplings of ${$("#children-head").textContent} with ${$("#parents-head").textContent}. Up and down choose a child.${chosen}`);
  const said = `${place}: longest parent ${trace.parents[longest].name}, ${lengths[longest].toFixed(2)}.${chosen}`;
  if (!now.playing && $("#status").textContent !== said) $("#status").textContent = said;
}

function choose(selection) {
  Object.assign(now, selection);
  redraw();
}

// Go to whole places of time, within what there is.
function go({ k = now.k, r = now.r }) {
  stop();
  now.k = Math.min(trace.epochs.length - 1, Math.max(0, Math.round(k)));
  now.r = Math.min(trace.iterations - 1, Math.max(0, Math.round(r)));
  redraw();
}

function stop() {
  if (now.playing) cancelAnimationFrame(now.playing.frame);
  now.playing = null;
}

// Play from here to the end, or from the start where this is the end.
function play(over) {
  const axis = over === "epochs" ? "k" : "r", end = (over === "epochs" ? trace.epochs.length : trace.iterations) - 1;
  const from = Math.round(now[axis]) >= end ? 0 : Math.round(now[axis]);
  stop();
  now.last = over;
  now.playing = { over };
  let started = null;
  const tick = (time) => {
    started ??= time;
    const steps = Math.floor((time - started) / STEP), into = (time - started - steps * STEP - (STEP - MOVE)) / MOVE;
    const part = still.matches || into <= 0 ? 0 : (1 - Math.cos(Math.PI * into)) / 2;
    now[axis] = Math.min(end, from + steps + part);
    if (now[axis] >= end) stop();
    else now.playing.frame = requestAnimationFrame(tick);
    draw();
  };
  now[axis] = from;
  now.playing.frame = requestAnimationFrame(tick);
}

function toggle(over) {
  if (now.playing) go({});
  else play(over);
}

for (const over of ["iterations", "epochs"]) $(`#${over} button`).addEventListener("click", () => toggle(over));
$("#iteration").addEventListener("input", (event) => go({ r: event.target.value - 1 }));
$("#epoch").addEventListener("input", (event) => go({ k: Number(event.target.value) }));
$("#clear").addEventListener("click", () => choose({ parent: null, child: null }));

graph.canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
  const found = graph.under(x, y, now);
  choose({ hovered: found && { ...found, x, y } });
});
graph.canvas.addEventListener("pointerleave", () => choose({ hovered: null }));
graph.canvas.addEventListener("click", ({ offsetX: x, offsetY: y }) => {
  const found = graph.under(x, y, now);
  choose(found ? { child: found.child === now.child ? null : found.child } : { child: null, parent: null });
});
graph.canvas.addEventListener("keydown", (event) => {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const count = image.order.length, from = now.child === null ? (by > 0 ? -1 : count) : image.order.indexOf(now.child);
  choose({ child: image.order[(from + by + count) % count], hovered: null });
});

// Keys of the whole page; a control keeps those it has a use for.
document.addEventListener("keydown", (event) => {
  const { key, target } = event, uses = target.matches("input") ? /^Arrow/ : target.matches("button") ? /^( |Enter)$/ : /^$/;
  if (event.ctrlKey || event.metaKey || event.altKey || uses.test(key)) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (by && event.shiftKey) go({ k: Math.round(now.k) + by });
  else if (by) go({ r: Math.round(now.r) + by });
  else if (key === " ") toggle(now.last);
  else if (key === "Escape") choose({ parent: null, child: null, hovered: null });
  else return;
  event.preventDefault();
});

night.addEventListener("change", () => (recolor(), takeImage(now.n)));
new ResizeObserver(redraw).observe(document.body);
