"""Statistics: do two networks differ by more than chance?"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, sem
from scipy.stats import t as student

from graphcaps.errors import expect


def difference(right: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The difference of two mean accuracies, with a 95 % interval for other seeds and other images.

    Two half-widths are combined as the root of the sum of their squares (Zou & Donner 2008). For seeds, it is Welch's
    (1947), by Student's t. For images, it is that of a normal distribution whose variance is that of the images' mean
    differences, minus the part that comes from the seeds. In simulations (``coverage`` in
    tests/experiments/test_statistics.py), 95 to 98 % of the intervals contain the true difference.

    With one seed, the interval is about other images for these two trained networks, not about other seeds.

    ``right`` (S, N) bool tells whether the network of each of S seeds is right on each image; ``other`` (T, N) is the
    same for the other network. Returns the difference (right - other), low and high, in [-1, 1].

    >>> ours, theirs = np.ones((3, 100), bool), np.zeros((3, 100), bool)
    >>> difference(ours, theirs)
    (1.0, 1.0, 1.0)
    """
    fits = right.ndim == other.ndim == 2 and right.shape[1] == other.shape[1]
    expect(fits and right.size > 0 and other.size > 0, "other", f"(T, N={right.shape[-1]})", other.shape)
    gaps = right.mean(axis=0) - other.mean(axis=0)  # (N,)
    images, squared = float(gaps.var()) / gaps.size, 0.0
    if min(len(right), len(other)) > 1:
        # Subtract the part that comes from the seeds: their variance on an image, divided by S and by N.
        images -= sum(answers.var(axis=0, ddof=1).mean() / answers.size for answers in (right, other))
        parts = np.array([answers.mean(axis=1).var(ddof=1) / len(answers) for answers in (right, other)])
        if parts.sum() > 0:
            freedom = parts.sum() ** 2 / (parts**2 / [len(right) - 1, len(other) - 1]).sum()
            squared = float(student.ppf(0.975, freedom) ** 2 * parts.sum())
    return _clipped(float(right.mean() - other.mean()), float(squared + norm.ppf(0.975) ** 2 * max(images, 0.0)) ** 0.5)


def paired(ours: Sequence[float], theirs: Sequence[float], overlap: float = 0.0) -> tuple[float, float, float] | None:
    """The mean of paired differences, with a 95 % interval by Student's t.

    Folds share most of their training items, so their differences vary less than those of independent data sets. For
    folds, Nadeau & Bengio 2003 (Inference for the generalization error, Machine Learning 52) replace 1 / n in the
    variance by 1 / n + ``overlap``. This is an approximation, which was not tested here.

    Args:
        ours, theirs: accuracies in [0, 1] for the same seeds, graphs or folds; the end of the longer one is ignored.
        overlap: a fold's number of test items divided by its number of training items; 0 without folds.

    Returns the difference (ours - theirs), low and high; None for fewer than two pairs.

    >>> [round(number, 3) for number in paired([0.75, 0.5, 0.5], [0.25, 0.25, 0.25])]
    [0.333, -0.025, 0.692]
    """
    count = min(len(ours), len(theirs))
    if count < 2:
        return None
    gaps = np.subtract(ours[:count], theirs[:count])
    half = student.ppf(0.975, count - 1) * sem(gaps) * (1 + count * overlap) ** 0.5
    return _clipped(float(gaps.mean()), float(half))


def _clipped(middle: float, half: float) -> tuple[float, float, float]:
    return middle, max(middle - half, -1.0), min(middle + half, 1.0)
