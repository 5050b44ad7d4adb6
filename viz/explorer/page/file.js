// A page from a file: its trace is in it.

const stored = await storedData();
const nameOf = ({ label }, n) => stored.parents[label]?.name ?? `image ${n}`;

$("#without").textContent = stored.without;
$("#without").hidden = !stored.without;
show(stored);
showImages(
  stored.images.map((each, n) => ({ name: nameOf(each, n), pixels: each.pixels, wrong: wrongOf(stored, each) })),
  now.n,
  takeImage,
);

// A function that shows the image shown now again.
function keepImage() {
  const input = $(".thumbs").children[now.n].querySelector("input");
  return () => input.click();
}
