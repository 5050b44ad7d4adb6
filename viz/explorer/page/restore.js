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
      bent = Object.entries(desk.adjust).filter(([, value]) => value !== 0),
      plain = !bent.length && !desk.lines.length && !Object.keys(held).length;
    return {
      image: at === null || (at === stored.start && plain) ? null : at,
      draw: at === null || desk.lines.length ? desk.lines : null,
      ...Object.fromEntries(bent),
      compare: sides === USUAL ? null : sides,
      bend: bentBy(),
      pull: Object.keys(held).length ? held : null,
    };
  },
  restore({ image: at, draw: lines = null, compare = null, bend = {}, pull = {}, ...adjust }, moment) {
    if (desk.lines.length) desk.remember();
    if (at === undefined && lines) {
      shown = EMPTY;
      desk.picture = null;
    } else {
      layOut(at ?? stored.start);
      chooserInput(at ?? stored.start).checked = true;
    }
    held = pull;
    Object.assign(desk, { lines: lines ?? [], adjust: { ...NEUTRAL, ...adjust } });
    changed({ ...moment, bend });
    compareAs(compare);
  },
});
