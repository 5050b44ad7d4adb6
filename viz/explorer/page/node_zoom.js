// Zoom of the graph: by buttons, by + and − on the graph, by the wheel with Ctrl, which is what a pinch on a touchpad sends.
// Where it is enlarged, dragging an empty place moves it.

import { GRABBED } from "./graph.js";
import { redraw } from "./shell.js";
import { state } from "./state.js";
import { $ } from "./tools.js";

const CLOSEST = 12,
  CLOSER = 1.5; // times as large with each step

function zoomBy(factor, x = state.graph.width / 2, y = state.graph.height / 2) {
  const zoom = Math.min(CLOSEST, Math.max(1, state.graph.zoom * factor)),
    from = [x - state.graph.width / 2, y - state.graph.height / 2];
  moveTo(state.graph.shift.map((shift, k) => from[k] - ((from[k] - shift) * zoom) / state.graph.zoom), zoom);
}

// As far as some of the graph stays in sight.
function moveTo(shift, zoom = state.graph.zoom) {
  const most = [state.graph.width, state.graph.height].map((size) => ((zoom - 1) * size) / 2);
  Object.assign(state.graph, { zoom, shift: shift.map((value, k) => Math.min(most[k], Math.max(-most[k], value))) });
  state.graph.canvas.style.touchAction = zoom > 1 ? "none" : "";
  $("#zoom-out").disabled = zoom === 1;
  $("#zoom-in").disabled = zoom === CLOSEST;
  redraw();
}

$("#zoom-in").addEventListener("click", () => zoomBy(CLOSER));
$("#zoom-out").addEventListener("click", () => zoomBy(1 / CLOSER));
state.graph.canvas.addEventListener("keydown", ({ key }) => {
  if ("+=".includes(key)) zoomBy(CLOSER);
  if (key === "-") zoomBy(1 / CLOSER);
});
state.graph.canvas.addEventListener(
  "wheel",
  (event) => {
    if (!event.ctrlKey) return; // it scrolls the page
    event.preventDefault();
    zoomBy(2 ** (-event.deltaY / 200), event.offsetX, event.offsetY);
  },
  { passive: false },
);

let dragged = null; // where an empty place was pressed, and the shift then
state.graph.canvas.addEventListener("pointerdown", ({ offsetX: x, offsetY: y, button, pointerId }) => {
  if (button !== 0 || state.graph.zoom === 1 || state.graph.under(x, y)) return;
  dragged = { x, y, shift: state.graph.shift };
  state.graph.canvas.setPointerCapture(pointerId);
});
state.graph.canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
  if (!dragged || Math.hypot(offsetX - dragged.x, offsetY - dragged.y) < GRABBED) return;
  state.graph.pulled = true; // its end isn't a click
  moveTo([dragged.shift[0] + offsetX - dragged.x, dragged.shift[1] + offsetY - dragged.y]);
});
state.graph.canvas.addEventListener("lostpointercapture", () => (dragged = null));
