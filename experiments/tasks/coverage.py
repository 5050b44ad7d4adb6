"""How often the 95 % interval of ``statistics.difference`` holds the truth, simulated where the truth is known.

    python -m graphcaps.compare.coverage

Two networks that are equally good, with S seeds each, answer N images. An image is right where its difficulty lies
below the seed's skill. Of a difficulty's variance half is the image's own, a quarter the image's for that network, and
a quarter is drawn for each seed and image. The skills of a network's seeds are drawn so that its accuracy has the given
standard deviation.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from .statistics import difference

SEEDS = (1, 2, 3, 5, 10)
CASES = {  # mean accuracy, sd over the seeds of one network and of the other, images
    "99.5 %, sd 0.09 and 0.02 points": (0.995, 0.0009, 0.0002, 10_000),
    "99.5 %, sd 0.08 and 0.08 points": (0.995, 0.0008, 0.0008, 10_000),
    "99.5 %, seeds alike": (0.995, 0.0, 0.0, 10_000),
    "90 %, sd 2 and 2 points": (0.9, 0.02, 0.02, 2_000),
    "90 %, sd 2 and 0 points": (0.9, 0.02, 0.0, 2_000),
    "90 %, sd 0.2 and 0.2 points": (0.9, 0.002, 0.002, 2_000),
}
SHARED, OWN, CHANCE = 0.5, 0.25, 0.25


def coverage(seeds: int, accuracy: float, sd: float, other_sd: float, images: int, draws: int, seed: int = 0) -> float:
    """Share of the draws whose interval holds the true difference, 0.

    Args:
        seeds: S of each network, >= 1.
        accuracy: in (0, 1), both networks' mean where seeds are alike.
        sd, other_sd: of their accuracies over seeds.
        images: N.
        draws: how many comparisons.
        seed: of the draws.
    """
    random, skill, held = np.random.default_rng(seed), norm.ppf(accuracy), 0
    for _ in range(draws):
        shared = random.normal(scale=SHARED**0.5, size=images)
        right = []
        for spread in (sd, other_sd):
            hard = shared + random.normal(scale=OWN**0.5, size=images)
            of_seeds = skill + random.normal(scale=spread / norm.pdf(skill), size=(seeds, 1))
            right.append(hard + random.normal(scale=CHANCE**0.5, size=(seeds, images)) < of_seeds)
        _, low, high = difference(*right)
        held += low <= 0 <= high
    return held / draws


def main(draws: int = 1000) -> None:
    """Print a line per case, with the coverage of each number of seeds in percent."""
    print(f"{'seeds':<32}" + "".join(f"{seeds:>7}" for seeds in SEEDS))
    for name, (accuracy, sd, other_sd, images) in CASES.items():
        held = (coverage(seeds, accuracy, sd, other_sd, images, draws) for seeds in SEEDS)
        print(f"{name:<32}" + "".join(f"{100 * share:>7.1f}" for share in held), flush=True)


if __name__ == "__main__":
    main()
