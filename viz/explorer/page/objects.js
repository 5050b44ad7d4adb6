// The objects that an answer names, where an image shows several: each in its parent's colour.

const UNEXPLAINED = 0.25; // of the most that the decoder draws anywhere: strokes where it draws less stay white

// The parent's colour as [red, green, blue], so light that it stands out from black.
function lit(parent) {
  return rgbOf(lighter(stored.parents[parent].color, "#000000"));
}

// The pixels (C, H, W) in colours: each is divided among the objects by the squares of what their reconstructions, (C, H, W)
// bytes, hold there.
function sharedOut(data, pictures, colors) {
  const size = high * wide,
    plane = (values, x) => (shape[0] === 1 ? values[x] : Math.max(values[x], values[size + x], values[2 * size + x]));
  const drawn = Float64Array.from({ length: size }, (_, x) => pictures.reduce((sum, picture) => sum + plane(picture, x), 0)),
    enough = UNEXPLAINED * Math.max(1, ...drawn);
  return raster(high, wide, (x) => {
    const squares = pictures.map((picture) => plane(picture, x) ** 2),
      total = squares.reduce((a, b) => a + b, 1e-9),
      strength = Math.min(1, drawn[x] / enough),
      light = plane(data, x) / 255;
    const color = (k) => colors.reduce((sum, channels, n) => sum + (channels[k] * squares[n]) / total, 0);
    return [...[0, 1, 2].map((k) => light * (255 + strength * (color(k) - 255))), 255];
  });
}

// A reconstruction in one colour.
function tinted(picture, [red, green, blue]) {
  return raster(high, wide, (x) => [...[red, green, blue].map((channel) => (channel * picture[x]) / 255), 255]);
}

// What the network reads on the desk, in colours, and the reconstructions of the answer in the same ones.
function showObjects({ tops }, data, blank) {
  const found = tops.slice(0, network.objects),
    several = network.objects > 1 && !blank && Boolean(found[0].picture);
  $("#read").hidden = !several;
  if (!several) return;
  const colors = found.map(({ parent }) => lit(parent)),
    pictures = found.map(({ picture }) => picture);
  paste($("#read canvas"), sharedOut(data, pictures, colors));
  found.forEach(({ picture }, at) => paste($("#tops").children[at].querySelector("canvas"), tinted(picture, colors[at])));
  const caption = $("#read figcaption");
  fill(caption, found.length, "span", (item) => (item.innerHTML = '<i class="dot"></i> <b></b> <span></span>'));
  found.forEach(({ parent, length }, at) => {
    const [dot, name, value] = caption.children[at].children;
    dot.style.setProperty("--of", `rgb(${colors[at].join(" ")})`);
    name.textContent = stored.parents[parent].name;
    value.textContent = length.toFixed(2);
  });
  const named = found.map(({ parent }) => stored.parents[parent].name).join(words.and);
  $("#read canvas").setAttribute("aria-label", words.readAs(named));
}
