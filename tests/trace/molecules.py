"""A made-up molecule for tests: a ring of six with a chain, whose nodes settle from seeded random logits."""

from __future__ import annotations

import numpy as np

from graphcaps import RoutingTrace

RING = [(k, (k + 1) % 6) for k in range(6)]
BONDS = [*RING, (0, 6), (6, 7), (6, 8)]
TAGS = [0, 0, 0, 0, 0, 0, 1, 2, 2]
NAMES = ("C", "N", "O")


def couplings(iterations=4, nodes=9, classes=2, speed=0.6, seed=0):
    """(R, I, J) float64: uniform at first, then the softmax of growing logits."""
    logits = np.random.default_rng(seed).normal(size=(nodes, classes))
    weight = np.exp(speed * np.arange(iterations)[:, None, None] * logits)
    return weight / weight.sum(axis=2, keepdims=True)


def make_trace(c=None, bonds=BONDS, tags=TAGS, tag_names=NAMES, label=1, **fields):
    """One graph whose nodes have the couplings c (R, I, J)."""
    c = couplings() if c is None else c
    iterations, nodes, classes = c.shape
    lengths = np.random.default_rng(1).uniform(0.05, 0.95, (1, iterations, 1, classes)).astype(np.float32)
    by_edge = c.reshape(1, iterations, 1, -1).astype(np.float16)
    made = {
        "src": np.repeat(np.arange(nodes, dtype=np.int32), classes),
        "dst": np.tile(np.arange(classes, dtype=np.int32), nodes),
        "num_children": nodes,
        "num_parents": classes,
        "epochs": np.zeros(1, np.int32),
        **dict.fromkeys(("b", "c", "agreement"), by_edge),
        "lengths": lengths,
        "labels": None if label is None else np.array([label]),
        "class_names": ("safe", "mutagenic"),
        "trained_iterations": 3,
        "about": {"dataset": "made up", "graph": 0},
    }
    return RoutingTrace(**{**made, **fields}).with_bonds(bonds, tags, tag_names)
