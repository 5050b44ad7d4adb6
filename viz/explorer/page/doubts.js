// When an answer is doubtful, by the rules of graphcaps/images/models/answers.py.

// "blank", "short" if only the last of several objects is doubtful, "unlike" the images of training, or "", of pixels in 0 to
// 255, the longest lengths, descending, and the reconstruction.
export function doubtOf({ limits, objects, shape }, pixels, lengths, reconstruction) {
  if (contrastOf(pixels, shape) < limits.blank) return "blank";
  const short = limits.answer !== null && lengths[objects - 1] < limits.answer;
  if (short && lengths[objects - 2] >= limits.answer) return "short";
  const beyond = [
    short,
    limits.other !== null && lengths[objects] > limits.other,
    limits.likeness !== null && reconstruction && correlation(pixels, reconstruction) < limits.likeness,
  ];
  return beyond.some(Boolean) ? "unlike" : "";
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
