// Zoom of the graph: by buttons, by + and − on the graph, by the wheel with Ctrl, which is what a pinch on a touchpad sends.
// Where it is enlarged, dragging an empty place moves it.

const CLOSEST = 12,
  CLOSER = 1.5; // times as large with each step

function zoomBy(factor, x = graph.width / 2, y = graph.height / 2) {
  const zoom = Math.min(CLOSEST, Math.max(1, graph.zoom * factor)),
    from = [x - graph.width / 2, y - graph.height / 2];
  moveTo(graph.shift.map((shift, k) => from[k] - ((from[k] - shift) * zoom) / graph.zoom), zoom);
}

// As far as some of the graph stays in sight.
function moveTo(shift, zoom = graph.zoom) {
  const most = [graph.width, graph.height].map((size) => ((zoom - 1) * size) / 2);
  Object.assign(graph, { zoom, shift: shift.map((value, k) => Math.min(most[k], Math.max(-most[k], value))) });
  graph.canvas.style.touchAction = zoom > 1 ? "none" : "";
  $("#zoom-out").disabled = zoom === 1;
  $("#zoom-in").disabled = zoom === CLOSEST;
  redraw();
}

$("#zoom-in").addEventListener("click", () => zoomBy(CLOSER));
$("#zoom-out").addEventListener("click", () => zoomBy(1 / CLOSER));
graph.canvas.addEventListener("keydown", ({ key }) => {
  if ("+=".includes(key)) zoomBy(CLOSER);
  if (key === "-") zoomBy(1 / CLOSER);
});
graph.canvas.addEventListener(
  "wheel",
  (event) => {
    if (!event.ctrlKey) return; // it scrolls the page
    event.preventDefault();
    zoomBy(2 ** (-event.deltaY / 200), event.offsetX, event.offsetY);
  },
  { passive: false },
);

let dragged = null; // where an empty place was pressed, and the shift then
graph.canvas.addEventListener("pointerdown", ({ offsetX: x, offsetY: y, button, pointerId }) => {
  if (button !== 0 || graph.zoom === 1 || graph.under(x, y)) return;
  dragged = { x, y, shift: graph.shift };
  graph.canvas.setPointerCapture(pointerId);
});
graph.canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
  if (!dragged || Math.hypot(offsetX - dragged.x, offsetY - dragged.y) < GRABBED) return;
  graph.pulled = true; // its end isn't a click
  moveTo([dragged.shift[0] + offsetX - dragged.x, dragged.shift[1] + offsetY - dragged.y]);
});
graph.canvas.addEventListener("lostpointercapture", () => (dragged = null));
