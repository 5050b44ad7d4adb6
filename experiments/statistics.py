"""Whether two networks differ by more than chance, from which of the same test images each has right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from graphcaps.errors import expect

Z = 1.959964  # 97.5 % of a normal distribution


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


def difference(right: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The difference of two mean accuracies, with a 95 % interval for other seeds and other images.

    Two things make it vary. Seeds: each network's mean has the standard error sd / sqrt(S), and the difference the
    width of Welch 1947, a t quantile with the degrees of freedom that few seeds leave. Images that are hard for one
    network alone, whatever its seed: their variance is that of the images' mean differences, less what seeds add to it
    by themselves. The two half-widths are combined as the root of the sum of their squares (Zou & Donner 2008), which
    keeps each at its own quantile.

    Simulated by ``coverage`` of tests/experiments/test_statistics.py in six cases of 1,000 draws each, 96.1 to 98.3 %
    of the intervals hold the truth for two seeds, 96.4 to 97.5 % for three, 95.5 to 97.2 % for five, 94.7 to 96.5 % for
    ten.

    Of one seed nothing is known of how seeds vary: the interval is then of these trained networks, over images alone.
    As one for other seeds it holds the truth in 44 to 94 % of the same draws.

    Args:
        right: (S, N) bool, which images each seed's network has right.
        other: (T, N) bool, of the network it is compared with, on the same images.

    Returns:
        difference (right - other), low, high, in [-1, 1].

    >>> ours, theirs = np.ones((3, 100), bool), np.zeros((3, 100), bool)
    >>> difference(ours, theirs)
    (1.0, 1.0, 1.0)
    """
    fits = right.ndim == other.ndim == 2 and right.shape[1] == other.shape[1]
    expect(fits and right.size > 0 and other.size > 0, "other", f"(T, N={right.shape[-1]})", other.shape)
    of_images = right.mean(axis=0) - other.mean(axis=0)  # (N,)
    images = float(of_images.var()) / of_images.size
    if min(len(right), len(other)) > 1:
        images -= sum(_by_chance(network) for network in (right, other))
    difference = float(right.mean() - other.mean())
    return _around(difference, right.mean(axis=1), other.mean(axis=1), max(images, 0.0))


def paired(ours: Sequence[float], theirs: Sequence[float], overlap: float = 0.0) -> tuple[float, float, float] | None:
    """The mean of paired differences, with a 95 % interval by Student's t.

    The parts that folds are trained on are mostly the same, so that their differences vary less from each other than
    from new data's. Nadeau & Bengio 2003 (Inference for the generalization error, Machine Learning 52) therefore put
    1 / n + ``overlap`` in the place of 1 / n, an approximation that no simulation here has checked.

    Args:
        ours, theirs: accuracies in [0, 1] of the same seeds, graphs or folds; those that only the longer has are left
            out.
        overlap: test items by training items of a fold; 0 for trainings that share nothing.

    Returns:
        difference (ours - theirs), low, high; None of fewer than two pairs.

    >>> [round(number, 3) for number in paired([0.75, 0.5, 0.5], [0.25, 0.25, 0.25])]
    [0.333, -0.025, 0.692]
    """
    difference = np.array([a - b for a, b in zip(ours, theirs, strict=False)])
    if len(difference) < 2:
        return None
    mean, freedom = float(difference.mean()), len(difference) - 1
    half = float(student.ppf(0.975, freedom) * (difference.var(ddof=1) * (1 / len(difference) + overlap)) ** 0.5)
    return mean, max(mean - half, -1.0), min(mean + half, 1.0)


def _by_chance(right: np.ndarray) -> float:
    """What the seeds of (S, N) add to the variance of the images' mean: their disagreement on an image, by S and N."""
    seeds, images = right.shape
    left = right - right.mean(axis=1, keepdims=True)
    return float(left.var(axis=0, ddof=1).mean()) / seeds / images


def _around(difference: float, ours: np.ndarray, theirs: np.ndarray, images: float) -> tuple[float, float, float]:
    """The interval around a difference, by the seeds' accuracies and the variance that images add."""
    seeds = 0.0
    if min(len(ours), len(theirs)) > 1:
        parts = np.array([each.var(ddof=1) / len(each) for each in (ours, theirs)])
        if parts.sum() > 0:
            freedom = parts.sum() ** 2 / (parts**2 / [len(ours) - 1, len(theirs) - 1]).sum()
            seeds = float(student.ppf(0.975, freedom) ** 2 * parts.sum())
    half = (seeds + Z**2 * images) ** 0.5
    return difference, max(difference - half, -1.0), min(difference + half, 1.0)
