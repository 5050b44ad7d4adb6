"""Whether two networks differ by more than chance, from which of the same test images each has right."""

from __future__ import annotations

import numpy as np
from scipy.stats import binomtest

from ..errors import expect

DRAWS = 10_000


def mcnemar(right: np.ndarray, other: np.ndarray) -> float:
    """Exact McNemar test (McNemar 1947): the two-sided p of the images that only one of two networks has right.

    Under the null hypothesis each such image is either's with probability 1/2. It holds for these two networks, not
    for other seeds of theirs.

    Args:
        right, other: (N,) bool, the same images.

    Returns:
        p in (0, 1]; 1 where the two don't differ on any image.

    >>> mcnemar(np.array([True] * 8 + [False]), np.array([False] * 8 + [True]))
    0.0390625
    """
    expect(right.shape == other.shape and right.ndim == 1, "other", f"as many images, {right.shape}", other.shape)
    ours, theirs = int((right & ~other).sum()), int((other & ~right).sum())
    return float(binomtest(ours, ours + theirs).pvalue) if ours + theirs else 1.0


def bootstrap(right: np.ndarray, other: np.ndarray, draws: int = DRAWS, seed: int = 0) -> tuple[float, float, float]:
    """The difference of two mean accuracies, with its 95 % interval from a paired bootstrap over images and seeds.

    Each draw takes N images with replacement, the same for both networks, and S of each network's seeds with
    replacement, whose deviation is made sqrt(S / (S - 1)) times as large, since the draws of S numbers vary less than
    what they are from. Of three seeds the spread is known only roughly; in simulations of three
    seeds against three, of equally good networks, 94 to 99 % of the intervals held 0.

    Args:
        right: (S, N) bool, which images each seed's network has right.
        other: (T, N) bool, of the network it is held against, on the same images.
        draws: how often.
        seed: of the draws.

    Returns:
        difference (right - other), low, high, in [-1, 1].

    >>> ours, theirs = np.ones((3, 100), bool), np.zeros((3, 100), bool)
    >>> bootstrap(ours, theirs)
    (1.0, 1.0, 1.0)
    """
    fits = right.ndim == other.ndim == 2 and right.shape[1] == other.shape[1]
    expect(fits and right.size > 0 and other.size > 0, "other", f"(T, N={right.shape[-1]})", other.shape)
    random, number = np.random.default_rng(seed), right.shape[1]
    # Images that the same networks have right are alike: what is drawn is how many there are of each kind.
    kinds, times = np.unique(np.concatenate([right, other]), axis=1, return_counts=True)  # (S + T, K), (K,)
    accuracy = random.multinomial(number, times / number, size=draws) @ kinds.T / number  # (draws, S + T)
    ours, theirs = (_of_seeds(part, random) for part in (accuracy[:, : len(right)], accuracy[:, len(right) :]))
    low, high = np.quantile(ours - theirs, [0.025, 0.975])
    return float(right.mean() - other.mean()), float(low), float(high)


def _of_seeds(accuracy: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Means (draws,) over seeds drawn anew in each row of (draws, S)."""
    seeds = accuracy.shape[1]
    drawn = np.take_along_axis(accuracy, random.integers(seeds, size=accuracy.shape), axis=1).mean(axis=1)
    mean = accuracy.mean(axis=1)
    return mean + (drawn - mean) * (seeds / max(seeds - 1, 1)) ** 0.5
