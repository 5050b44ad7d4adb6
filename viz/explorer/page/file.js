// A page from a file: its trace is in it.

const stored = JSON.parse($("#trace").textContent);
const nameOf = ({ label }, n) => stored.parents[label]?.name ?? `image ${n}`;

// The network's answer is the longest parent after the iterations of training.
function wrongOf(each) {
  const longest = indexOfLargest(each.lengths.at(-1)[stored.trained - 1]);
  return isWrong(each, longest) ? `taken for ${stored.parents[longest].name}` : "";
}

show(stored);
showImages(
  stored.images.map((each, n) => ({ name: nameOf(each, n), pixels: each.pixels, wrong: wrongOf(each) })),
  now.n,
  takeImage,
);
