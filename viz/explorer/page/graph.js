// The bipartite graph on a canvas: children at the left, the parents' rows of the page at the right; or as a matrix, a row
// for each child and a column for each parent.

const THIN = 0.4,
  THICK = 5.5,
  PALE = 0.14,
  ALONE = 0.4, // as pale are lines of a child that is selected: there is nothing else to see
  STRONG = 0.95,
  UNLIT = 0.035,
  ASIDE = 0.3, // of its strength has a line beside the one under the pointer
  REACH = 7;
const CLEAR = 5; // equal shares that the widest line stands for, at least: equal couplings are thin lines in any image
const MANY = 400, // lines that would be a fog where they are weak
  FOG = 0.03;
const PICTURED = 20, // children shown as small pictures of what they look at
  LEGIBLE = 24; // pixels of a side; smaller ones are dots
const DIGIT = 7, // pixels of a child's number
  ABOVE = 20, // pixels above a matrix, for the parents' dots and names
  ROOMY = 34, // pixels of a cell's width that has its number in it
  LINE = 14; // pixels that a number needs; where children have less, only one that is marked has its own

// A range at least a fifth of its larger end wide, within [0, 1]; as wide_range of viz/routing/timeline.py.
function wideRange(low, high) {
  const missing = Math.max(0, 0.2 * high - (high - low)),
    top = Math.min(1, high + missing / 2);
  return [low - (missing - (top - high)), top];
}

class Graph {
  constructor(canvas) {
    Object.assign(this, { canvas, matrix: false });
  }

  // What stays while time passes: the image's edges, the order of its children, pictures of them or null, and the scale
  // of the lines, from 0 to the coupling of the widest.
  take(image, parents, pictures) {
    const widest = Math.min(1, Math.max(image.range[1], CLEAR / parents.length));
    Object.assign(this, { image, parents, pictures, widest });
    this.rank = new Map(image.order.map((child, at) => [child, at]));
  }

  // Children and parents have their places in the middle of equal parts of the height.
  place() {
    const { context, width, height } = surface(this.canvas);
    Object.assign(this, { context, width, height });
    this.top = this.matrix ? ABOVE : 0;
    this.room = (height - this.top) / this.image.order.length;
    const side = this.pictures ? Math.min(46, 0.94 * this.room, 0.2 * width) : 0;
    this.side = side < LEGIBLE ? 0 : side;
    this.wide = DIGIT * String(Math.max(...this.image.order)).length + 5; // of the numbers
    this.numbered = this.room >= LINE;
    this.from = this.numbered ? this.wide : 0; // where children begin
    this.left = this.from + (this.side ? this.side + 5 : 12);
    this.right = width - 4;
    this.thick = Math.min(THICK, Math.max(3 * THIN, 1.1 * this.room));
  }

  childY(child) {
    return this.top + (this.rank.get(child) + 0.5) * this.room;
  }

  parentY(parent) {
    return ((parent + 0.5) * this.height) / this.parents.length;
  }

  lineWidth(c) {
    return THIN + (this.thick - THIN) * this.share(c);
  }

  // Many lines would be a fog where they are undecided: there they grow strong from an equal share on.
  alpha(c) {
    if (this.image.src.length > MANY && !this.alone) {
      const equal = this.share(1 / this.parents.length);
      return FOG + ((STRONG - FOG) * Math.max(0, this.share(c) - equal)) / (1 - equal);
    }
    const pale = this.alone ? ALONE : PALE;
    return pale + (STRONG - pale) * this.share(c);
  }

  // The y of an edge's line at x: 3 t^2 - 2 t^3, which the curve in draw() is.
  y(edge, x) {
    const t = Math.min(1, Math.max(0, (x - this.left) / (this.right - this.left)));
    const from = this.childY(this.image.src[edge]),
      to = this.parentY(this.image.dst[edge]);
    return from + (to - from) * t * t * (3 - 2 * t);
  }

  isLit(edge, { parent, child }) {
    const { src, dst } = this.image;
    return (parent === null || dst[edge] === parent) && (child === null || src[edge] === child);
  }

  share(c) {
    return Math.min(1, c / this.widest);
  }

  draw(c, chosen, hovered, look) {
    this.place();
    this.c = c;
    this.alone = chosen.child !== null;
    if (this.matrix) this.drawCells(c, chosen, hovered, look);
    else this.drawLines(c, chosen, hovered, look);
    this.context.globalAlpha = 1;
    for (const child of this.image.order) {
      const marked = child === (hovered?.child ?? chosen.child);
      this.drawChild(child, marked, look);
      if (this.numbered || marked) this.drawNumber(child, marked, look);
    }
  }

  drawLines(c, chosen, hovered, look) {
    const { context, image, left, right } = this,
      edges = [...c.keys()].sort((a, b) => c[a] - c[b]);
    const part = (right - left) / 3;
    const line = (edge, alpha) => {
      const from = this.childY(image.src[edge]),
        to = this.parentY(image.dst[edge]);
      context.globalAlpha = alpha;
      context.lineWidth = this.lineWidth(c[edge]);
      context.strokeStyle = look.parents[image.dst[edge]];
      context.beginPath();
      context.moveTo(left, from);
      context.bezierCurveTo(left + part, from, right - part, to, right, to);
      context.stroke();
    };
    // what is chosen or under the pointer stands out by the others' fading: a line's width is always its coupling's
    const under = hovered?.edge,
      strength = under === undefined ? 1 : ASIDE;
    for (const edge of edges) {
      line(edge, strength * (this.isLit(edge, chosen) ? this.alpha(c[edge]) : UNLIT));
    }
    if (under !== undefined) {
      line(under, 1);
      context.strokeStyle = look.ink;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(right - 2, this.parentY(image.dst[under]), 4, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // Left edge, top edge, width and height of an edge's cell.
  cell(edge) {
    const wide = (this.right - this.left) / this.parents.length,
      gap = Math.min(1, 0.1 * this.room);
    const [x, y] = [this.left + wide * this.image.dst[edge], this.childY(this.image.src[edge]) - this.room / 2];
    return [x, y, wide - gap, this.room - gap];
  }

  drawCells(c, chosen, hovered, look) {
    const { context, image, left, right, parents } = this,
      wide = (right - left) / parents.length,
      fits = wide >= ROOMY && this.room >= LINE;
    Object.assign(context, { textAlign: "center", textBaseline: "middle", font: look.font });
    scratch.font = look.font;
    c.forEach((value, edge) => {
      const [x, y, ...size] = this.cell(edge),
        color = look.parents[image.dst[edge]],
        share = this.share(value);
      context.globalAlpha = this.isLit(edge, chosen) ? 1 : ASIDE;
      context.fillStyle = look.shade;
      context.fillRect(x, y, ...size);
      context.fillStyle = color;
      context.globalAlpha *= share;
      context.fillRect(x, y, ...size);
      if (!fits || !this.isLit(edge, chosen)) return;
      context.globalAlpha = 1;
      const under = rgbOf(color).map((channel, k) => share * channel + (1 - share) * rgbOf(look.shade)[k]);
      const better = (one, other) => (contrast(rgbOf(one), under) >= contrast(rgbOf(other), under) ? one : other);
      context.fillStyle = better(look.ink, look.paper);
      context.fillText(value.toFixed(2), x + size[0] / 2, y + size[1] / 2);
    });
    parents.forEach(({ name }, j) => {
      context.globalAlpha = chosen.parent === null || chosen.parent === j ? 1 : ASIDE;
      const x = left + wide * (j + 0.5),
        long = scratch.measureText(name).width,
        shift = long + 14 <= wide ? long / 2 + 3 : 0; // where a name has no room its dot stands for it
      context.fillStyle = look.parents[j];
      context.beginPath();
      context.arc(x - shift, ABOVE / 2 - 1, 4, 0, 2 * Math.PI);
      context.fill();
      context.fillStyle = look.muted;
      if (shift) context.fillText(name, x + 5, ABOVE / 2 - 1);
    });
    context.globalAlpha = 1;
    context.textAlign = "left";
    if (hovered?.edge === undefined) return;
    Object.assign(context, { strokeStyle: look.ink, lineWidth: 2 });
    context.strokeRect(...this.cell(hovered.edge));
  }

  // Before the child, or over its lines where there is no room.
  drawNumber(child, marked, look) {
    const { context, wide } = this,
      y = this.childY(child),
      x = this.numbered ? 0 : this.left + 3;
    context.fillStyle = look.paper;
    if (!this.numbered) context.fillRect(x, y - 8, wide, 16);
    Object.assign(context, { font: marked ? `700 ${look.font}` : look.font, textAlign: "right", textBaseline: "middle" });
    context.fillStyle = marked ? look.accent : look.muted;
    context.fillText(child, x + wide - 3, y);
    context.textAlign = "left";
  }

  drawChild(child, marked, look) {
    const { context, side, from } = this,
      y = this.childY(child);
    context.strokeStyle = context.fillStyle = marked ? look.accent : look.ink;
    if (this.side) {
      context.imageSmoothingEnabled = true;
      context.drawImage(this.pictures.get(child), from + 1, y - side / 2, side, side);
      context.lineWidth = 3;
      if (marked) context.strokeRect(from + 1.5, y - side / 2 + 0.5, side - 1, side - 1);
      return;
    }
    context.beginPath();
    context.arc(this.left - 5, y, marked ? 5 : Math.min(4.5, Math.max(1.2, 0.38 * this.room)), 0, 2 * Math.PI);
    context.fill();
  }

  // What lies under a point: {child}, {child, parent, edge}, or null.
  under(x, y, chosen) {
    if (x < this.left + (this.matrix ? 0 : 4)) {
      const child = this.image.order[Math.floor((y - this.top) / this.room)];
      return child === undefined ? null : { child };
    }
    if (this.matrix) {
      const edge = [...this.c.keys()].find((edge) => {
        const [left, top, wide, high] = this.cell(edge);
        return x >= left && x <= left + wide + 1 && y >= top && y <= top + high + 1;
      });
      return edge === undefined ? null : { child: this.image.src[edge], parent: this.image.dst[edge], edge };
    }
    let best = null,
      nearest = REACH;
    this.c.forEach((c, edge) => {
      if (!this.isLit(edge, chosen)) return;
      const slope = this.y(edge, x + 1) - this.y(edge, x - 1);
      const away = Math.abs(this.y(edge, x) - y) / Math.hypot(1, slope / 2) - this.lineWidth(c) / 2;
      if (away <= nearest) [best, nearest] = [edge, away];
    });
    return best === null ? null : { child: this.image.src[best], parent: this.image.dst[best], edge: best };
  }
}

// Red, green and blue of "#rrggbb" or "rgb(r g b)".
function rgbOf(color) {
  return color.startsWith("#") ? channels(color) : color.match(/\d+/g).map(Number);
}

// Lines, or cells, of known coupling: none, an equal share for each of a child's `choices`, and the widest.
function drawScale(canvas, graph, choices, look) {
  const { context, height } = surface(canvas),
    equal = 1 / choices, // infinite where children differ in their choices, which none then stands for
    marks = [[0, "0"], [equal, `${equal.toFixed(2)} ${words.undecided}`], [graph.widest, graph.widest.toFixed(2)]];
  const middle = height / 2;
  let x = 0;
  const write = (text) => {
    context.fillText(text, x, middle);
    x += context.measureText(text).width + 10;
  };
  Object.assign(context, { font: look.font, textBaseline: "middle", fillStyle: look.muted, strokeStyle: look.ink });
  write(words.couplingC);
  const shown = marks.filter(([c], at) => at !== 1 || c < graph.widest);
  canvas.setAttribute("aria-label", words.scale(graph.matrix, shown.map(([, text]) => text).join(", ")));
  for (const [c, text] of shown) {
    if (graph.matrix) {
      context.strokeStyle = look.faint;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, middle - 6.5, 13, 13);
      context.globalAlpha = graph.share(c);
      context.fillStyle = look.ink;
      context.fillRect(x, middle - 7, 14, 14);
      context.globalAlpha = 1;
      context.fillStyle = look.muted;
      x += 19;
      write(text);
      continue;
    }
    context.globalAlpha = Math.max(ALONE, graph.alpha(c)); // the scale is of widths, and must be seen in the fog too
    context.lineWidth = graph.lineWidth(c);
    context.beginPath();
    context.moveTo(x, middle);
    context.lineTo(x + 24, middle);
    context.stroke();
    context.globalAlpha = 1;
    x += 29;
    write(text);
  }
}
