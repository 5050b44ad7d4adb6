// The way from pixels to a primary capsule: which pixels it sees, and which feature maps its numbers come from.

const MAPS = 8; // named, at most

// {field, window: [top, left, height, width] in the image and in the maps, size: [height, width] of a map, count: of maps,
// maps: [{channel, share, picture}]} of a child, by what went into each step of the stem. A map's share is its part of the capsule before squash, s: what it adds to
// s, along s, over |s|. Shares and that of the bias sum to 1. Pictures are bytes, 255 where a map is largest.
export function feeds(network, inputs, child) {
  const { dim } = network.primary,
    { weight, bias, stride, groups } = network.stem.at(-1),
    { values, shape: [count, height, width] } = inputs.at(-1),
    [outs, ins, high, wide] = weight.shape,
    [tall, broad] = [(height - high) / stride[0], (width - wide) / stride[1]].map((steps) => Math.floor(steps) + 1);
  const place = child % (tall * broad),
    type = Math.floor(child / (tall * broad)),
    at = [Math.floor(place / broad), place % broad],
    [top, left] = [at[0] * stride[0], at[1] * stride[1]];
  const added = new Float64Array(count * dim),
    s = new Float64Array(dim);
  for (let d = 0; d < dim; d++) {
    const out = type * dim + d,
      first = Math.floor(out / (outs / groups)) * ins;
    s[d] = bias.values[out];
    for (let n = 0; n < ins; n++) {
      let sum = 0;
      for (let y = 0; y < high; y++) {
        const row = ((first + n) * height + top + y) * width + left,
          from = ((out * ins + n) * high + y) * wide;
        for (let x = 0; x < wide; x++) sum += weight.values[from + x] * values[row + x];
      }
      added[(first + n) * dim + d] = sum;
      s[d] += sum;
    }
  }
  const squared = s.reduce((sum, value) => sum + value * value, 1e-30),
    shares = Array.from({ length: count }, (_, channel) => {
      return s.reduce((sum, value, d) => sum + (added[channel * dim + d] * value) / squared, 0);
    });
  const largest = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, MAPS);
  return {
    field: fieldOf(network, at),
    window: [top, left, high, wide],
    size: [height, width],
    count,
    maps: largest.filter((channel) => shares[channel] > 0).map((channel) => {
      const map = values.subarray(channel * height * width, (channel + 1) * height * width),
        [low, most] = map.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
      const picture = Uint8Array.from(map, (value) => Math.round((255 * (value - low)) / Math.max(most - low, 1e-12)));
      return { channel, share: shares[channel], picture };
    }),
  };
}

// The part of the image that a place of the last convolution sees, back through all of them.
function fieldOf({ stem }, [row, column]) {
  let field = [row, column, 1, 1];
  for (const { kind, weight, stride } of [...stem].reverse()) {
    if (kind !== "conv") continue;
    const [top, left, high, wide] = field;
    const size = [(high - 1) * stride[0] + weight.shape[2], (wide - 1) * stride[1] + weight.shape[3]];
    field = [top * stride[0], left * stride[1], ...size];
  }
  return field;
}
