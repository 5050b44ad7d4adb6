// What both graphs on a canvas have, ribbons and the graph of nodes: lines that can be pulled, their widths, and the scale.

import { surface, through } from "./charts.js";
import { redraw } from "./shell.js";
import { now } from "./state.js";
import { channels } from "./tools.js";
import { words } from "./words.js";

export const ASIDE = 0.3; // strength of the other lines while one is under the pointer
export const GRABBED = 5; // pixels after which a press is a pull
export const REACH = 7; // pixels from a line in which the pointer is on it
export const PICTURED = 20; // children shown with pictures, at most
const THIN = 0.4; // pixels of a line whose coupling is 0

export class Graph {
  constructor(canvas) {
    Object.assign(this, { canvas, pull: null });
  }

  // One scale for a whole picture: a coupling of 1 is the widest line.
  lineWidth(c) {
    return THIN + (this.thick - THIN) * c;
  }

  // Let lines be pulled: grab(under) gives what is pulled or false, target(event) what is under the pointer then, and
  // drop(pulled, target) is called where it is let go.
  grabs(grab, target, drop) {
    let grabbed = null; // what is pulled, and where it was pressed
    const end = () => {
      [grabbed, this.pull] = [null, null];
      redraw();
    };
    this.canvas.addEventListener("pointerdown", ({ offsetX: x, offsetY: y, button, pointerId }) => {
      const what = button === 0 && grab(this.under(x, y, now));
      this.pulled = false;
      if (!what) return;
      grabbed = { ...what, x, y };
      this.canvas.setPointerCapture(pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const { offsetX: x, offsetY: y } = event;
      if (!grabbed || (!this.pull && Math.hypot(x - grabbed.x, y - grabbed.y) < GRABBED)) return;
      this.pull = { ...grabbed, x, y, to: target(event) };
      redraw();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const { pull } = this;
      this.pulled = Boolean(pull);
      end();
      if (pull) drop(pull, target(event));
    });
    this.canvas.addEventListener("pointercancel", end);
  }
}

// Red, green and blue of "#rrggbb" or "rgb(r g b)".
export function rgbOf(color) {
  return color.startsWith("#") ? channels(color) : color.match(/\d+/g).map(Number);
}

// Lines of known coupling: an equal share for each of a child's `choices`, what is enough to choose a parent or one half, and 1.
export function drawScale(canvas, graph, choices, look, enough) {
  const { context, height } = surface(canvas),
    marks = [enough ? [enough, words.chooses(enough)] : [0.5, "0.5"], [1, "1"]],
    middle = height / 2;
  if (choices > 2) marks.unshift([1 / choices, `${(1 / choices).toFixed(2)} ${words.undecided}`]);
  let x = 0;
  const write = (text) => {
    context.fillText(text, x, middle);
    x += context.measureText(text).width + 9;
  };
  Object.assign(context, { font: look.font, textBaseline: "middle", fillStyle: look.muted, strokeStyle: look.ink });
  write(words.couplingC);
  canvas.setAttribute("aria-label", words.scale(marks.map(([, text]) => text).join(", ")));
  for (const [c, text] of marks) {
    context.lineWidth = graph.lineWidth(c);
    through(context, [x, middle], [x + 22, middle]);
    context.stroke();
    x += 27;
    write(text);
  }
}
