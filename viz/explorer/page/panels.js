// The parts of the page around the graph: each shows the moment `now` of `image` in words, numbers and bars.
// `now`, `trace`, `image`, `fold`, `heat`, `photo` and `look` are page.js's and shell.js's.

const WRONG = "✗",
  RIGHT = "✓",
  DEAD = "†";
const MOST_ROWS = 24, // parents that all have a row where their loads are shown
  LEAST_SIDE = 12, // pixels of a parent's picture
  LARGEST_SIDE = 104,
  ROOMY = 60; // pixels of a picture beside which an old length has room

// Pictures of children and parents are known of the last epoch alone.
function isLastEpoch() {
  return Math.round(now.k) === trace.epochs.length - 1;
}

// The parent that an image of a trace's JSON was taken for, or "". The network's answer is the longest
// parent after the rounds of training.
function wrongOf({ trained, parents }, each) {
  const longest = indexOfLargest(each.lengths.at(-1)[trained - 1]);
  return isWrong(each, longest, parents) ? parents[longest].name : "";
}

function isWrong({ label }, longest, parents = trace.parents) {
  return label in parents && label !== longest;
}

// The parents that are the answer: of several objects as many of the longest.
function answers(lengths) {
  const order = [...lengths.keys()].sort((a, b) => lengths[b] - lengths[a] || a - b);
  return order.slice(0, trace.network?.objects ?? 1);
}

// child -> [parent, coupling] of its largest coupling at a moment; the parent is null while the child is undecided.
function choicesAt(moment) {
  const { src, dst, choices } = image,
    c = at(image.c, moment),
    best = new Map();
  src.forEach((child, e) => c[e] <= c[best.get(child)] || best.set(child, e));
  for (const [child, e] of best) {
    best.set(child, [c[e] > leastToChoose(choices.get(child)) ? dst[e] : null, c[e]]);
  }
  return best;
}

// The children and parents shown: those that decide after the rounds of training and the parents they choose, or all. The
// order is that of the pictures: by the mean place of the parents, weighed by the couplings.
function folded() {
  const answer = { k: Math.round(now.k), r: trace.trained - 1 },
    choices = choicesAt(answer),
    decided = image.order.filter((child) => choices.get(child)[0] !== null || child in graph.held || child in now.pinned || child === now.child),
    chosen = new Set([...answers(at(image.lengths, answer)), ...decided.map((child) => choices.get(child)[0]), ...Object.values(graph.held), now.parent]),
    linked = new Set(image.dst),
    parents = [...trace.parents.keys()].filter((j) => linked.has(j) || chosen.has(j)),
    place = meanPlaces(at(image.c, answer), chosen);
  const old = beforePulls()?.fold ?? { children: [], parents: [] }, // stay where they were
    joined = (some, more) => [...some, ...more.filter((each) => !some.includes(each))],
    shown = joined(old.children, decided.sort((a, b) => place(a) - place(b))),
    all = now.all || !shown.length;
  return {
    choices,
    all,
    undecided: image.order.length - shown.length,
    children: all ? image.order : shown,
    parents: all || (trace.dead && parents.length <= MOST_ROWS) ? parents : joined(old.parents, parents.filter((j) => chosen.has(j))),
  };
}

// The mean place of each child's parents among those that are `shown`, weighed by couplings c.
function meanPlaces(c, shown) {
  const weights = new Map();
  image.src.forEach((child, e) => {
    const [weight, sum] = weights.get(child) ?? [0, 0];
    if (shown.has(image.dst[e])) weights.set(child, [weight + c[e], sum + c[e] * image.dst[e]]);
  });
  return (child) => (weights.has(child) ? weights.get(child)[1] / weights.get(child)[0] : trace.parents.length);
}

// A question, and how many children choose which parent at this moment.
function drawTitle(blank) {
  const [k, r] = [Math.round(now.k), Math.round(now.r)],
    counts = Array(trace.parents.length).fill(0);
  for (const [parent] of choicesAt({ k, r }).values()) if (parent !== null) counts[parent]++;
  const all = image.chosen?.(k, r) ?? counts, // of children that aren't shown too
    chosen = [...all.keys()].filter((j) => all[j]).sort((a, b) => all[b] - all[a]),
    named = chosen.map((j) => [trace.parents[j].name, all[j]]),
    title = words.title(noun(), trace.network?.objects ?? 1, blank ? null : named, image.chosen ? image.linked.length : image.order.length);
  if ($("h1").textContent !== title) $("h1").textContent = title;
}

// The noun that the parents stand for.
function noun() {
  if (!photo) return words.parent;
  return trace.parents.every(({ name }) => /^\d$/.test(name)) ? "digit" : "class";
}

function drawTime() {
  const epoch = trace.epochs[Math.round(now.k)];
  drawRound();
  $("#epoch").value = Math.round(now.k);
  $("#epochs output").textContent = words.of(epoch, trace.epochs.at(-1)) + (epoch === 0 ? `, ${words.untrained}` : "");
  $("#epochs button").setAttribute("aria-pressed", now.playing?.over === "epochs");
}

// The rows of the parents shown, each with its picture by the decoder, where there is one.
function drawParents(lengths, longest, { blank, untrained, wrong }) {
  const answer = blank || untrained ? [] : answers(lengths),
    before = beforePulls(),
    largest = trace.parents.some(({ name }) => name.length > 3) ? 72 : LARGEST_SIDE, // a word needs room beside it
    side = Math.max(LEAST_SIDE, Math.min(largest, $(".stage").clientHeight / fold.parents.length - 8));
  $("#parents").style.setProperty("--side", `${side}px`);
  $("#parents").classList.toggle("filtered", now.parent !== null);
  fill($("#parents"), fold.parents.length, "button", (row) => {
    row.type = "button";
    row.innerHTML = '<canvas hidden></canvas><span class="dot"></span> <span class="name"></span> <span class="value"></span><span class="unseen"></span><span class="bar"></span><span class="was"></span>';
    row.addEventListener("click", () => choose({ parent: now.parent === Number(row.dataset.parent) ? null : Number(row.dataset.parent) }));
  });
  fold.parents.forEach((j, at) => {
    const row = $("#parents").children[at],
      { name } = trace.parents[j],
      dead = trace.dead?.[Math.round(now.k)][Math.round(now.r)][j],
      value = blank ? "" : words.amount(lengths[j]),
      picture = blank || !isLastEpoch() ? null : pictureOf(j);
    row.dataset.parent = j;
    row.title = name;
    row.style.setProperty("--of", look.parents[j]);
    row.classList.toggle("longest", answer.includes(j));
    row.classList.toggle("target", (graph.pull?.to ?? now.hovered?.parent) === j);
    row.setAttribute("aria-pressed", j === now.parent);
    row.querySelector("canvas").hidden = !picture;
    if (picture) paste(row.querySelector("canvas"), picture);
    row.querySelector(".dot").textContent = dead ? DEAD : wrong ? { [longest]: WRONG, [image.label]: RIGHT }[j] ?? "" : "";
    row.querySelector(".name").textContent = name;
    row.querySelector(".value").textContent = value;
    row.querySelector(".bar").style.setProperty("--share", blank ? 0 : lengths[j]);
    row.querySelector(".was").textContent = side >= ROOMY && before && value !== words.amount(before.lengths[j]) ? words.was(before.lengths[j]) : "";
    row.querySelector(".unseen").textContent = words.marks(answer.includes(j), wrong && j === longest, wrong && j === image.label, dead);
  });
}

function drawTip(c) {
  const tip = $("#tip"),
    { hovered } = now;
  tip.hidden = hovered?.x === undefined || Boolean(graph.pull);
  if (tip.hidden) return;
  const { child, parent, edge, x, y } = hovered;
  const lines = [sentence(childName(child))];
  if (edge !== undefined) {
    lines[0] = words.gives(child, c[edge], trace.parents[parent].name);
    lines.push(...words.tipEdge(...numbersAt(now)(edge)));
  } else lines.push(words.tipChild(at(image.entropy, now)[child].toFixed(3)));
  placeTip(lines, x, y);
}

function childName(child) {
  return now.pinned[child] || words.child(child);
}

// A child in a table of children.
function shortName(child) {
  return now.pinned[child] || words.tag(child);
}

// A function that gives the numbers of an edge at a moment: c, b and agreement; of a softmax without votes c alone.
function numbersAt(moment) {
  const [c, b, agreement] = ["c", "b", "agreement"].map((name) => image[name] && at(image[name], moment));
  return (edge) => [fixed(c[edge], 3), ...(agreement ? [writtenLogit(b[edge], image.src[edge], image.dst[edge]), fixed(agreement[edge], 2)] : [])];
}

// The image, its strokes in the colours of the parents that get them; or those that move the child under the pointer.
function drawImage() {
  const child = now.hovered?.child ?? now.child,
    { fields } = trace,
    parents = now.parent === null ? fold.parents : [now.parent],
    [, height, width] = image.pixels.shape,
    lit = parents.map((j) => rgbOf(lighter(trace.parents[j].color, "#000000")));
  let tinted = null,
    note = "";
  if (child !== null && heat && isLastEpoch()) {
    tinted = tint([heat.spot(child)], [look.glow], 255, height, width);
    note = words.glowOfChild(childName(child));
  } else {
    const maps = painted(parents, now) ?? heat?.maps(parents, now);
    if (maps) tinted = tint(maps, lit, ENOUGH, height, width);
    if (maps) note = words.colors;
  }
  const frame = child !== null && fields && !heat ? fields.places[fields.of[child]] : null;
  if (frame) note = words.frame(frame[2], frame[3], childName(child));
  showSheet(tinted, frame);
  $("#sheet canvas").title = note;
  if ($("#ink").textContent !== note) $("#ink").textContent = note;
  const truth = trace.parents[image.label]?.name;
  $("#sheet canvas").setAttribute("aria-label", `${words.sheet(truth)} ${note}`);
}

function drawChildTable(c) {
  if ($("#child").hidden) return;
  const { child } = now,
    edges = [...image.src.keys()].filter((edge) => image.src[edge] === child);
  $("#child table").hidden = child === null;
  $("#child h2").textContent = child === null ? words.oneChild : words.divides(child);
  $("#child p").textContent = child === null ? words.chooseChild : words.sumsTo1(at(image.entropy, now)[child].toFixed(3));
  const numbers = numbersAt(now);
  fill($("#child tbody"), edges.length, "tr", (row) => {
    row.innerHTML = '<td></td><td><span class="bar"></span></td><td></td><td></td><td></td>';
  });
  edges.forEach((edge, at) => {
    const { cells } = $("#child tbody").rows[at],
      parent = image.dst[edge];
    cells[0].textContent = trace.parents[parent].name;
    cells[1].firstChild.style.setProperty("--share", c[edge]);
    cells[1].firstChild.style.setProperty("--of", look.parents[parent]);
    numbers(edge).forEach((text, column) => (cells[2 + column].textContent = text));
  });
}

function drawNumbers(longest, lengths, { blank, untrained, wrong }) {
  const mean = at(image.meanEntropy, now),
    { level, choices } = trace,
    undecided = choices ? `ln ${choices} = ${level.toFixed(2)}` : words.onAverage(level.toFixed(2));
  $("#mean").textContent = words.meanEntropy(mean.toFixed(2), undecided);
  $("#entropy canvas").setAttribute("aria-label", `${$("#entropy h2").textContent}. ${$("#mean").textContent}`);
  const place = words.moment(Math.round(now.r) + 1, trace.epochs[Math.round(now.k)]);
  const chosen = now.child === null ? "" : words.isSelected(childName(now.child));
  graph.canvas.setAttribute("aria-label", words.graphLabel(words.children(fold.children.length), words.parents(fold.parents.length), chosen));
  const answer = blank ? words.noAnswer : words.longestIs(trace.parents[longest].name, words.amount(lengths[longest]), wrong);
  const text = `${place}: ${untrained ? words.untrained : answer}.${chosen}`;
  if (!now.playing && $("#status").textContent !== text) $("#status").textContent = text;
}
