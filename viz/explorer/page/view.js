// The view as one picture: image, graph, parents and charts with the moment's numbers, and the comparison where it is open,
// drawn by what draws the page, on a sheet that is a canvas or SVG.

const SHEET = { width: 1200, height: 972, edge: 32 };
const INNER = SHEET.width - 2 * SHEET.edge; // between the edges
const TOP = 150; // of image, graph and parents, below their headings
const HEAD = { size: 15, weight: 650 };
const SHARPNESS = 2; // points per pixel of a PNG
const below = []; // what other files add at the bottom: {height(), draw(context, top, write)}; a height of 0 is left out

// A canvas of this size, for what draws on the page's canvases.
function standIn(width, height) {
  const canvas = Object.assign(document.createElement("canvas"), { dense: SHARPNESS });
  Object.defineProperties(canvas, { clientWidth: { value: width }, clientHeight: { value: height } });
  return canvas;
}

// A sheet to draw on by `context`; panel(name, x, y, width, height, draw) hands draw(canvas) a canvas of its own there.
class PaintedSheet {
  constructor({ width, height }) {
    this.canvas = Object.assign(document.createElement("canvas"), { width: SHARPNESS * width, height: SHARPNESS * height });
    this.context = this.canvas.getContext("2d");
    this.context.scale(SHARPNESS, SHARPNESS);
  }

  panel(_, x, y, width, height, draw) {
    const canvas = standIn(width, height);
    draw(canvas);
    this.context.drawImage(canvas, x, y, width, height);
  }

  finished() {
    return new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }
}

class ShapeSheet {
  constructor({ width, height }) {
    Object.assign(this, { width, height, context: new Shapes() });
  }

  panel(name, x, y, clientWidth, clientHeight, draw) {
    const inner = new Shapes();
    draw({ clientWidth, clientHeight, style: {}, getContext: () => inner });
    this.context.add("g", { class: name, transform: `translate(${x} ${y})` }, inner.parts.join("\n"));
  }

  finished(title) {
    const { width, height } = this,
      head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`;
    const text = `${head}\n<title>${escaped(title)}</title>\n${this.context.parts.join("\n")}\n</svg>\n`;
    return new Blob([text], { type: "image/svg+xml" });
  }
}

const SHEETS = { png: PaintedSheet, svg: ShapeSheet };

// The text in lines of at most this width.
function wrapped(text, font, width) {
  scratch.font = font;
  return text.split(/\s+/).reduce(
    (lines, word) => {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      return scratch.measureText(longer).width > width && lines.at(-1) ? [...lines, word] : [...lines.slice(0, -1), longer];
    },
    [""],
  );
}

function cut(text, font, width) {
  scratch.font = font;
  if (scratch.measureText(text).width <= width) return text;
  let letters = [...text];
  while (letters.length && scratch.measureText(`${letters.join("")}…`).width > width) letters = letters.slice(0, -1);
  return `${letters.join("")}…`;
}

// What writes text in the page's font: write(text, x, y, {size, weight, color, align, room}), in lines as wide as `room`.
function writer(context) {
  return (text, x, y, { size = 12, weight = 400, color = look.ink, align = "left", room = INNER } = {}) => {
    const font = `${weight} ${size}px ${family()}`;
    Object.assign(context, { font, fillStyle: color, textAlign: align, textBaseline: "alphabetic" });
    wrapped(text, font, room).forEach((line, at) => context.fillText(line, x, y + 1.4 * size * at));
  };
}

function family() {
  return look.font.replace(/^\S+ /, "");
}

// Draw the moment that the page shows, on a sheet of this height.
function drawView(sheet, height) {
  const { context } = sheet,
    write = writer(context);
  context.fillStyle = look.paper;
  context.fillRect(0, 0, SHEET.width, height);
  write($("h1").textContent, SHEET.edge, 52, { size: 24, weight: 650 });
  write($("#source").textContent, SHEET.edge, 74, { color: look.muted });
  write([$("#shown")?.textContent, $("#status").textContent].filter(Boolean).join(" · "), SHEET.edge, 96, { size: 14 });
  drawRouting(sheet, photo ? drawPhoto(context, write) : SHEET.edge, write);
  drawCharts(sheet, write);
  let bottom = SHEET.height;
  for (const part of below.filter((each) => each.height())) {
    part.draw(context, bottom, write);
    bottom += part.height();
  }
}

// The image, at the left; gives where it ends.
function drawPhoto(context, write) {
  const side = 270,
    down = (side * photo.height) / photo.width;
  write($("#picture h2").textContent, SHEET.edge, TOP - 16, HEAD);
  context.drawImage($("#picture canvas"), SHEET.edge, TOP, side, down);
  write($("#picture figcaption").textContent, SHEET.edge, TOP + down + 20, { color: look.muted, room: side });
  return SHEET.edge + side + 40;
}

// The graph and its parents, from `left` to the right edge.
function drawRouting(sheet, left, write) {
  const tall = 480,
    names = 250,
    room = SHEET.width - SHEET.edge - names - left;
  write($("#children-head").textContent, left, TOP - 16, HEAD);
  write($("#parents-head").textContent, left + room, TOP - 16, HEAD);
  sheet.panel("graph", left, TOP, room, tall, (canvas) => {
    const own = new Graph(canvas);
    own.matrix = graph.matrix;
    own.take(image, trace.parents, graph.pictures);
    own.draw(at(image.c, now), now, null, look);
  });
  drawRows(sheet.context, { x: left + room, top: TOP, tall, lengths: at(image.lengths, now) });
  write($("#shown-edges").textContent, left, TOP + tall + 20, { color: look.muted, room: room + names });
}

// The two charts, side by side, each with its legend.
function drawCharts(sheet, write) {
  const parent = now.parent ?? indexOfLargest(at(image.lengths, now)),
    gap = 40,
    across = (INNER - gap) / 2,
    top = 718;
  const undecided = { high: 2, color: look.ink, dash: [5, 4], text: words.undecided },
    box = { high: 9 };
  const charts = [
    {
      id: "entropy",
      draw: (canvas) => drawEntropy(canvas, trace, image, now, now.child, look),
      legend: [
        { high: 3, color: look.accent, text: words.mean },
        { high: 1, color: look.muted, text: words.eachChild },
        undecided,
      ],
    },
    {
      id: "histogram",
      draw: (canvas) => drawHistogram(canvas, trace, image, now, parent, look),
      legend: [
        { ...box, color: look.faint, text: words.all },
        { ...box, color: look.parents[parent], text: $("#histogram .with").textContent },
        undecided,
      ],
    },
  ];
  charts.forEach(({ id, draw, legend }, side) => {
    const x = SHEET.edge + side * (across + gap);
    write($(`#${id} h2`).textContent, x, top - 40, HEAD);
    drawLegend(sheet.context, legend, x, top - 24, write);
    sheet.panel(id, x, top, across, 200, draw);
    write($(`#${id} figcaption`).textContent, x, top + 220, { color: look.muted });
  });
}

function drawLegend(context, legend, x, y, write) {
  let along = x;
  for (const { high, color, dash = [], text } of legend) {
    Object.assign(context, { strokeStyle: color, lineWidth: high });
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(along, y);
    context.lineTo(along + (high > 3 ? high : 22), y);
    context.stroke();
    context.setLineDash([]);
    write(text, along + 28, y + 4, { color: look.muted });
    scratch.font = `12px ${family()}`;
    along += 46 + scratch.measureText(text).width;
  }
}

// The parents beside the graph, each with its length as a bar and as a number.
function drawRows(context, { x, top, tall, lengths }) {
  const font = `13px ${family()}`,
    marks = [...$("#parents").children].map((row) => row.querySelector(".dot").textContent);
  lengths.forEach((length, j) => {
    const y = top + ((j + 0.5) * tall) / lengths.length,
      bold = $("#parents").children[j].classList.contains("longest"),
      color = look.parents[j];
    context.globalAlpha = now.parent === null || now.parent === j ? 1 : 0.4;
    context.fillStyle = context.strokeStyle = color;
    context.beginPath();
    context.arc(x + 8, y, 6.5, 0, 2 * Math.PI);
    context.fill();
    context.fillRect(x + 92, y - 5, Math.max(1, 110 * length), 10);
    if (bold) {
      Object.assign(context, { strokeStyle: look.ink, lineWidth: 2 });
      context.beginPath();
      context.arc(x + 8, y, 10, 0, 2 * Math.PI);
      context.stroke();
    }
    context.globalAlpha = 1;
    Object.assign(context, { font: bold ? `700 ${font}` : font, textBaseline: "middle", fillStyle: look.ink });
    context.textAlign = "left";
    context.fillText(cut(trace.parents[j].name, context.font, 58), x + 26, y);
    context.textAlign = "right";
    context.fillText(length.toFixed(2), x + 248, y);
    Object.assign(context, { font: `10px ${family()}`, textAlign: "center", fillStyle: look.paper });
    if (marks[j]) context.fillText(marks[j], x + 8, y);
  });
}

async function saveView(kind) {
  try {
    stop();
    draw();
    const title = [trace.title, ...trace.source].join(", "),
      height = below.reduce((sum, part) => sum + part.height(), SHEET.height),
      sheet = new SHEETS[kind]({ ...SHEET, height });
    drawView(sheet, height);
    const url = URL.createObjectURL(await sheet.finished(title)),
      name = `${title.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "routing"}.${kind}`;
    Object.assign(document.createElement("a"), { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    note(words.saved(name));
  } catch (error) {
    note(words.notSaved(error.message));
  }
}
