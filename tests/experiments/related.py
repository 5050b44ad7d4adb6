"""Small archives of graphs with kinds of edges, under the names of the real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

KINDS = ("binding", "cleavage", "proximity")


def human_go(seed: int = 0) -> dict[str, np.ndarray]:
    """60 proteins; those with the same of three labels touch, by the kind of that number."""
    draw = np.random.RandomState(seed)
    group = np.arange(60) % 3
    edges = draw.randint(0, 60, (2, 900))
    edges = edges[:, group[edges[0]] == group[edges[1]]]
    confidence = np.eye(3)[group[edges[0]]].astype(np.float16) / 2
    features = draw.standard_normal((60, 5)).astype(np.float16)
    labels = np.eye(3, dtype=np.uint8)[group]
    return {"edges": edges, "kinds": np.array(KINDS), "confidence": confidence, "labels": labels, "features": features}


def umls(seed: int = 0) -> dict[str, np.ndarray]:
    """40 concepts and two relations, which hold within the even and within the odd ones."""
    draw = np.random.RandomState(seed)
    heads, tails = draw.randint(0, 20, (2, 160)) * 2
    odd = draw.randint(0, 2, 160)
    triples = np.stack([heads + odd, odd, tails + odd], axis=1).astype(np.int16)
    parts = dict(zip(("train", "valid", "test"), np.split(triples, [80, 120]), strict=True))
    return {"entities": np.arange(40).astype(str), "relations": np.array(["even", "odd"]), **parts}


def factors(size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """96 nodes with a class of each factor, joined where a factor's classes are the same."""
    draw = np.random.RandomState(seed)
    labels = np.stack([draw.permutation(96) % 16 for _ in range(size)], axis=1)
    low, high = np.triu_indices(96, 1)
    same = (labels[low] == labels[high]).any(axis=1)
    edges = np.stack([low[same], high[same]])
    split = dict(zip(("train", "val", "test"), np.split(draw.permutation(96), [60, 78]), strict=True))
    return {"edges": edges, "labels": labels + 16 * np.arange(size), **split}


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    np.savez(folder / "humango.npz", **human_go())
    np.savez(folder / "umls.npz", **umls())
    for size in (4, 8, 12):
        np.savez(folder / f"factors-{size}.npz", **factors(size))
