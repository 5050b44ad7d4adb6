// Grab a child's ribbon and pull it to another parent, where the child is then held; or let it go, and it votes for none. All
// rounds are routed again. The list below the graph does the same for a chosen child.

import { LET_GO } from "./layer.js";
import { changed, hold } from "./live.js";
import { beforePulls } from "./panels.js";
import { OTHERS } from "./ribbons.js";
import { childName, drawings } from "./shell.js";
import { dot, edgeTo, lengthOf, now, parentAt, state, sumAt, voteOf } from "./state.js";
import { $, setOptions } from "./tools.js";
import { words } from "./words.js";

// The parent whose row is at a point of the window, LET_GO over the graph, null elsewhere.
function dropAt({ clientX, clientY }) {
  const under = document.elementFromPoint(clientX, clientY),
    row = under?.closest("#parents button");
  if (row) return Number(row.dataset.parent) === OTHERS ? null : Number(row.dataset.parent);
  return under?.closest(".stage") ? LET_GO : null;
}

state.graph.grabs(
  (under) => under?.parent !== undefined && { child: under.child },
  dropAt,
  ({ child }, parent) => parent !== null && hold(child, parent),
);

const BY_ITSELF = "own",
  CHANGED = 0.03, // of a length that is worth a word
  UNLIKE = 0.5; // cosine below which votes hardly agree
$("#pull").addEventListener("change", ({ target }) => hold(now.child, target.value === BY_ITSELF ? null : Number(target.value)));
$("#release").addEventListener("click", () => {
  state.desk.remember();
  state.held = {};
  changed();
});

// {parent: words of what was pulled away from it or to it}, of the newest pull first.
function pulledEnds() {
  const newest = Object.entries(state.held).sort(([one], [other]) => (other == state.pulledLast) - (one == state.pulledLast));
  const ends = newest.flatMap(([child, to]) => [[state.unpulled.choices.get(Number(child))?.[0], words.pulledFrom(childName(child))], [to, words.pulledTo(childName(child))]]);
  return new Map(ends.filter(([j]) => j in state.trace.parents));
}

// What pulls do to the answer's lengths: of the parents pulled from and to, and of the two others that change most.
function sayPulled(some) {
  const last = state.layer.iterations - 1,
    lengths = state.routed?.states[last].lengths;
  if (!some) state.unpulled = state.routed && { data: state.asked.data, states: state.routed.states, choices: state.order.choices, order: state.order };
  const before = beforePulls() && state.unpulled.states[last].lengths,
    change = (j) => Math.abs(lengths[j] - before[j]),
    ends = before ? pulledEnds() : new Map(),
    moved = before ? [...lengths.keys()].filter((j) => change(j) >= CHANGED && !ends.has(j)) : [],
    others = moved.sort((a, b) => change(b) - change(a)).slice(0, 2);
  const changes = [...ends.keys(), ...others].map((j) => words.change(state.trace.parents[j].name, before[j], lengths[j], ends.get(j))),
    when = Math.round(now.r) === last ? "" : words.inAnswer(last + 1),
    why = before && whyItFell(before, lengths, last) + whyItRose(others.find((j) => lengths[j] > before[j]), last),
    text = before ? `${words.again}${when}${changes.join(", ") || words.noChange}.${why}` : "";
  if ($("#pulled").textContent !== text) $("#pulled").textContent = text;
}

// A sentence where a parent falls although a child is held there, if that child's vote hardly agrees with the others'.
function whyItFell(before, lengths, last) {
  for (const [child, parent] of Object.entries(state.held)) {
    const e = edgeTo(parent, child),
      others = ({ c }) => sumAt(parent, c.with(e, 0));
    if (e === undefined || lengths[parent] > before[parent] - 0.01) continue;
    const [sum, rest] = [others(state.unpulled.states[last]), others(state.routed.states[last])];
    if (dot(voteOf(e), sum) < UNLIKE * lengthOf(voteOf(e)) * lengthOf(sum) && lengthOf(rest) < lengthOf(sum)) {
      return words.disagrees(childName(child), state.trace.parents[parent].name);
    }
  }
  return "";
}

// A sentence on the parent that rises most although no child was pulled there: the child whose vote now adds most to it.
function whyItRose(parent, last) {
  if (parent === undefined) return "";
  const [before, after] = [state.unpulled, state.routed].map(({ states }) => states[last].c),
    v = parentAt(last, parent),
    gain = (e) => (after[e] - before[e]) * dot(voteOf(e), v),
    most = [...state.layer.dst.keys()].filter((e) => state.layer.dst[e] === parent).reduce((best, e) => (gain(e) > gain(best) ? e : best));
  return after[most] - before[most] < 0.01 ? "" : words.joined(childName(state.layer.src[most]), state.trace.parents[parent].name, before[most], after[most]);
}

function drawPulls() {
  const some = Object.keys(state.held).length > 0,
    one = now.child !== null;
  $("#pulls").hidden = !some && !one;
  $("#pulling").hidden = some || one;
  $("#release").hidden = !some;
  sayPulled(some);
  $("#pull").hidden = $("#pulls label").hidden = !one;
  if (!one) return;
  $("#pulls label").textContent = words.goesTo(childName(now.child));
  const options = [[BY_ITSELF, words.whereItVotes], ...state.trace.parents.map(({ name }, j) => [j, name]), [LET_GO, words.noParent]];
  setOptions($("#pull"), options);
  $("#pull").value = state.held[now.child] ?? BY_ITSELF;
}
drawings.push(drawPulls);
