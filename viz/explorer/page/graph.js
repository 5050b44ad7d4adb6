// What both graphs on a canvas have, ribbons and the graph of nodes: lines that can be pulled.

import { redraw } from "./shell.js";
import { now } from "./state.js";
import { channels } from "./tools.js";

export const GRABBED = 5; // pixels after which a press is a pull
export const PICTURED = 20; // children shown with pictures, at most

export class Graph {
  constructor(canvas) {
    Object.assign(this, { canvas, pull: null });
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
