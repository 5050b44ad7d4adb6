// Grab a child's line and pull it to another parent, where the child is then held; or let it go, and it votes for none. All
// rounds are routed again. The list below the graph does the same for a chosen child.

// The parent whose row is at a point of the window, LET_GO over the graph, null elsewhere.
function dropAt({ clientX, clientY }) {
  const under = document.elementFromPoint(clientX, clientY),
    row = under?.closest("#parents button");
  if (row) return Number(row.dataset.parent);
  return under?.closest(".stage") ? LET_GO : null;
}

graph.grabs(
  (under) => under?.edge !== undefined && { child: under.child },
  dropAt,
  ({ child }, parent) => parent !== null && hold(child, parent),
);

const BY_ITSELF = "own";
$("#pull").addEventListener("change", ({ target }) => hold(now.child, target.value === BY_ITSELF ? null : Number(target.value)));
$("#release").addEventListener("click", () => {
  desk.remember();
  held = {};
  changed();
});

// What pulls have done to the lengths, as against the newest answer to the same image without any.
let free = null; // the question and the lengths of that answer
function sayPulled(some) {
  const lengths = routed?.states[layer.iterations - 1].lengths;
  if (!some) free = lengths && { data: asked.data, lengths };
  const known = some && free?.data.every((value, x) => value === asked.data[x]),
    moved = known ? [...lengths.keys()].filter((j) => Math.abs(lengths[j] - free.lengths[j]) >= 0.01) : [];
  moved.sort((a, b) => Math.abs(lengths[b] - free.lengths[b]) - Math.abs(lengths[a] - free.lengths[a]));
  const changes = moved.slice(0, 2).map((j) => words.change(trace.parents[j].name, free.lengths[j], lengths[j])),
    text = known ? changes.join(", ") || words.noChange : "";
  if ($("#pulled").textContent !== text) $("#pulled").textContent = text;
}

function drawPulls() {
  const some = Object.keys(held).length > 0,
    one = now.child !== null;
  $("#pulls").hidden = !some && !one;
  $("#pulling").hidden = some || one;
  $("#release").hidden = !some;
  sayPulled(some);
  $("#pull").hidden = $("#pulls label").hidden = !one;
  if (!one) return;
  $("#pulls label").textContent = words.goesTo(now.child);
  const options = [[BY_ITSELF, words.whereItVotes], ...trace.parents.map(({ name }, j) => [j, name]), [LET_GO, words.noParent]];
  fill($("#pull"), options.length, "option", () => {});
  options.forEach(([value, text], at) => Object.assign($("#pull").children[at], { value, textContent: text }));
  $("#pull").value = held[now.child] ?? BY_ITSELF;
}
extras.push(drawPulls);
