// What the decoder draws of a vote, below the vote's numbers.

let decoded = {}; // what the decoder was asked for last

const decodeVotes = newest(ask, "decode", ({ picture }, canvas) => showPixels(canvas, picture));
const decodeParents = newest(ask, "decode", ({ picture }, canvas) => showPixels(canvas, picture));

// What the decoder makes of the vote as if it were the parent, squashed, and of the parent.
function drawDecoded({ edge, parent, child: chosen }, r) {
  const child = view.pointed ?? chosen,
    shown = edgeTo(parent, child) ?? edge,
    n = lengthOf(voteOf(shown)),
    vote = Array.from(voteOf(shown), (value) => (value * n) / (1 + n * n)),
    [one, other] = $("#decoded").children,
    { name } = trace.parents[parent];
  const from = childName(layer.src[shown]);
  one.lastChild.textContent = words.voteAlone(from, fixed((n * n) / (1 + n * n), 2));
  other.lastChild.textContent = words.parentDrawn(name, r + 1);
  for (const each of [one, other]) each.firstChild.setAttribute("aria-label", each.lastChild.textContent);
  if (decoded.shown === shown && decoded.r === r && decoded.of === routed) return;
  decoded = { shown, r, of: routed };
  decodeVotes({ parent, capsule: vote }, one.firstChild);
  decodeParents({ parent, capsule: [...parentAt(r, parent)] }, other.firstChild);
}

$("#decoded").hidden = !network.decoder;
if (network.decoder) explanations.push(drawDecoded);
