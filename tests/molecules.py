"""A made-up molecule for tests: a ring of six with a chain, whose nodes settle from seeded random logits."""

from __future__ import annotations

import numpy as np

from graphcaps.trace.graph_trace import GraphTrace

RING = [(k, (k + 1) % 6) for k in range(6)]
BONDS = [*RING, (0, 6), (6, 7), (6, 8)]
TAGS = [0, 0, 0, 0, 0, 0, 1, 2, 2]
NAMES = ("C", "N", "O")


def couplings(iterations=4, nodes=9, classes=2, speed=0.6, seed=0):
    """(R, N, C) float64: uniform at first, then the softmax of growing logits."""
    logits = np.random.default_rng(seed).normal(size=(nodes, classes))
    weight = np.exp(speed * np.arange(iterations)[:, None, None] * logits)
    return weight / weight.sum(axis=2, keepdims=True)


def molecule(**fields):
    """The arguments of ``TracedGraph.of``."""
    c = fields.pop("c", couplings())
    lengths = np.random.default_rng(1).uniform(0.05, 0.95, np.shape(c)[::2])
    return {"tags": TAGS, "bonds": BONDS, "c": c, "lengths": lengths, "label": 1, **fields}


def make_trace(*graphs, **fields):
    options = {"tag_names": NAMES, "trained_iterations": 3, "about": {"dataset": "made up"}, **fields}
    return GraphTrace.of(list(graphs) or [molecule()], options.pop("class_names", ("safe", "mutagenic")), **options)
