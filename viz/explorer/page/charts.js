// Two charts on canvases: entropy over iterations, and the histogram of the couplings.

// A canvas made ready for drawing in CSS pixels, empty.
function surface(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas,
    dense = canvas.dense || window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * dense), Math.round(height * dense)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Round numbers, of which the first is low or below and the last is high or above, in at most `most` steps or one more.
function ticks(low, high, most) {
  const rough = (high - low) / most,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.floor(low / step + 1e-9);
  const count = Math.ceil(high / step - 1e-9) - first + 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return Array.from({ length: count }, (_, at) => {
    const value = (first + at) * step;
    return { value, text: value.toFixed(digits) };
  });
}

// Axes of a chart: x(value) and y(value) are pixels; draws ticks and names.
class Axes {
  constructor(canvas, look, { x: [x0, x1], y: [y0, y1], log = false }) {
    Object.assign(this, surface(canvas), { look });
    this.box = { left: 46, right: this.width - 12, top: 20, bottom: this.height - 36 };
    const { left, right, top, bottom } = this.box,
      scale = log ? Math.log : (value) => value;
    this.x = (value) => left + ((value - x0) / (x1 - x0)) * (right - left);
    this.y = (value) => bottom - ((scale(value) - scale(y0)) / (scale(y1) - scale(y0))) * (bottom - top);
  }

  frame(xTicks, yTicks, name) {
    const { context, look, box } = this;
    context.font = look.font;
    context.fillStyle = look.muted;
    context.strokeStyle = look.faint;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const { value, text } of yTicks) {
      this.path(
        [
          [box.left, this.y(value)],
          [box.right, this.y(value)],
        ],
        0.5,
      );
      context.fillText(text, box.left - 7, this.y(value));
    }
    context.textAlign = "center";
    for (const { value, text } of xTicks) context.fillText(text, this.x(value), box.bottom + 11);
    context.fillText(name, (box.left + box.right) / 2, box.bottom + 28);
    context.textAlign = "left";
  }

  path(points, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.beginPath();
    points.forEach(([x, y], at) => (at ? this.context.lineTo(x, y) : this.context.moveTo(x, y)));
    this.context.stroke();
    this.context.globalAlpha = 1;
  }

  dashed(points) {
    this.context.setLineDash([5, 4]);
    Object.assign(this.context, { strokeStyle: this.look.ink, lineWidth: 1.25 });
    this.path(points);
    this.context.setLineDash([]);
  }
}

function drawEntropy(canvas, trace, image, moment, child, look) {
  const { iterations: R, level, trained, degrees } = trace,
    steps = [...Array(R).keys()];
  const top = Math.log(degrees.at(-1)),
    marks = ticks(Math.max(0, Math.min(image.lowest, top - 0.01)), top, 5).filter(({ value }) => value <= top),
    low = Math.min(image.lowest, top - 0.01, ...marks.map(({ value }) => value)),
    pad = 0.07 * (top - low);
  const axes = new Axes(canvas, look, { x: [0.6, R + 0.4], y: [low - pad, top + pad] }),
    { context, box } = axes;
  if (trained < R) {
    context.fillStyle = look.shade;
    context.fillRect(axes.x(trained + 0.5), box.top, box.right - axes.x(trained + 0.5), box.bottom - box.top);
    context.font = look.font;
    context.fillStyle = look.muted;
    context.textAlign = "right";
    context.textBaseline = "bottom";
    context.fillText(words.beyondTraining(trained), box.right, box.top - 5);
  }
  const every = Math.ceil(R / 15);
  const named = steps.filter((r) => r % every === 0).map((r) => ({ value: r + 1, text: `${r + 1}` }));
  axes.frame(named, marks, words.axisIteration);
  const rows = steps.map((r) => at(image.entropy, { k: moment.k, r }));
  const line = (i) => steps.map((r) => [axes.x(r + 1), axes.y(rows[r][i])]);
  Object.assign(context, { strokeStyle: look.muted, lineWidth: 1 });
  const alpha = Math.max(0.04, Math.min(0.5, 8 / image.linked.length));
  for (const i of image.linked) axes.path(line(i), alpha);
  axes.dashed([
    [box.left, axes.y(level)],
    [box.right, axes.y(level)],
  ]);
  if (child !== null) {
    Object.assign(context, { strokeStyle: look.ink, lineWidth: 2 });
    axes.path(line(child));
  }
  Object.assign(context, { strokeStyle: look.accent, fillStyle: look.accent, lineWidth: 3, lineJoin: "round" });
  axes.path(steps.map((r) => [axes.x(r + 1), axes.y(at(image.meanEntropy, { k: moment.k, r }))]));
  context.beginPath();
  context.arc(axes.x(moment.r + 1), axes.y(at(image.meanEntropy, moment)), 5.5, 0, 2 * Math.PI);
  context.fill();
}

function drawHistogram(canvas, trace, image, moment, parent, look) {
  const { bins } = image,
    size = bins.length - 1,
    counts = at(image.counts, moment);
  const log = trace.edges >= 100,
    floor = log ? 0.7 : 0;
  const powers = [...Array(Math.ceil(Math.log10(trace.edges) + 1e-9)).keys()].map((power) => 10 ** power),
    across = ticks(bins[0], bins[size], 6),
    marks = log ? powers.map((value) => ({ value, text: `${value}` })) : ticks(0, trace.edges, 4),
    y = [floor, log ? 1.5 * trace.edges : 1.05 * marks.at(-1).value];
  const axes = new Axes(canvas, look, { x: [across[0].value, across.at(-1).value], y, log }),
    { context, box } = axes;
  axes.frame(across, marks, words.couplingC);
  const bars = (heights, color) => {
    context.fillStyle = color;
    heights.forEach((height, bin) => {
      const x = axes.x(bins[bin]) + 0.5,
        wide = axes.x(bins[bin + 1]) - axes.x(bins[bin]) - 1;
      if (height > floor) context.fillRect(x, axes.y(height), wide, box.bottom - axes.y(height));
    });
  };
  const own = counts.slice(parent * size, (parent + 1) * size);
  const all = own.map((_, bin) => trace.parents.reduce((sum, _, j) => sum + counts[j * size + bin], 0));
  bars(Float64Array.from(all), look.faint);
  bars(own, look.parents[parent]);
  for (const degree of trace.degrees.length <= 6 ? trace.degrees : [trace.degrees[0], trace.degrees.at(-1)]) {
    axes.dashed([
      [axes.x(1 / degree), box.top],
      [axes.x(1 / degree), box.bottom],
    ]);
  }
}
