// The page with a network: its modules, in the order in which they draw, and the parts of a link that set the desk and the
// comparison.

import "./image_words.js";
import "./pull.js";
import "./formulas.js";
import "./view.js";
import { enter, SCREENS, scrollToScreen, usual } from "./article.js";
import { BEND, bentBy } from "./behind.js";
import { layTyped } from "./bring.js";
import { compareAs, compared, ROUTINGS } from "./compare.js";
import { GRID, NEUTRAL } from "./desk.js";
import { changed, EMPTY, layOut, network, shelf } from "./live.js";
import { chooserInput } from "./page.js";
import { share } from "./share.js";
import { now, state } from "./state.js";
import { $ } from "./tools.js";
import { stored } from "./trace.js";

share({
  usual,
  sealed: true,
  isForeign: () => Boolean(state.shown.foreign),
  limits: {
    screens: SCREENS,
    images: shelf.length,
    grid: GRID,
    sliders: Object.fromEntries(Object.keys(NEUTRAL).map((id) => [id, Number($(`#${id}`).max)])),
    bend: network.decoder && { numbers: state.layer.dim, most: Math.round(100 * BEND) },
    routings: ROUTINGS,
  },
  read() {
    const { at } = state.shown,
      bent = Object.entries(state.desk.adjust).filter(([, value]) => value !== 0),
      plain = !bent.length && !state.desk.lines.length && !Object.keys(state.held).length;
    return {
      screen: now.screen === SCREENS[0] ? null : now.screen,
      image: at === null || (at === stored.start && plain) ? null : at,
      type: state.shown.typed,
      draw: (at === null && !state.desk.picture) || state.desk.lines.length ? state.desk.lines : null,
      ...Object.fromEntries(bent),
      compare: compared(),
      bend: bentBy(),
      pull: Object.keys(state.held).length ? state.held : null,
    };
  },
  restore({ screen = null, image: at, type, draw: lines = null, compare = null, bend = {}, pull = {}, ...adjust }, moment) {
    scrollToScreen(screen ?? "yours");
    enter(screen ?? "yours");
    if (screen && state.shown.at === stored.start && !Object.values({ at, type, lines, compare, ...moment }).some((part) => part !== undefined && part !== null)) return;
    if (state.desk.lines.length) state.desk.remember();
    if (at === undefined && lines) {
      state.shown = EMPTY;
      state.desk.picture = null;
    } else if (type) {
      layTyped(type);
    } else {
      layOut(at ?? stored.start);
      chooserInput(at ?? stored.start).checked = true;
    }
    state.held = pull;
    Object.assign(state.desk, { lines: lines ?? [], adjust: { ...NEUTRAL, ...adjust } });
    changed({ ...moment, bend });
    compareAs(compare);
  },
});

if (!now.screen) enter("embed" in document.body.dataset ? "routing" : SCREENS[0]);
