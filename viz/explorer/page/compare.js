// The same votes under two routings, side by side. The weights were trained with one of them; the votes are the same.

import { entropies } from "./answer.js";
import { isOnePass } from "./formulas.js";
import { arrivals, ask, network, newest } from "./live.js";
import { answers, RIGHT, WRONG } from "./panels.js";
import { follow } from "./share.js";
import { drawings, openDrawer, renewals } from "./shell.js";
import { state } from "./state.js";
import { $, fill, setBar, setOptions } from "./tools.js";
import { stored } from "./trace.js";
import { words } from "./words.js";

export const ROUTINGS = ["dynamic", "uniform", "attention", "spherical"];
const trained = { routing: state.layer.routing, iterations: state.layer.iterations };
const USUAL = [trained, { ...trained, routing: state.layer.routing === "uniform" ? "dynamic" : "uniform" }];
let sides = USUAL,
  voted = null, // {answer, label, blank} of the newest answer
  comparing = null; // the newest comparison: {sides, voted, filled}, filled with the states of each side, or null

const routeOther = newest(ask, "route", ({ states }, { side, of }) => {
  of.filled[side] = states;
  if (of === comparing) routeSides();
});

// An answer has come; route its votes in both ways.
function showCompared(answer, about) {
  voted = { answer, ...about };
  compareNow();
}

function compareNow() {
  if (!voted || $("#why").hidden) return;
  comparing = { sides, voted, filled: sides.map(({ routing }) => (routing === state.layer.routing ? voted.answer.states : null)) };
  routeSides();
}

// Route what isn't routed yet, one side after the other, then draw.
function routeSides() {
  const { filled } = comparing,
    side = filled.indexOf(null);
  if (side < 0) return drawCompared(comparing);
  const question = { u_hat: voted.answer.u_hat, rounds: stored.iterations, routing: sides[side].routing, held: state.held };
  routeOther(question, { side, of: comparing });
}

function named({ routing, iterations }) {
  return words.routing(routing, isOnePass(routing) ? null : iterations);
}

function drawCompared({ sides, voted: { label, blank }, filled }) {
  const states = filled.map((each, side) => each[sides[side].iterations - 1]),
    { parents } = stored;
  const answered = states.map(({ lengths }) => answers(lengths));
  const cell = '<td><span><span class="bar"></span><span></span></span></td>';
  fill($("#compare tbody"), parents.length, `<tr><th scope="row"></th>${cell}${cell}</tr>`);
  parents.forEach(({ name }, j) => {
    const { cells } = $("#compare tbody").rows[j];
    cells[0].textContent = cells[0].title = name;
    states.forEach(({ lengths }, side) => {
      const [bar, value] = cells[side + 1].firstChild.children;
      setBar(bar, lengths[j], state.look.parents[j]);
      value.textContent = lengths[j].toFixed(2);
      cells[side + 1].classList.toggle("longest", !blank && answered[side].includes(j));
    });
  });
  const names = answered.map((found) => found.map((j) => parents[j].name).join(" + ") || words.none),
    [answerRow, entropyRow] = $("#compare tfoot").rows,
    linked = [...Array(state.layer.children).keys()].filter((i) => !stored.unlinked.includes(i));
  states.forEach(({ c }, side) => {
    const mark = label === null ? "" : answered[side][0] === label ? ` ${RIGHT}` : ` ${WRONG}`;
    answerRow.cells[side + 1].textContent = blank ? words.blankAnswer : names[side] + mark;
    const each = entropies(c, state.layer.src, state.layer.children);
    const mean = linked.reduce((sum, i) => sum + each[i], 0) / linked.length;
    entropyRow.cells[side + 1].textContent = `${mean.toFixed(3)} nat`;
  });
  const same = names[0] === names[1];
  const changes = words.answerChanges(names, sides.map(named));
  const verdict = blank ? words.blankSheet : same ? words.bothAnswer(names[0]) : changes;
  if ($("#differs").textContent !== verdict) $("#differs").textContent = verdict;
}

// Say what the weights were trained with, and let the controls stand where `sides` does.
function nameSides() {
  const notes = [words.otherRouting(named(trained))];
  if (network.layers.length > 1) notes.push(words.lastLayerOnly);
  if (state.layer.routing !== "spherical" && sides.some(({ routing }) => routing === "spherical")) {
    notes.push(words.concentration);
  }
  $("#trained-with").textContent = notes.join(" ");
  const selects = document.querySelectorAll("#compare select");
  sides.forEach(({ routing, iterations }, side) => {
    selects[2 * side].value = routing;
    selects[2 * side + 1].value = iterations;
    selects[2 * side + 1].hidden = isOnePass(routing);
    for (const { value, firstChild } of selects[2 * side].options) {
      firstChild.data = value === state.layer.routing ? words.trainedWith(value) : value;
    }
    for (const { value, firstChild } of selects[2 * side + 1].options) firstChild.data = words.iterations(Number(value));
  });
}

// The two that are compared, or null if they are the usual ones.
export function compared() {
  return sides === USUAL ? null : sides;
}

// Compare these two, or with null the usual ones.
export function compareAs(wanted) {
  sides = wanted ?? USUAL;
  if (wanted) openDrawer("why");
  nameSides();
  compareNow();
}

document.querySelectorAll("#compare select").forEach((select, at) => {
  const side = Math.floor(at / 2),
    key = at % 2 ? "iterations" : "routing";
  const rounds = Array.from({ length: stored.iterations }, (_, r) => r + 1);
  setOptions(select, (key === "routing" ? ROUTINGS : rounds).map((value) => [value, value]));
  select.addEventListener("change", () => {
    const value = key === "iterations" ? Number(select.value) : select.value;
    sides = sides.map((each, n) => (n === side ? { ...each, [key]: value } : each));
    nameSides();
    compareNow();
    follow();
  });
});
arrivals.push(showCompared);
drawings.push(() => comparing?.voted === voted || compareNow());
renewals.push(compareNow);
nameSides();
