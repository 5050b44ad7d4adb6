// When an answer is doubtful, by the rules of graphcaps/models.

// [{kind, text}] of pixels in 0 to 255, the longest lengths, descending, and the reconstruction; texts have no full stop.
function doubtsOf({ limits, objects, shape }, pixels, lengths, reconstruction) {
  const contrast = contrastOf(pixels, shape);
  if (contrast < limits.blank) {
    return [{ kind: "blank", text: words.blank(contrast.toFixed(2), limits.blank.toFixed(2)) }];
  }
  const found = [],
    { most } = limits;
  const short = limits.answer !== null && lengths[objects - 1] < limits.answer;
  if (short) {
    const numbers = [lengths[objects - 1].toFixed(2), most, limits.answer.toFixed(2)];
    found.push({ kind: "short", text: words.short(objects, words.rank(objects), ...numbers) });
  }
  if (limits.other !== null && lengths.length > objects && lengths[objects] > limits.other && !short) {
    const numbers = [lengths[objects].toFixed(2), most, limits.other.toFixed(2)];
    found.push({ kind: "several", text: words.several(objects, words.rank(objects + 1), ...numbers) });
  }
  const like = reconstruction ? correlation(pixels, reconstruction) : 1;
  if (limits.likeness !== null && like < limits.likeness) {
    found.push({ kind: "unlike", text: words.unlike(like.toFixed(2), most, limits.likeness.toFixed(2)) });
  }
  return found;
}

// In [0, 1]: the largest difference between a lightest and a darkest pixel, over channels.
function contrastOf(pixels, [channels, height, width]) {
  const size = height * width;
  return Math.max(
    ...Array.from({ length: channels }, (_, channel) => {
      const plane = pixels.subarray(channel * size, (channel + 1) * size);
      return (plane.reduce((a, b) => Math.max(a, b)) - plane.reduce((a, b) => Math.min(a, b))) / 255;
    }),
  );
}

// In [-1, 1]; 0 where one of them is of one tone.
function correlation(some, others) {
  const centred = (values) => {
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return Float64Array.from(values, (value) => (value - mean) / 255);
  };
  const [x, y] = [centred(some), centred(others)],
    product = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  return product(x, y) / Math.max(Math.sqrt(product(x, x) * product(y, y)), 1e-6);
}
