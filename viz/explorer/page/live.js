// A page that carries its network: what is drawn is routed here, in a thread of its own, and shown.

const { network } = stored,
  { shape } = network,
  [, high, wide] = shape;
const ITERATIONS = stored.iterations,
  TOPS = Math.min(3, stored.parents.length),
  REST = 350, // milliseconds after which a drawing is taken to be done
  BEND = 0.25; // added to a number of the longest capsule, or taken away, at most
const layer = lastLayer(network),
  shelf = stored.images.map(shelved), // images to try
  EMPTY = { at: null, label: null, name: "" };
stored.looks &&= network.layers.length === 1; // saliency.js goes back from primary capsules
let shown = EMPTY, // the image that lies on the desk
  held = {}, // child: the parent that it was pulled to, or LET_GO
  pulledLast = null, // a child
  routed = null, // the newest answer: u_hat (E, D), states of all rounds, tops
  count = 0, // questions asked
  asked = null, // the question that it answers: {count, data: pixels, label, page, moment}; later with saliency
  top1, // its longest parent
  underway = 0; // questions without an answer

// Ends of the last layer's edges, as the page has them; the network's arrays stay in its thread.
function lastLayer({ layers }) {
  const { src, dst, children, parents, weight, iterations, routing } = layers.at(-1),
    whole = ({ data }) => new Int32Array(data.buffer);
  return { src: whole(src), dst: whole(dst), children, parents, dim: weight.shape[2], iterations, routing };
}

// The edges of the last layer that a stored image keeps.
function edgesOf({ src, dst }) {
  const place = (e) => layer.src[e] * layer.parents + layer.dst[e],
    places = new Map([...layer.src.keys()].map((e) => [place(e), e]));
  return src.map((child, at) => places.get(child * layer.parents + dst[at]));
}

function shelved(each, n) {
  const name = stored.parents[each.label]?.name;
  return { name: name ?? `image ${n}`, classes: [each.label], pixels: each.pixels, wrong: name && wrongOf(stored, each) };
}

// Ask a thread with the network: ask(kind, question) is a promise of its answer.
function thread() {
  const url = URL.createObjectURL(new Blob([$("#worker").textContent], { type: "text/javascript" })),
    worker = new Worker(url),
    waiting = new Map();
  let count = 0;
  let broken = null;
  worker.onmessage = ({ data: { id, ...answer } }) => {
    waiting.get(id)?.(answer);
    waiting.delete(id);
  };
  worker.onerror = ({ message }) => {
    broken = message || words.threadStopped;
    waiting.forEach((done) => done({ error: broken }));
    waiting.clear();
  };
  const ask = (kind, question) =>
    new Promise((done) => {
      if (broken) return done({ error: broken });
      waiting.set(++count, done);
      worker.postMessage({ id: count, kind, ...question });
    });
  ask("load", { network }).then(({ error }) => error && trouble(error));
  return ask;
}

function trouble(error) {
  $("#trouble").hidden = !error;
  if (error) $("#trouble").textContent = words.cantAnswer(error);
}

// A function that asks one question at a time. While one is answered, only the newest other one waits.
function newest(ask, kind, arrived) {
  let waiting = null,
    running = false;
  return async (question, about) => {
    waiting = { question, about };
    if (running) return;
    running = true;
    expectAnswers(1);
    try {
      while (waiting) {
        const asked = waiting;
        waiting = null;
        const { error, ...answer } = await ask(kind, asked.question);
        if (error || kind === "explain") trouble(error);
        if (!error) arrived(answer, asked.about);
      }
    } finally {
      running = false;
      expectAnswers(-1);
    }
  };
}

function expectAnswers(more) {
  underway += more;
  $("main").setAttribute("aria-busy", underway > 0);
}

const ask = thread(),
  findLooks = stored.looks && !network.decoder ? newest(thread(), "saliency", addLooks) : null; // it takes a second
const explain = newest(ask, "explain", (answer, about) => showAnswer(answer, about));
const bendDecoded = newest(ask, "decode", ({ pictures: [picture] }, of) => of === top1 && showPixels($("#bend > canvas"), picture));

function showPixels(canvas, data) {
  paste(canvas, photograph({ shape, data }));
}

const options = { shape, ...network.desk, overlaps: network.objects > 1 },
  desk = new Desk($("#sheet canvas"), options, () => changed(), snapshot);
showSheet = (tinted, frame) => {
  Object.assign(desk, { tinted });
  desk.draw(asked?.data ?? desk.pixels(), asked?.count === count ? tinted : null, frame);
};

// Lay an image of the shelf on the desk, without showing it yet.
function layOut(at) {
  const { name, classes, pixels } = shelf[at];
  chooserInput(at).parentElement.scrollIntoView({ block: "nearest", inline: "center" });
  shown = { at, label: classes.length === 1 ? classes[0] : null, name: /^image \d/.test(name) ? sentence(`test ${name}`) : words.testImageOf(name) };
  held = {};
  Object.assign(desk, { picture: photograph(pixels), lines: [], adjust: { ...NEUTRAL } });
}

function takeShelved(at) {
  if (desk.lines.length || Object.keys(held).length) desk.remember();
  layOut(at);
  changed();
}

// A function that puts what lies on the desk now on it again. Sliders that move the same sheet move `adjust` itself, so
// they stay where they are; another sheet brings its own.
function snapshot() {
  const { picture, lines, adjust, past } = desk,
    previous = [shown, held];
  return () => {
    [shown, held] = previous;
    if (shown.at !== null) chooserInput(shown.at).checked = true;
    Object.assign(desk, { picture, lines, adjust, past });
    changed();
  };
}

// Let a child go where it was pulled: to a parent, to none with LET_GO, or with null by its own votes.
function hold(child, parent) {
  desk.remember();
  const { [child]: _, ...others } = held;
  held = parent === null ? others : { ...others, [child]: parent };
  pulledLast = child;
  changed();
}

// The desk has changed: show it, and ask what the network makes of it.
function changed(moment = null) {
  const empty = !desk.picture && !desk.lines.length;
  if (!desk.picture) {
    shown = { ...EMPTY, name: empty ? "" : words.drawing };
    for (const input of document.querySelectorAll("#images input")) input.checked = false;
  }
  if (empty) held = {};
  const altered = desk.lines.length > 0 || Object.values(desk.adjust).some((value) => value !== 0),
    { label, at } = shown,
    data = desk.pixels(),
    page = at !== null && !altered && !Object.keys(held).length ? at : null; // an unchanged image of the trace
  explain({ pixels: data, rounds: ITERATIONS, tops: TOPS, held }, { count: ++count, label, page, data, moment });
  graph.held = held;
  $("#shown").textContent = at !== null && altered ? words.changed(shown.name) : shown.name;
  $("#hint").hidden = !empty;
  for (const [id, value] of Object.entries(desk.adjust)) {
    $(`#${id}`).value = value;
    $(`#${id} + output`).textContent = fixed(value, id === "turn" ? 0 : 2) + (id === "turn" ? "°" : "");
  }
  $("#undo").setAttribute("aria-disabled", !desk.past.length); // it keeps the focus
  desk.draw(data, empty ? null : desk.tinted);
  showPixels($("#seen canvas"), data);
}

function showAnswer(answer, about) {
  const { label, page, data, moment } = about,
    epoch = moment?.epoch ?? trace.epochs[Math.round(now.k)],
    r = routed ? Math.round(now.r) : stored.trained - 1;
  routed = answer;
  asked = about;
  const lengths = [...answer.states[layer.iterations - 1].lengths].sort((a, b) => b - a),
    doubt = doubtOf(network, data, lengths, reconstructionOf(answer)),
    blank = doubt === "blank";
  $("main").classList.toggle("blank", blank);
  const names = answers([...answer.states[layer.iterations - 1].lengths]).map((parent) => stored.parents[parent].name),
    pairs = network.objects > 1 && desk.lines.length ? words.always(noun(), network.objects) : "",
    text = { blank: words.blank, short: words.short(names.at(-1), network.limits.most) + pairs, unlike: words.unlike(network.limits.most) }[doubt] ?? pairs;
  $("#doubts").hidden = !text;
  if ($("#doubts").textContent !== text) $("#doubts").textContent = text; // a screen reader reads each change aloud
  if (page !== null) {
    const one = unpacked(stored, page),
      images = Object.assign([...stored.images], { [page]: reanswered(one, answer, layer, stored, edgesOf(one)) }),
      k = stored.epochs.indexOf(epoch);
    show({ ...stored, start: page, images }, r, k < 0 ? stored.epochs.length - 1 : k);
  } else {
    show({ ...stored, start: 0, epochs: [network.epoch], images: [drawnImage(about, answer)] }, r);
  }
  clearTimeout(resting);
  resting = setTimeout(() => rest(about), REST);
  showBend(answer.tops[0]);
  const mark = label === null || blank ? "" : answer.tops[0].parent === label ? ` ${RIGHT}` : ` ${WRONG}`;
  $("#verdict").textContent = blank ? "" : words.readAs(names, doubt) + mark;
  if (moment) {
    resume(moment);
    bendBy(moment.bend);
  }
  showCompared(answer, { label, blank });
}

// The decoder's pictures of as many of the longest capsules as an image shows objects, one over the other.
function reconstructionOf({ tops }) {
  if (!network.decoder || tops.length < network.objects) return null;
  const [first, ...others] = tops.slice(0, network.objects).map(({ picture }) => picture);
  return first.map((value, x) => Math.min(255, others.reduce((sum, picture) => sum + picture[x], value)));
}

let resting = 0;
function drawnImage({ saliency, data, label }, answer) {
  const spots = saliency && { shape: [layer.children, high, wide], data: saliency };
  return computed({ ...answer, saliency: spots }, layer, stored, { shape, data }, label);
}

// The drawing is done: what takes longer than an answer is asked.
function rest(about) {
  about.rested = true;
  if (about.page === null) findLooks?.({ pixels: about.data }, about);
  redraw();
}

// Take where children look into the image that it is asked of.
function addLooks({ saliency }, about) {
  if (about !== asked) return;
  trace.images[0] = drawnImage({ ...about, saliency }, routed);
  takeImage(now.n);
}

// The sliders of the longest capsule.
function showBend(longest) {
  top1 = longest;
  const { parent, capsule } = top1;
  $("#capsule").textContent = words.capsuleOf(trace.parents[parent].name, capsule.length);
  fill($("#numbers"), capsule.length, "div", (row, d) => {
    row.innerHTML = '<label></label><input type="range" step="0.01"><output></output>';
    const [label, input] = row.children;
    Object.assign(input, { min: -BEND, max: BEND });
    label.textContent = words.number(d + 1);
    label.htmlFor = input.id = `number-${d + 1}`;
    input.addEventListener("input", vary);
  });
  goBack();
}

function varied() {
  return top1.capsule.map((value, d) => value + Number($(`#number-${d + 1}`).value));
}

function vary() {
  const capsule = varied();
  capsule.forEach((value, d) => ($(`#number-${d + 1} + output`).textContent = fixed(value, 2)));
  if (network.decoder) bendDecoded({ capsules: [{ parent: top1.parent, capsule }] }, top1);
  follow();
}

// {number, from 1: hundredths added to it}, or null where the capsule is as it is.
function bentBy() {
  const added = [...document.querySelectorAll("#numbers input")].map(({ value }) => Math.round(100 * value)),
    bent = added.map((hundredths, d) => [d + 1, hundredths]).filter(([, hundredths]) => hundredths !== 0);
  return bent.length ? Object.fromEntries(bent) : null;
}

function bendBy(added) {
  for (const [number, hundredths] of Object.entries(added)) $(`#number-${number}`).value = hundredths / 100;
  if (bentBy()) vary();
}

function goBack() {
  for (const input of document.querySelectorAll("#numbers input")) input.value = 0;
  varied().forEach((value, d) => ($(`#number-${d + 1} + output`).textContent = fixed(value, 2)));
  if (top1.picture) showPixels($("#bend > canvas"), top1.picture);
}

for (const [id, most] of [
  ["right", Math.round(wide / 4)],
  ["down", Math.round(high / 4)],
  ["thick", Math.round(2 * network.desk.stroke) / 4],
]) {
  Object.assign($(`#${id}`), { min: -most, max: most });
}
for (const id of Object.keys(desk.adjust)) {
  $(`#${id}`).addEventListener("input", ({ target }) => {
    desk.adjust[id] = Number(target.value);
    changed();
  });
}
$("#clean").addEventListener("click", () => desk.clear());
$("#undo").addEventListener("click", () => desk.undo());
document.addEventListener("keydown", (event) => {
  const { key, ctrlKey, metaKey, altKey, shiftKey, target } = event;
  if (target.matches("#name") || !(ctrlKey || metaKey) || altKey || shiftKey || key.toLowerCase() !== "z") return;
  event.preventDefault();
  desk.undo();
});
$("#back").addEventListener("click", () => {
  goBack();
  vary();
  follow();
});
$("#child").hidden = true; // the softmax has it
$("main").classList.add("live");
$("#bend").hidden = !network.decoder;
$("#seen figcaption").textContent = words.seenSize(wide, high);

show(stored);
$("#hint").textContent = words.hint(noun(), network.objects);
showImages(shelf, stored.start, takeShelved);
takeShelved(stored.start);
