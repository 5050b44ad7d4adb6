"""A small citation data set: papers of a class share a word and cite each other."""

from __future__ import annotations

import numpy as np

NODES, WORDS, CLASSES, EDGES = 60, 100, 3, 90


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays of such a cora.npz."""
    draw = np.random.RandomState(seed)
    labels = np.arange(NODES) % CLASSES
    words = [np.sort([4 * k, *draw.choice(np.setdiff1d(range(WORDS), [4 * k]), 2, replace=False)]) for k in labels]
    pairs = [(i, j) for i in range(NODES) for j in range(i) if labels[i] == labels[j]]
    edges = np.sort([pairs[k] for k in draw.choice(len(pairs), EDGES, replace=False)], axis=1)
    return {
        "feature_indptr": np.arange(0, 3 * NODES + 1, 3).astype(np.int32),
        "feature_indices": np.concatenate(words).astype(np.int32),
        "labels": labels,
        "edges": edges,
        "train": np.arange(9),
        "val": np.arange(9, 21),
        "test": np.arange(NODES - 15, NODES),
    }
