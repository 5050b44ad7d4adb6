"""A small citation data set: papers of a class share a word and cite each other."""

from __future__ import annotations

import numpy as np

from experiments.data.cora import CitationSpec

SPEC = CitationSpec(nodes=60, words=100, classes=3, edges=90, train=9, val=12, test=15)


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays of cora.npz for ``SPEC``."""
    draw = np.random.RandomState(seed)
    labels = np.arange(SPEC.nodes) % SPEC.classes
    words = [np.sort([4 * k, *draw.choice(np.setdiff1d(range(SPEC.words), [4 * k]), 2, replace=False)]) for k in labels]
    pairs = [(i, j) for i in range(SPEC.nodes) for j in range(i) if labels[i] == labels[j]]
    edges = np.sort([pairs[k] for k in draw.choice(len(pairs), SPEC.edges, replace=False)], axis=1)
    return {
        "feature_indptr": np.arange(0, 3 * SPEC.nodes + 1, 3).astype(np.int32),
        "feature_indices": np.concatenate(words).astype(np.int32),
        "labels": labels,
        "edges": edges,
        "train": np.arange(SPEC.train),
        "val": np.arange(SPEC.train, SPEC.train + SPEC.val),
        "test": np.arange(SPEC.nodes - SPEC.test, SPEC.nodes),
    }
