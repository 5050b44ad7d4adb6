// A page from `graphcaps explore`: what is drawn goes to the server, and its answer is shown.

const start = JSON.parse($("#trace").textContent);
const desk = new Desk($("#desk > canvas"), start, changed);
const [, high, wide] = start.shape;
let top1, // the longest parent as the server told it
  label = null, // of the test image on the desk
  underway = 0; // questions without an answer

// A function that asks the server: one question at a time, and of those that came meanwhile only the newest.
function newest(path, arrived) {
  let waiting = null,
    busy = false;
  return async (question, about) => {
    waiting = { question, about };
    if (busy) return;
    busy = true;
    expectAnswers(1);
    while (waiting) {
      const asked = waiting;
      waiting = null;
      const { error, ...answer } = await post(path, asked.question);
      $("#trouble").hidden = !error;
      if (error) $("#trouble").textContent = error;
      else arrived(answer, asked.about);
    }
    busy = false;
    expectAnswers(-1);
  };
}

function expectAnswers(more) {
  underway += more;
  $("main").setAttribute("aria-busy", underway > 0);
}

async function post(path, question) {
  try {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(question) });
    return await response.json();
  } catch {
    return { error: "No answer. Is graphcaps explore still running?" };
  }
}

const explain = newest("explain", (answer, about) => showAnswer(answer, Math.round(now.r), about));
const decode = newest("decode", ({ picture }, of) => of === top1 && showPicture($("#answer > canvas"), picture));
const fetchImage = newest("image", (shown, image) => {
  untick();
  takePicture(`Test image ${image}`, shown);
});

function untick() {
  for (const input of document.querySelectorAll("#images input")) input.checked = false;
}

function takePicture(said, { name, classes, pixels: { shape, data } }) {
  $("#shown").textContent = `${said}: ${name}`;
  label = classes.length === 1 ? classes[0] : null;
  desk.take(photograph({ shape, data: bytes(data) }));
}

// The desk has changed: show it, and ask what the network makes of it.
function changed() {
  if (!desk.picture) {
    label = null;
    $("#shown").textContent = desk.lines.length ? "Your drawing." : "An empty sheet.";
    untick();
  }
  for (const [id, value] of Object.entries(desk.adjust)) {
    $(`#${id}`).value = value;
    $(`#${id} + output`).textContent = fixed(value, id === "turn" ? 0 : 2) + (id === "turn" ? "°" : "");
  }
  const pixels = desk.pixels(),
    row = (c, y) => [...pixels.subarray((c * high + y) * wide, (c * high + y + 1) * wide)];
  desk.draw(pixels);
  const photo = photograph({ shape: start.shape, data: pixels });
  Object.assign($("#seen canvas"), { width: wide, height: high }).getContext("2d").drawImage(photo, 0, 0);
  const planes = Array.from({ length: desk.channels }, (_, c) => Array.from({ length: high }, (_, y) => row(c, y)));
  explain({ pixels: planes }, label);
}

function showAnswer({ trace: explained, tops, doubts }, r, label = null) {
  const blank = doubts.some(({ kind }) => kind === "blank");
  $("main").classList.toggle("blank", blank);
  $("#doubts").hidden = !doubts.length;
  $("#doubts").textContent = `${blank ? "No answer" : "Doubtful"}: ${doubts.map(({ text }) => text).join("; ")}.`;
  explained.images[0].label = label;
  show(explained, r);
  fill($("#tops"), tops.length, "li", (item) => {
    item.innerHTML = '<canvas role="img"></canvas><span class="name"></span> <span class="value"></span>';
  });
  tops.forEach(({ parent, length, picture }, at) => {
    const [canvas, name, value] = $("#tops").children[at].children;
    showPicture(canvas, picture);
    name.textContent = trace.parents[parent].name;
    value.textContent = length.toFixed(2);
    canvas.setAttribute("aria-label", `Reconstruction of ${name.textContent}`);
  });
  top1 = tops[0];
  const { parent, capsule } = top1;
  $("#capsule").textContent = `The ${capsule.length} numbers of ${trace.parents[parent].name}`;
  fill($("#numbers"), capsule.length, "div", (row, d) => {
    row.innerHTML = '<label></label><input type="range" min="-0.25" max="0.25" step="0.01"><output></output>';
    const [label, input] = row.children;
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
}

function goBack() {
  for (const input of document.querySelectorAll("#numbers input")) input.value = 0;
  varied().forEach((value, d) => ($(`#number-${d + 1} + output`).textContent = fixed(value, 2)));
  showPicture($("#answer > canvas"), top1.picture);
}

for (const [id, most] of [
  ["right", Math.round(wide / 4)],
  ["down", Math.round(high / 4)],
  ["thick", Math.round(2 * start.stroke) / 4],
]) {
  Object.assign($(`#${id}`), { min: -most, max: most });
}
for (const id of Object.keys(desk.adjust)) {
  $(`#${id}`).addEventListener("input", ({ target }) => {
    desk.adjust[id] = Number(target.value);
    changed();
  });
}
$("#clean").addEventListener("click", () => desk.take(null));
$("#back").addEventListener("click", goBack);
$("#seen figcaption").textContent = `What the network sees: ${wide} × ${high} pixels.`;
if (!start.limited) {
  const without = " This run has no limits, so only blank sheets are doubted. graphcaps evaluate writes them.";
  $("#seen figcaption").textContent += without;
}
$("#count").textContent = `of 0 to ${start.count - 1}`;
$("#pick").max = start.count - 1;
$("#pick").addEventListener("change", ({ target }) => {
  if (target.value && target.reportValidity()) fetchImage({ image: Number(target.value) }, target.value);
});

showAnswer(start.answer, start.answer.trace.trained - 1);
showImages(start.examples, 0, (n) => takePicture("Test image", start.examples[n]));
takePicture("Test image", start.examples[0]);
