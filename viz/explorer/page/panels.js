// The parts of the page around the graph: each shows the moment `now` of `image` in words, numbers and bars.
// `now`, `trace`, `image`, `heat`, `photo` and `look` are page.js's.

const WRONG = "✗",
  RIGHT = "✓";

// Whether a moment is before the first epoch of a trained run: the longest parent means nothing there.
function isUntrained({ k }) {
  return trace.epochs.length > 1 && trace.epochs[Math.round(k)] === 0;
}

// Of an image as it stands in a trace's JSON, what it was taken for, or "". The network's answer is the longest parent
// after the iterations of training.
function wrongOf({ trained, parents }, each) {
  const longest = indexOfLargest(each.lengths.at(-1)[trained - 1]);
  return isWrong(each, longest, parents) ? parents[longest].name : "";
}

function isWrong({ label }, longest, parents = trace.parents) {
  return label in parents && label !== longest;
}

// What one sees, and above it how many children choose, by the rule of viz/routing/entropy.py for the titles of pictures.
function drawTitle() {
  const [k, r] = [Math.round(now.k), Math.round(now.r)],
    nearlyEqual = image.meanEntropy(k, r) > NEARLY_EQUAL * trace.level,
    title = words.choice(trace.free, image.choosing(k, r), nearlyEqual);
  if ($("h1").textContent !== title) $("h1").textContent = title;
  $("#lead").textContent = words.lead(trace.children, trace.parents.length, Boolean(photo), now.matrix);
}

function drawTime() {
  const epoch = trace.epochs[Math.round(now.k)],
    note = epoch === 0 ? words.untrained : trace.drawn ? words.someEpochs(trace.epochs.length, trace.drawn) : "";
  drawIteration();
  $("#epoch").value = Math.round(now.k);
  $("#epochs output").replaceChildren(`${words.of(epoch, trace.epochs.at(-1))} `, small(note));
  $("#epoch").setAttribute("aria-valuetext", `${words.epoch} ${epoch}`);
}

function drawParents(lengths, longest, { blank, untrained, wrong }) {
  const objects = trace.network?.objects ?? 1, // of two digits the two longest parents are the answer
    none = blank || untrained,
    least = [...lengths].sort((a, b) => b - a)[objects - 1];
  $("#parents").classList.toggle("filtered", now.parent !== null);
  $("#clear").hidden = now.parent === null && now.child === null;
  lengths.forEach((length, j) => {
    const row = $("#parents").children[j];
    row.classList.toggle("longest", length >= least && !none);
    row.setAttribute("aria-pressed", j === now.parent);
    row.querySelector(".dot").textContent = wrong ? { [longest]: WRONG, [image.label]: RIGHT }[j] ?? "" : "";
    let mark = length >= least && !none ? (objects === 1 ? words.longest : words.amongLongest(objects)) : "";
    if (wrong && j === longest) mark += words.wrongMark;
    if (wrong && j === image.label) mark += words.trueMark;
    row.setAttribute("aria-label", words.parentLabel(trace.parents[j].name, length.toFixed(2), mark));
    row.querySelector(".bar").style.setProperty("--share", length);
    row.querySelector(".value").textContent = length.toFixed(2);
  });
}

function drawTip(c) {
  const tip = $("#tip"),
    { hovered } = now;
  tip.hidden = !hovered;
  if (!hovered) return;
  const { child, parent, edge, x, y } = hovered;
  const lines = [childName(child)];
  if (edge !== undefined) {
    lines[0] += ` → ${trace.parents[parent].name}`;
    const numbers = [fixed(c[edge], 3), fixed(at(image.b, now)[edge], 2), fixed(at(image.agreement, now)[edge], 2)];
    lines.push(...words.tipEdge(...numbers));
  } else lines.push(words.tipChild(at(image.entropy, now)[child].toFixed(3)));
  tip.textContent = lines.join("\n");
  const { clientWidth: wide, clientHeight: high } = $(".stage");
  tip.style.left = `${Math.max(0, Math.min(x + 14, wide - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, y + 18 + tip.offsetHeight > high ? y - tip.offsetHeight - 10 : y + 18)}px`;
}

function childName(child) {
  return words.child(child);
}

// A child in a table of children.
function shortName(child) {
  return child;
}

function drawImage(parent, longest, { untrained, wrong }) {
  const child = now.hovered?.child ?? now.child,
    { fields } = trace,
    { name } = trace.parents[parent];
  const seen = child !== null && fields ? fields.places[fields.of[child]] : null;
  const alone = child !== null && heat.kind === "saliency";
  const truth = trace.parents[image.label]?.name;
  let label = truth === undefined ? "" : words.trueLabel(truth);
  if (wrong) label = words.wrongLabel(trace.parents[longest].name, truth);
  if (untrained) label += words.untrainedLabel;
  let layers = {},
    heading = words.inputImage,
    explanation = "";
  if (heat.kind === "saliency") {
    const warm = alone ? heat.ofChild(child) : heat.map(parent, now);
    layers = { soft: glowing(warm, photo.height, photo.width, look.glow) };
    heading = alone ? words.whereChildLooks(childName(child)) : words.whereChildrenLook(name);
    explanation = words.glow(name);
    if (alone) explanation = words.glowOfChild;
    else if (!warm.some((value) => value > 0.02)) explanation = words.noneChose(name);
  } else if (heat.kind === "fields") {
    const one = now.parent !== null,
      shown = one ? [parent] : [...trace.parents.keys()],
      votes = heat.votes(now);
    const colors = shown.map((j) => channels(trace.parents[j].color));
    const maps = shown.map((j) => votes[j]);
    layers = painted(maps, colors, photo.height, photo.width, image.pixels);
    heading = one ? words.partsFor(name) : words.partsForWhat;
    explanation = one ? words.colorOf(name) : words.colors;
    if (!maps.some((map) => map.some((value) => value > 0.02))) explanation = words.noPart(name);
  }
  drawPicture($("#picture canvas"), photo, layers, alone ? null : seen);
  $("#picture h2").textContent = heading;
  if (seen && !alone) explanation += words.frame(seen[2], seen[3], childName(child));
  $("#picture figcaption").textContent = label + explanation;
  $("#picture canvas").setAttribute("aria-label", `${words.inputImage}. ${label}${explanation}`);
}

function drawChildTable(c) {
  const { child } = now,
    edges = [...image.src.keys()].filter((edge) => image.src[edge] === child);
  $("#child table").hidden = child === null;
  $("#child h2").textContent = child === null ? words.oneChild : words.divides(child);
  $("#child p").textContent =
    child === null
      ? words.chooseChild
      : words.sumsTo1(at(image.entropy, now)[child].toFixed(3));
  const b = at(image.b, now),
    agreement = at(image.agreement, now);
  fill($("#child tbody"), edges.length, "tr", (row) => {
    row.innerHTML = '<td></td><td><span class="bar"></span></td><td></td><td></td><td></td>';
  });
  edges.forEach((edge, at) => {
    const { cells } = $("#child tbody").rows[at],
      parent = image.dst[edge];
    cells[0].textContent = trace.parents[parent].name;
    cells[1].firstChild.style.setProperty("--share", c[edge]);
    cells[1].firstChild.style.setProperty("--of", look.parents[parent]);
    cells[2].textContent = fixed(c[edge], 3);
    cells[3].textContent = fixed(b[edge], 2);
    cells[4].textContent = fixed(agreement[edge], 2);
  });
}

function drawNumbers(parent, longest, lengths, { blank, untrained, wrong }) {
  const mean = at(image.meanEntropy, now),
    { level, choices } = trace,
    { name } = trace.parents[parent];
  const undecided = choices ? `ln ${choices} = ${level.toFixed(3)}` : words.onAverage(level.toFixed(3));
  const ratio = level > 0 ? (mean / level).toFixed(2) : "";
  $("#entropy figcaption").textContent = words.meanEntropy(mean.toFixed(3), ratio, undecided);
  $("#histogram .own").style.setProperty("--of", look.parents[parent]);
  $("#histogram .with").textContent = words.with(name, now.parent === null);
  const strong = [Math.round(at(image.aboveHalf, now)), trace.edges].map(thousands);
  $("#histogram figcaption").textContent = words.largest(at(image.largest, now).toFixed(3), ...strong);
  for (const id of ["#entropy", "#histogram"]) {
    $(`${id} canvas`).setAttribute("aria-label", $(`${id} figcaption`).textContent);
  }
  const place = words.moment(Math.round(now.r) + 1, trace.epochs[Math.round(now.k)]);
  const chosen = now.child === null ? "" : words.isSelected(childName(now.child));
  const ends = [$("#children-head").textContent, $("#parents-head").textContent];
  graph.canvas.setAttribute("aria-label", words.graphLabel(...ends, chosen));
  const answer = blank ? words.noAnswer : words.longestIs(trace.parents[longest].name, lengths[longest].toFixed(2), wrong);
  const text = `${place}: ${untrained ? words.untrained : answer}.${chosen}`;
  if (!now.playing && $("#status").textContent !== text) $("#status").textContent = text;
}
