// A page that carries its network: what is drawn is routed here, in a thread of its own, and shown.

const stored = await storedData(),
  { early = [], ...network } = stored.network, // early: what it had learned by epochs before
  { shape } = network,
  [, high, wide] = shape;
const ITERATIONS = stored.iterations,
  TOPS = Math.min(3, stored.parents.length),
  REST = 350, // milliseconds after which a drawing is taken to be done
  BEND = 0.25; // added to a number of the longest capsule, or taken away, at most
const layer = lastLayer(network),
  drawnEpochs = [...early, network].map(({ epoch }) => epoch),
  pages = stored.images.length; // images of the trace, which have epochs; behind them in the chooser are the shelf's
const shelf = [...stored.images.map(shelved), ...network.shelf];
stored.looks &&= network.layers.length === 1; // saliency.js goes back from primary capsules
let shown = { at: null, label: null, name: () => "" }, // what lies on the desk: an image of the shelf, or a drawing
  routed = null, // the newest answer: u_hat (E, D), states of all iterations, tops
  count = 0, // of questions
  asked = null, // the question that it answers: {count, data: pixels, label, page, moment}; later with early and saliency
  top1, // its longest parent
  verdict = "", // in words
  underway = 0; // questions without an answer

// Ends of the last layer's edges, as the page has them; the network's arrays stay in its thread.
function lastLayer({ layers }) {
  const { src, dst, children, parents, weight, iterations, routing } = layers.at(-1),
    whole = ({ data }) => new Int32Array(data.buffer);
  return { src: whole(src), dst: whole(dst), children, parents, dim: weight.shape[2], iterations, routing };
}

// Which edges of the last layer a stored image keeps.
function edgesOf({ src, dst }) {
  const place = (e) => layer.src[e] * layer.parents + layer.dst[e],
    places = new Map([...layer.src.keys()].map((e) => [place(e), e]));
  return src.map((child, at) => places.get(child * layer.parents + dst[at]));
}

function shelved(each, n) {
  const { label, pixels } = each,
    name = stored.parents[label]?.name;
  if (name === undefined) return { name: `image ${n}`, title: `Test image ${n}`, classes: [], pixels, group: "Test images" };
  return { name, classes: [label], pixels, wrong: wrongOf(stored, each), group: "One of each class" };
}

// The network as it was after an early epoch; the decoder's weights of then aren't known.
function networkThen({ stem, layers }) {
  return { ...network, stem, layers: network.layers.map((layer, n) => ({ ...layer, ...layers[n] })), decoder: null };
}

// Ask a thread with networks: ask(kind, question) is a promise of its answer.
function thread(networks = [network]) {
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
  ask("load", { networks }).then(({ error }) => error && trouble(error));
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
  askLooks = stored.looks ? thread() : null; // where children look takes a second
const explain = newest(ask, "explain", (answer, about) => showAnswer(answer, about));
const decode = newest(ask, "decode", ({ picture }, of) => of === top1 && showPixels($("#bend > canvas"), picture));
const findLooks = askLooks && newest(askLooks, "saliency", addTo);
const findEarly = early.length > 0 && newest(thread(early.map(networkThen)), "early", addTo);

function showPixels(canvas, data) {
  paste(canvas, photograph({ shape, data }));
}

const desk = new Desk($("#desk > canvas"), { shape, ...network.desk }, () => changed(), snapshot);

// Lay an image of the shelf on the desk, without showing it yet.
function layOut(at) {
  const { name, classes, pixels, title } = shelf[at],
    picture = photograph(pixels);
  const named = () => (title ? title : classes.length ? words.testImageOf(name) : sentence(name));
  shown = { at, label: classes.length === 1 ? classes[0] : null, name: named };
  Object.assign(desk, { picture, lines: [], adjust: { ...NEUTRAL } });
}

function takeShelved(at) {
  if (desk.lines.length) desk.remember();
  layOut(at);
  changed();
}

// A function that puts what lies on the desk now on it again. Sliders that move the same sheet move `adjust` itself, so
// they stay where they are; another sheet brings its own.
function snapshot() {
  const { picture, lines, adjust, past } = desk,
    previous = shown;
  return () => {
    shown = previous;
    if (previous.at !== null) chooserInput(previous.at).checked = true;
    Object.assign(desk, { picture, lines, adjust, past });
    changed();
  };
}

// The desk has changed: show it, and ask what the network makes of it.
function changed(moment = null) {
  if (!desk.picture) {
    shown = { at: null, label: null, name: () => (desk.lines.length ? words.drawing : words.emptySheet) };
    for (const input of document.querySelectorAll("#images input")) input.checked = false;
  }
  const bent = Object.values(desk.adjust).some((value) => value !== 0),
    { label, at } = shown,
    data = desk.pixels(),
    page = at !== null && at < pages && !bent ? at : null; // of the trace as it is, with its epochs
  const about = { count: ++count, label, page, data, moment };
  explain({ pixels: data, rounds: ITERATIONS, tops: TOPS }, about); // first: it takes longest
  if (isEarly(about)) learn(about);
  $("#shown").textContent = at !== null && bent ? words.changed(shown.name()) : shown.name();
  for (const [id, value] of Object.entries(desk.adjust)) {
    $(`#${id}`).value = value;
    $(`#${id} + output`).textContent = fixed(value, id === "turn" ? 0 : 2) + (id === "turn" ? "°" : "");
  }
  $("#undo").setAttribute("aria-disabled", !desk.past.length); // it keeps the focus
  desk.draw(data);
  showPixels($("#seen canvas"), data);
}

// The epoch that the page shows, or is asked to show.
function epochOf({ moment }) {
  return moment?.epoch ?? trace.epochs[Math.round(now.k)];
}

// Whether a drawing is to be shown at an early epoch.
function isEarly(about) {
  return about.page === null && drawnEpochs.slice(0, -1).includes(epochOf(about));
}

// Ask what the network made of a drawing at early epochs, once.
function learn(about) {
  if (!findEarly || about.page !== null || about.learning) return;
  about.learning = true;
  findEarly({ pixels: about.data, rounds: ITERATIONS }, about);
}

function showAnswer(answer, about) {
  about.answer = answer;
  if (isEarly(about) && !about.early) return; // addTo calls again
  const { label, page, data, moment } = about,
    epoch = epochOf(about),
    r = routed ? Math.round(now.r) : stored.trained - 1;
  routed = answer;
  asked = about;
  const lengths = [...answer.states[layer.iterations - 1].lengths].sort((a, b) => b - a),
    doubts = doubtsOf(network, data, lengths, reconstructionOf(answer));
  const blank = doubts.some(({ kind }) => kind === "blank");
  $("main").classList.toggle("blank", blank);
  $("#doubts").hidden = !doubts.length;
  const inSpite = blank ? words.emptyMeans : "";
  const text = `${blank ? words.noAnswerHead : words.doubtful}: ${doubts.map(({ text }) => text).join("; ")}.${inSpite}`;
  if ($("#doubts").textContent !== text) $("#doubts").textContent = text; // a screen reader reads each change aloud
  if (page !== null) {
    const one = unpacked(stored, page),
      images = Object.assign([...stored.images], { [page]: reanswered(one, answer, layer, stored, edgesOf(one)) });
    show({ ...stored, start: page, images }, r, indexOf(epoch, stored.epochs));
  } else {
    const drawn = stored.epochs.length > drawnEpochs.length && stored.epochs.length;
    show({ ...stored, start: 0, epochs: drawnEpochs, images: [drawnImage(about)], drawn }, r, indexOf(epoch, drawnEpochs));
    waitForRest(about);
  }
  showTops(answer.tops);
  showObjects(answer, data, blank);
  const answers = answer.tops.slice(0, network.objects).map(({ parent }) => parent);
  const mark = label === null || blank ? "" : answers[0] === label ? ` ${RIGHT}` : ` ${WRONG}`;
  const named = answers.map((parent) => stored.parents[parent].name).join(" + ");
  verdict = blank ? words.noAnswerHead : `${doubts.length ? words.perhaps(named) : named}${mark}`;
  nameVerdict();
  if (moment) {
    resume(moment);
    bendBy(moment.bend);
  }
  showCompared(answer, { label, blank });
}

// The verdict is the carried network's at any epoch.
function nameVerdict() {
  const text = verdict + (now.k < trace.epochs.length - 1 ? words.inEpoch(network.epoch) : "");
  if ($("#verdict").textContent !== text) $("#verdict").textContent = text;
}

// What the decoder makes of as many of the longest capsules as an image shows objects, one over the other.
function reconstructionOf({ tops }) {
  if (!network.decoder || tops.length < network.objects) return null;
  const [first, ...others] = tops.slice(0, network.objects).map(({ picture }) => picture);
  return first.map((value, x) => Math.min(255, others.reduce((sum, picture) => sum + picture[x], value)));
}

// Where an epoch is, or the last one where it isn't.
function indexOf(epoch, epochs) {
  const k = epochs.indexOf(epoch);
  return k < 0 ? epochs.length - 1 : k;
}

function drawnImage({ answer, early, saliency, data, label }) {
  const spots = saliency && { shape: [layer.children, high, wide], data: saliency };
  return computed({ ...answer, early, saliency: spots }, layer, stored, { shape, data }, label);
}

let resting = 0;
function waitForRest(about) {
  clearTimeout(resting);
  resting = setTimeout(() => {
    findLooks?.({ pixels: about.data }, about);
    learn(about);
  }, REST);
}

// Take where children look, or what the network made of early epochs, into the image that it is asked of.
function addTo(found, about) {
  Object.assign(about, found);
  if (about === asked) {
    trace.images[0] = drawnImage(about);
    takeImage(now.n);
  } else if (about.answer && about.count > asked.count) showAnswer(about.answer, about);
}

extras.push(nameVerdict, () => asked && now.k < drawnEpochs.length - 1 && learn(asked));

function showTops(tops) {
  fill($("#tops"), tops.length, "li", (item) => {
    item.innerHTML = '<canvas role="img"></canvas><span class="name"></span> <span class="value"></span>';
  });
  tops.forEach(({ parent, length, picture }, at) => {
    const [canvas, name, value] = $("#tops").children[at].children;
    canvas.hidden = !picture;
    if (picture) showPixels(canvas, picture);
    name.textContent = trace.parents[parent].name;
    value.textContent = length.toFixed(2);
    canvas.setAttribute("aria-label", words.reconstruction(name.textContent));
    $("#tops").children[at].classList.toggle("answer", at < network.objects);
  });
  top1 = tops[0];
  const { parent, capsule } = top1;
  $("#capsule").textContent = words.capsuleOf(trace.parents[parent].name, capsule.length);
  fill($("#numbers"), capsule.length, "div", (row, d) => {
    row.innerHTML = '<label></label><input type="range" step="0.01"><output></output>';
    const [label, input] = row.children;
    Object.assign(input, { min: -BEND, max: BEND });
    label.textContent = d + 1;
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
  decode({ parent: top1.parent, capsule }, top1);
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
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  if (!(ctrlKey || metaKey) || altKey || shiftKey || key.toLowerCase() !== "z") return;
  event.preventDefault();
  desk.undo();
});
$("#back").addEventListener("click", () => {
  goBack();
  vary();
  follow();
});
$("#bend").hidden = !network.decoder;

function nameDesk() {
  $("#tops-note").textContent = words.topsNote(layer.iterations, network.epoch, Boolean(network.decoder));
  $("#seen figcaption").textContent = words.seenSize(wide, high) + (network.limits.answer === null ? words.noLimits : "");
  $("#undo").title = words.undoTitle;
}

nameDesk();
renewals.push(() => {
  nameDesk();
  const { child, parent, matrix } = now,
    moment = { iteration: Math.round(now.r) + 1, epoch: trace.epochs[Math.round(now.k)], child, parent };
  changed({ ...moment, view: matrix ? "matrix" : null, bend: bentBy() ?? {} });
});

show(stored);
showImages(shelf, stored.start, takeShelved);
takeShelved(stored.start);
