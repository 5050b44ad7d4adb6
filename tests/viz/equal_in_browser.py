"""Whether the network in the explorer's page says what PyTorch says of all test images of a run's data set.

``python tests/viz/equal_in_browser.py RUN [DATA [COUNT]]`` prints how many classes are the same, how far lengths and
couplings are apart after the trained iterations, and how many milliseconds routing takes in Chromium; of all test
images, or of so many from the first one on.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from browser import browser, page_that_computes

from graphcaps.data import load_images, to_float
from graphcaps.explore.network import network_data
from graphcaps.progress import bar
from graphcaps.trace.recording import routing_of
from graphcaps.training.run_folder import Run, load

BATCH = 50
LOAD = "(found) => { window.network = new Network(asBytes(found)); }"
ASK = """(batch) => batch.map((pixels) => {
  const { last } = network, started = performance.now();
  const u_hat = network.votes(pixels), { c, v, lengths } = last.route(u_hat).at(-1);
  const longest = lengths.indexOf(Math.max(...lengths));
  if (network.decoder) network.decode(longest, v.slice(longest * last.dim, (longest + 1) * last.dim));
  return { lengths: [...lengths], c: [...c], milliseconds: performance.now() - started };
})"""


def main(run: str, data: str | None = None, count: str | None = None) -> None:
    chosen = Run.open(run)
    model, test = load(chosen), load_images(chosen.config.dataset, Path(data or chosen.config.data)).test
    same, lengths, couplings, times = 0, 0.0, 0.0, []
    with browser() as chromium, bar("test images") as on_share:
        page = page_that_computes(chromium)
        page.evaluate(LOAD, network_data(model))
        asked = test.pixels[: int(count) if count else None]
        for at, pixels in enumerate(asked.split(BATCH)):
            with torch.no_grad():
                routed = routing_of(model, to_float(pixels))
            last = model.capsules.routing.iterations - 1
            wanted = {"lengths": routed.lengths[0, last], "c": routed.c[0, last]}
            for n, got in enumerate(page.evaluate(ASK, [image.flatten().tolist() for image in pixels])):
                same += int(np.argmax(got["lengths"])) == int(wanted["lengths"][n].argmax())
                lengths = max(lengths, np.abs(got["lengths"] - wanted["lengths"][n]).max())
                couplings = max(couplings, np.abs(got["c"] - wanted["c"][n].astype(float)).max())
                times.append(got["milliseconds"])
            on_share(min(1.0, (at + 1) * BATCH / len(asked)))
    print(f"{chosen}: {chosen.config.model}, {chosen.config.routing}")
    print(f"the same class for {same} of {len(times)} test images")
    print(f"lengths differ by at most {lengths:.1e}, couplings by at most {couplings:.1e}")
    print(f"routed and decoded in {statistics.median(times):.0f} ms (median), {min(times):.0f} ms (fastest)")


if __name__ == "__main__":
    main(*sys.argv[1:])
