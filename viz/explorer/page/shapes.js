// Drawings as SVG: the calls of charts.js and graph.js on a canvas's 2D context, recorded as shapes.

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

// Text that may stand in XML: without the characters that XML has no way to write.
function escaped(text) {
  const allowed = String(text).replace(/[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu, "\ufffd");
  return allowed.replace(/[&<>"]/g, (letter) => ESCAPES[letter]);
}

const hundredths = (value) => String(Math.round(100 * value) / 100);

// A colour as #rrggbb, the form that all readers of SVG support.
function plainColor(color) {
  scratch.fillStyle = color;
  return scratch.fillStyle;
}

class Shapes {
  constructor() {
    Object.assign(this, { parts: [], d: "", circles: [], dash: [], fillStyle: "#000000", strokeStyle: "#000000" });
    Object.assign(this, { lineWidth: 1, globalAlpha: 1, font: "12px sans-serif", textAlign: "left", textBaseline: "alphabetic" });
    Object.assign(this, { lineJoin: "miter", imageSmoothingEnabled: true });
  }

  add(tag, attributes, content = "") {
    const all = Object.entries(attributes).map(
      ([name, value]) => ` ${name}="${escaped(typeof value === "number" ? hundredths(value) : value)}"`,
    );
    this.parts.push(`<${tag}${all.join("")}${content ? `>${content}</${tag}>` : "/>"}`);
  }

  setTransform() {}

  clearRect() {}

  setLineDash(dash) {
    this.dash = dash;
  }

  beginPath() {
    Object.assign(this, { d: "", circles: [] });
  }

  moveTo(x, y) {
    this.d += `M${hundredths(x)} ${hundredths(y)}`;
  }

  lineTo(x, y) {
    this.d += `L${hundredths(x)} ${hundredths(y)}`;
  }

  bezierCurveTo(...points) {
    this.d += `C${points.map(hundredths).join(" ")}`;
  }

  // Whole circles, which are all that is drawn.
  arc(cx, cy, r) {
    this.circles.push({ cx, cy, r });
  }

  shape(how) {
    if (this.d) this.add("path", { d: this.d, ...how });
    for (const circle of this.circles) this.add("circle", { ...circle, ...how });
  }

  filled() {
    return { fill: plainColor(this.fillStyle), ...(this.globalAlpha < 1 ? { "fill-opacity": String(this.globalAlpha) } : {}) };
  }

  stroked() {
    return {
      fill: "none",
      stroke: plainColor(this.strokeStyle),
      "stroke-width": String(this.lineWidth),
      ...(this.globalAlpha < 1 ? { "stroke-opacity": this.globalAlpha.toFixed(4) } : {}),
      ...(this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {}),
      ...(this.lineJoin === "round" ? { "stroke-linejoin": "round" } : {}),
    };
  }

  fill() {
    this.shape(this.filled());
  }

  stroke() {
    this.shape(this.stroked());
  }

  fillRect(x, y, width, height) {
    this.add("rect", { x, y, width, height, ...this.filled() });
  }

  strokeRect(x, y, width, height) {
    this.add("rect", { x, y, width, height, ...this.stroked() });
  }

  // A baseline is a shift of the text: programs differ in which ones they know.
  fillText(text, x, y) {
    const [, weight = "400", size, family] = /^(?:(\d+) )?([\d.]+)px (.*)$/.exec(this.font);
    const shift = { middle: 0.35, bottom: -0.2, alphabetic: 0 }[this.textBaseline] * size,
      anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const look = { "font-family": family, "font-size": Number(size), "font-weight": weight, "text-anchor": anchor };
    this.add("text", { x, y: y + shift, ...look, ...this.filled() }, escaped(text));
  }

  drawImage(canvas, x, y, width = canvas.width, height = canvas.height) {
    const sharp = this.imageSmoothingEnabled ? {} : { style: "image-rendering:pixelated" };
    this.add("image", { href: canvas.toDataURL(), x, y, width, height, preserveAspectRatio: "none", ...sharp });
  }
}
