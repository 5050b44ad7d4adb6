// A page from a file: its trace is in it.

const stored = JSON.parse($("#trace").textContent);
const nameOf = ({ label }, n) => stored.parents[label]?.name ?? `image ${n}`;

show(stored);
showImages(
  stored.images.map((each, n) => ({ name: nameOf(each, n), pixels: each.pixels })),
  now.n,
  takeImage,
);
