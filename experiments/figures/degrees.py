"""Whether routing depends on how many neighbours a node has: coupling entropy by in-degree."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator
from scipy.stats import spearmanr

from graphcaps.viz import style

_LEAST = 0.01  # nats on the axis at least: less is noise
_FEW = 5  # nodes, from which a mean is drawn


def entropy_by_degree(found: dict) -> Figure:
    """Draw how undecided the in-edges of each node are, by how many it has.

    A point is a node: the mean entropy of its in-edges' couplings. The dashed line is where all couplings are equal.
    Where routing depended on degree alone, all nodes of a degree would stand at one height. The share of the nodes'
    variance that lies between degrees, eta^2, is 1 then, and 0 where a degree says nothing.

    Args:
        found: ``picture`` of the result of cora: ``degree`` (N,), in-edges of each node, >= 1; ``entropy`` (N,) in
            nats, at most ln K; ``capsules``, K; ``layer`` and ``seed``.

    Returns:
        A figure without a window, with one pair of axes.
    """
    degree, entropy = np.asarray(found["degree"]), np.asarray(found["entropy"], dtype=float)
    undecided = float(np.log(found["capsules"]))
    with style.applied():
        figure, heading, axes = style.chart(style.SCREEN)
        _draw(axes, degree, entropy, undecided, found["capsules"])
        style.legend(axes, style.SCREEN)
        heading.say(
            "Coupling entropy by degree",
            f"layer {found['layer']}, seed {found['seed']}, {len(degree):,} nodes",
            f"Spearman's rho {spearmanr(degree, entropy).statistic:.2f},  eta² {between_degrees(degree, entropy):.2f}",
        )
    return figure


def between_degrees(degree: np.ndarray, entropy: np.ndarray) -> float:
    """eta^2 in [0, 1], the share of the variance that the nodes' degree explains, in whatever way; 0 without variance.

    >>> between_degrees(np.array([1, 1, 2, 2]), np.array([0.0, 0.2, 1.0, 1.2]))
    0.961538461538
    """
    _, of = np.unique(degree, return_inverse=True)
    counts = np.bincount(of)
    means = np.bincount(of, entropy) / counts
    total = float(((entropy - entropy.mean()) ** 2).sum())
    return round(float(counts @ (means - entropy.mean()) ** 2) / total, 12) if total > 1e-20 else 0.0


def binned(degree: np.ndarray, entropy: np.ndarray) -> np.ndarray:
    """(M, 4): mean degree, mean entropy and its standard deviation, number of nodes; a bin per power of the root of 2.

    >>> binned(np.array([1, 1, 2, 8]), np.array([0.1, 0.3, 0.5, 0.7])).round(3).tolist()
    [[1.0, 0.2, 0.1, 2.0], [2.0, 0.5, 0.0, 1.0], [8.0, 0.7, 0.0, 1.0]]
    """
    place = np.round(2 * np.log2(degree)).astype(int)
    rows = [(degree[place == k], entropy[place == k]) for k in np.unique(place)]
    return np.array([(d.mean(), h.mean(), h.std(), len(d)) for d, h in rows])


def _draw(axes: Axes, degree: np.ndarray, entropy: np.ndarray, undecided: float, capsules: int) -> None:
    label = f"undecided: ln {capsules} = {undecided:.3f}"
    axes.axhline(undecided, label=label, color=style.INK, lw=1.1, ls=(0, (4, 3)))
    # Many nodes have the same few degrees: each is moved by less than half of the way to the next, always the same.
    shift = np.random.default_rng(0).uniform(-0.3, 0.3, len(degree))
    axes.scatter(degree + shift, entropy, s=7, color=style.MUTED, alpha=0.35, lw=0, label="node")
    bins = binned(degree, entropy)
    x, means, spreads, _ = bins[bins[:, 3] >= _FEW].T
    axes.fill_between(x, means - spreads, np.minimum(means + spreads, undecided), color=style.ACCENT, alpha=0.22, lw=0)
    axes.plot(x, means, "o-", color=style.ACCENT, lw=2.2, ms=5, label="mean ± 1 sd")
    axes.set_xscale("log")
    powers = 2 ** np.arange(int(np.ceil(np.log2(degree.max() + 1))) + 1)
    axes.set_xticks(powers, [str(power) for power in powers])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.8 * degree.min(), 1.2 * degree.max())
    low = min(float(entropy.min()), undecided - _LEAST)
    axes.set_ylim(low - 0.04 * (undecided - low), undecided + 0.06 * (undecided - low))
    axes.set(xlabel="in-edges of the node", ylabel="mean entropy of its in-edges (nat)")
