// The bipartite graph on a canvas: children at the left, the parents' rows of the page at the right.

const THIN = 0.4,
  THICK = 5.5,
  PALE = 0.14,
  STRONG = 0.95,
  UNLIT = 0.035,
  REACH = 7;
const MANY = 400; // lines that would be a fog where they are weak
const PICTURED = 20, // children shown as small pictures of what they look at
  LEGIBLE = 24; // pixels of a side; smaller ones are dots

// Moved apart to a fifth of the larger, within [0, 1]; as wide_range of viz/routing/timeline.py does.
function wideRange(low, high) {
  const missing = Math.max(0, 0.2 * high - (high - low)),
    top = Math.min(1, high + missing / 2);
  return [low - (missing - (top - high)), top];
}

class Graph {
  constructor(canvas) {
    this.canvas = canvas;
  }

  // What stays while time passes: the image's edges, the order of its children, pictures of them or null.
  take(image, parents, pictures) {
    Object.assign(this, { image, parents, pictures });
    this.rank = new Map(image.order.map((child, at) => [child, at]));
  }

  // Children and parents have their places in the middle of equal parts of the height.
  place() {
    const { context, width, height } = surface(this.canvas);
    Object.assign(this, { context, width, height });
    this.room = height / this.image.order.length;
    const side = this.pictures ? Math.min(46, 0.94 * this.room, 0.2 * width) : 0;
    this.side = side < LEGIBLE ? 0 : side;
    this.left = this.side ? this.side + 5 : 12;
    this.right = width - 4;
    this.thick = Math.min(THICK, Math.max(3 * THIN, 1.1 * this.room));
  }

  childY(child) {
    return (this.rank.get(child) + 0.5) * this.room;
  }

  parentY(parent) {
    return ((parent + 0.5) * this.height) / this.parents.length;
  }

  lineWidth(c) {
    return THIN + (this.thick - THIN) * this.share(c);
  }

  alpha(c) {
    const many = this.image.src.length > MANY,
      pale = many ? PALE / 4 : PALE,
      share = this.share(c);
    return pale + (STRONG - pale) * (many ? share * share : share);
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

  // From the thinnest to the widest line: of all moments, or of a selected child now, whose couplings may be near.
  scale(c, child) {
    const own = c.filter((_, edge) => this.image.src[edge] === child);
    this.range = child === null ? this.image.range : wideRange(Math.min(...own), Math.max(...own));
    const [low, high] = this.range;
    this.share = (c) => Math.min(1, Math.max(0, (c - low) / (high - low)));
  }

  draw(c, chosen, hovered, look) {
    this.place();
    this.scale(c, chosen.child);
    this.c = c;
    const { context, image, left, right } = this,
      edges = [...c.keys()].sort((a, b) => c[a] - c[b]);
    const part = (right - left) / 3;
    const line = (edge, width, alpha, color) => {
      const from = this.childY(image.src[edge]),
        to = this.parentY(image.dst[edge]);
      context.globalAlpha = alpha;
      context.lineWidth = width;
      context.strokeStyle = color;
      context.beginPath();
      context.moveTo(left, from);
      context.bezierCurveTo(left + part, from, right - part, to, right, to);
      context.stroke();
    };
    for (const edge of edges) {
      const lit = this.isLit(edge, chosen);
      line(
        edge,
        lit ? this.lineWidth(c[edge]) : THIN,
        lit ? this.alpha(c[edge]) : UNLIT,
        look.parents[image.dst[edge]],
      );
    }
    if (hovered?.edge !== undefined) {
      const wide = Math.max(2, this.lineWidth(c[hovered.edge]));
      line(hovered.edge, wide + 2, 1, look.ink);
      line(hovered.edge, wide, 1, look.parents[image.dst[hovered.edge]]);
    }
    context.globalAlpha = 1;
    for (const child of image.order) this.drawChild(child, child === (hovered?.child ?? chosen.child), look);
  }

  drawChild(child, marked, look) {
    const { context, side } = this,
      y = this.childY(child);
    context.strokeStyle = context.fillStyle = marked ? look.accent : look.ink;
    if (this.side) {
      context.imageSmoothingEnabled = true;
      context.drawImage(this.pictures.get(child), 1, y - side / 2, side, side);
      context.lineWidth = 3;
      if (marked) context.strokeRect(1.5, y - side / 2 + 0.5, side - 1, side - 1);
      return;
    }
    context.beginPath();
    context.arc(this.left - 5, y, marked ? 5 : Math.min(4.5, Math.max(1.2, 0.38 * this.room)), 0, 2 * Math.PI);
    context.fill();
  }

  // What lies under a point: {child}, {child, parent, edge}, or null.
  under(x, y, chosen) {
    if (x < this.left + 4) {
      const child = this.image.order[Math.floor(y / this.room)];
      return child === undefined ? null : { child };
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

// Lines of known coupling: the thinnest, a middle one and the widest.
function drawScale(canvas, graph, look) {
  const { context, height } = surface(canvas),
    [low, high] = graph.range,
    middle = height / 2;
  const digits = Math.max(2, 1 - Math.floor(Math.log10(high - low)));
  context.font = look.font;
  context.textBaseline = "middle";
  context.fillStyle = look.muted;
  context.fillText("coupling c", 0, middle);
  [low, (low + high) / 2, high].forEach((c, at) => {
    const x = 78 + at * 82;
    context.globalAlpha = graph.alpha(c);
    context.lineWidth = graph.lineWidth(c);
    context.strokeStyle = look.ink;
    context.beginPath();
    context.moveTo(x, middle);
    context.lineTo(x + 30, middle);
    context.stroke();
    context.globalAlpha = 1;
    context.fillText(c.toFixed(digits), x + 35, middle);
  });
}
