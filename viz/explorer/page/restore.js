// The parts of a link that set the desk and the comparison.

share({
  limits: {
    images: shelf.length,
    iterations: ITERATIONS,
    epochs: stored.epochs,
    children: layer.children,
    parents: layer.parents,
    grid: GRID,
    sliders: Object.fromEntries(Object.keys(NEUTRAL).map((id) => [id, Number($(`#${id}`).max)])),
    bend: network.decoder && { numbers: layer.dim, most: Math.round(100 * BEND) },
    routings: ROUTINGS,
  },
  read() {
    const { at } = shown,
      bent = Object.entries(desk.adjust).filter(([, value]) => value !== 0);
    return {
      image: at === null || (at === stored.start && !bent.length) ? null : at,
      draw: at === null ? desk.lines : null,
      ...Object.fromEntries(bent),
      compare: isComparing() ? sides : null,
      bend: bentBy(),
    };
  },
  restore({ image: at = stored.start, draw: lines, compare = null, bend = {}, ...adjust }, moment) {
    if (desk.lines.length) desk.remember();
    if (lines) {
      shown = { at: null, label: null, name: () => "" };
      Object.assign(desk, { picture: null, lines });
    } else {
      layOut(at);
      chooserInput(at).checked = true;
    }
    desk.adjust = { ...NEUTRAL, ...adjust };
    changed({ ...moment, bend });
    compareAs(compare);
  },
});
