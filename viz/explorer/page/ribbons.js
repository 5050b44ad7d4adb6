// Routing as ribbons. Each child is a strip of equal height, cut into its shares. A share flows as a ribbon to its parent,
// and what arrives there stacks up to the parent's bar. Shares of parents that have no bar flow, grey, to the bar of the
// others. Where strips would be lower than 8 pixels, neighbours, which agree, share one.

import { surface } from "./charts.js";
import { Graph } from "./graph.js";
import { LET_GO } from "./layer.js";
import { shortName } from "./shell.js";
import { now, state } from "./state.js";

export const OTHERS = -1; // the column of the parents without a bar of their own
const LEAST_ROOM = 10, // pixels from strip to strip
  FILLED = 0.76, // part of the room that a strip fills
  STRIP = 14, // pixels of a strip's width, and of a bar's
  BAR = 11,
  WIDEST_GAP = 0.13, // of the height, between bars
  DIGIT = 7.5, // pixels of a sign of a child's number
  LEGIBLE = 11, // pixels of a vote's side; smaller ones aren't drawn
  LARGEST = 34,
  REACH = 3, // pixels from a ribbon in which the pointer is on it
  DIM = 0.1, // strength of the others where one is chosen
  STRONG = 0.85,
  PALE = 0.5; // strength of a grey ribbon

export class Ribbons extends Graph {
  narrowest = 280; // pixels of a canvas; on a narrower one only a marked child has its number

  get held() {
    return state.held;
  }

  // Take what stays while time passes: the image's edges, the children and the columns of parents from top to bottom, and
  // pictures of the children or null.
  take(image, { children, columns }, pictures) {
    Object.assign(this, { image, children, columns, pictures });
    this.own = new Set(columns);
    this.edgeOf = new Map([...image.src.keys()].map((e) => [`${image.src[e]} ${image.dst[e]}`, e]));
    this.edgesOf = new Map(children.map((child) => [child, []]));
    image.src.forEach((child, e) => this.edgesOf.get(child)?.push(e));
  }

  // Strips have their places in the middle of equal parts of the height.
  place() {
    const { context, width, height } = surface(this.canvas),
      size = Math.ceil(this.children.length / Math.max(1, Math.floor(height / LEAST_ROOM)));
    Object.assign(this, { context, width, height, groups: [] });
    for (let at = 0; at < this.children.length; at += size) this.groups.push(this.children.slice(at, at + size));
    this.room = height / this.groups.length;
    this.thick = Math.min(40, FILLED * this.room);
    this.numbered = width > this.narrowest && this.room > LEAST_ROOM + 1;
    const side = this.pictures && size === 1 ? Math.min(LARGEST, 0.96 * this.room, 0.12 * width) : 0;
    this.side = side < LEGIBLE ? 0 : side;
    this.wide = DIGIT * Math.max(...this.groups.map((group) => this.nameOf(group).length)) + 6;
    this.strip = (this.numbered ? this.wide : 2) + (this.side ? this.side + 4 : 0);
    this.left = this.strip + STRIP;
    this.right = width - BAR - 2;
  }

  nameOf([child, ...others]) {
    return others.length ? `${shortName(child)}, …` : shortName(child);
  }

  // The shares of a group of children for each column: the mean of its children, of whom each has one voice or is silent.
  sharesOf(group, c) {
    const { dst } = this.image,
      shares = new Map(this.columns.map((column) => [column, 0]));
    for (const child of group) {
      if (this.held[child] === LET_GO) continue;
      for (const e of this.edgesOf.get(child)) {
        const column = this.own.has(dst[e]) ? dst[e] : OTHERS;
        shares.set(column, shares.get(column) + c[e] / group.length);
      }
    }
    return this.columns.map((column) => shares.get(column));
  }

  // Where strips are cut, and where their ribbons arrive: {group, parent, share, from, to}, from and to being upper ends.
  layOut(c) {
    const { groups, columns, thick, height } = this,
      shares = groups.map((group) => this.sharesOf(group, c)),
      sums = columns.map((_, at) => thick * shares.reduce((sum, row) => sum + row[at], 0)),
      total = sums.reduce((a, b) => a + b, 0),
      gap = columns.length > 1 ? Math.min(WIDEST_GAP * height, (height - total) / (columns.length - 1)) : 0;
    let top = (height - total - gap * (columns.length - 1)) / 2;
    this.bars = columns.map((parent, at) => {
      const bar = { parent, top, tall: sums[at] };
      top += sums[at] + gap;
      return bar;
    });
    const ends = this.bars.map((bar) => bar.top);
    this.ribbons = groups.flatMap((group, row) => {
      let from = (row + 0.5) * this.room - thick / 2;
      return columns.map((parent, at) => {
        const share = shares[row][at],
          ribbon = { group, parent, share, from, to: ends[at] };
        from += share * thick;
        ends[at] += share * thick;
        return ribbon;
      });
    });
  }

  colorOf(parent, look) {
    return look.named.includes(parent) ? look.parents[parent] : look.rest;
  }

  draw(c, chosen, hovered, look) {
    this.place();
    this.layOut(c);
    if (this.drawsVotes?.()) return this.drawVotes(look); // the article's screen of votes
    const { context } = this,
      marked = hovered?.child ?? chosen.child,
      rank = ({ parent }) => (parent === OTHERS ? 0 : this.colorOf(parent, look) === look.rest ? 1 : 2);
    for (const ribbon of [...this.ribbons].sort((a, b) => rank(a) - rank(b))) {
      if (ribbon.share * this.thick < 0.04) continue;
      const { group, parent, share, from, to } = ribbon,
        lit = (chosen.parent === null || parent === chosen.parent) && (chosen.child === null || group.includes(chosen.child)),
        under = hovered?.parent !== undefined && group.includes(hovered.child) && parent === hovered.parent,
        color = this.colorOf(parent, look);
      context.globalAlpha = under ? 1 : (lit ? 1 : DIM) * (color === look.rest ? PALE : STRONG);
      context.fillStyle = color;
      this.flow(from, to, share * this.thick);
      if (now.term === "coupling" || under) {
        Object.assign(context, { globalAlpha: 1, strokeStyle: under ? look.ink : look.accent, lineWidth: 1.25 });
        context.stroke();
      }
      context.globalAlpha = 1;
      context.fillStyle = color;
      context.fillRect(this.strip, from, STRIP - 2, share * this.thick);
    }
    for (const { parent, top, tall } of this.bars) {
      context.fillStyle = this.colorOf(parent, look);
      context.fillRect(this.right, top, BAR, Math.max(1, tall));
    }
    if (this.pull) this.drawPull(look);
    this.groups.forEach((group, row) => this.drawChild(group, row, group.includes(marked), look));
  }

  // The children's votes, large, framed in the colour of the parent that a child chooses.
  drawVotes(look) {
    const { context, width, height } = this,
      count = this.children.length,
      roomOf = (broad) => Math.min(width / broad, height / Math.ceil(count / broad)),
      broad = this.children.reduce((best, _, at) => (roomOf(at + 1) > roomOf(best) ? at + 1 : best), 1),
      room = roomOf(broad),
      side = room - 20,
      left = (width - broad * room) / 2;
    this.children.forEach((child, at) => {
      const [x, y] = [left + (at % broad) * room + 6, Math.floor(at / broad) * room],
        picture = this.pictures.get(child);
      if (picture) context.drawImage(picture, x, y + 2, side, side);
      const [parent, , chooses] = state.order.choices.get(child);
      this.frame(x, y + 2, side, side, chooses ? look.parents[parent] : look.rest, 2);
      Object.assign(context, { font: look.font, fillStyle: look.muted, textBaseline: "top" });
      context.fillText(shortName(child), x, y + side + 4);
    });
  }

  // A ribbon's outline: its middle is 3 t^2 - 2 t^3, which `eased` has too.
  flow(from, to, tall, right = this.right) {
    const { context, left } = this,
      part = (right - left) / 3;
    context.beginPath();
    context.moveTo(left, from);
    context.bezierCurveTo(left + part, from, right - part, to, right, to);
    context.lineTo(right, to + tall);
    context.bezierCurveTo(right - part, to + tall, left + part, from + tall, left, from + tall);
    context.closePath();
    context.fill();
  }

  // The voice that is pulled, from its child to the pointer.
  drawPull(look) {
    const { child, x, y, to } = this.pull,
      row = this.groups.findIndex((group) => group.includes(child)),
      from = (row + 0.5) * this.room - this.thick / 2;
    this.context.globalAlpha = 0.9;
    this.context.fillStyle = to in look.parents ? look.parents[to] : look.muted;
    this.flow(from, y - this.thick / 2, this.thick, x);
    this.context.globalAlpha = 1;
  }

  // Number, vote and the frame of a strip. A child that is pinned, or held where it was pulled, has a frame.
  drawChild(group, row, marked, look) {
    const { context, side, wide, room, strip, thick } = this,
      y = (row + 0.5) * room,
      framed = group.some((child) => child in this.held || child in now.pinned);
    if (this.numbered || marked) {
      const x = this.numbered ? 0 : this.left + 3;
      context.fillStyle = look.paper;
      if (!this.numbered) context.fillRect(x, y - 8, wide, 16);
      Object.assign(context, { font: marked ? `700 ${look.font}` : look.font, textAlign: "right", textBaseline: "middle" });
      context.fillStyle = marked ? look.accent : look.muted;
      context.fillText(this.nameOf(group), x + wide - 5, y);
      context.textAlign = "left";
    }
    const picture = side && this.pictures.get(group[0]);
    if (picture) {
      context.globalAlpha = this.held[group[0]] === LET_GO ? 0.2 : 1;
      context.drawImage(picture, strip - side - 4, y - side / 2, side, side);
      context.globalAlpha = 1;
      if (now.term === "vote") this.frame(strip - side - 4, y - side / 2, side, side, look.accent, 2);
    }
    if (marked || framed) this.frame(strip - 1, y - thick / 2 - 1, STRIP, thick + 2, marked ? look.accent : look.ink, 2);
    else if (this.held[group[0]] === LET_GO) this.frame(strip, y - thick / 2, STRIP - 2, thick, look.faint, 1);
  }

  frame(x, y, width, height, color, lineWidth) {
    Object.assign(this.context, { strokeStyle: color, lineWidth });
    this.context.strokeRect(x, y, width, height);
  }

  // What formulas.js points at, as what is under the pointer.
  pointedAt({ child, parent }) {
    return { child, parent, edge: this.edgeOf.get(`${child} ${parent}`) };
  }

  // The item under a point: {child}, {child, parent, edge} of a ribbon, without an edge if it goes to the others, or null.
  under(x, y, chosen) {
    const group = this.groups?.[Math.floor(y / this.room)];
    if (x < this.left + 3) return group ? { child: group[0] } : null;
    const t = Math.min(1, (x - this.left) / (this.right - this.left)),
      eased = t * t * (3 - 2 * t);
    let best = null,
      nearest = REACH;
    for (const { group, parent, share, from, to } of this.ribbons ?? []) {
      if ((chosen.child ?? null) !== null && !group.includes(chosen.child)) continue;
      const top = from + (to - from) * eased,
        away = Math.max(top - y, y - top - share * this.thick);
      if (share * this.thick >= 0.04 && away < nearest) [best, nearest] = [{ group, parent }, Math.max(away, parent === OTHERS ? 0 : -1)];
    }
    if (!best) return null;
    const child = best.group[0];
    return best.parent === OTHERS ? { child, parent: OTHERS } : { child, parent: best.parent, edge: this.edgeOf.get(`${child} ${best.parent}`) };
  }

  // The upper ends of labels beside the bars, each as tall as `tallOf(parent)`, where none covers another one.
  labels(tallOf) {
    const places = this.bars.map(({ parent, top, tall }) => ({ parent, tall: tallOf(parent), y: top + tall / 2 - tallOf(parent) / 2 }));
    let end = 0;
    for (const place of places) end = (place.y = Math.max(place.y, end)) + place.tall;
    let start = this.height;
    for (const place of places.toReversed()) start = place.y = Math.min(place.y, start - place.tall);
    return places;
  }
}
