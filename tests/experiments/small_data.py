"""Small graphs in files with the names and formats of the real ones."""

from pathlib import Path

import numpy as np

GRAPHS, KINDS = 64, ("binding", "cleavage", "proximity")


def write(folder: Path) -> Path:
    """Write a small Cora, MUTAG, ml-100k and graphs with kinds of edges; return the folder."""
    for name in ("cora", "graphs", "ml-100k"):
        (folder / name).mkdir(parents=True)
    np.savez(folder / "cora" / "cora.npz", **cora())
    write_rings(folder / "tu" / "MUTAG")
    np.savez(folder / "graphs" / "humango.npz", **human_go())
    np.savez(folder / "graphs" / "umls.npz", **umls())
    (folder / "ml-100k" / "ml-100k.inter").write_text(films())
    np.savez(folder / "graphs" / "factors-4.npz", **factors(4))
    return folder


def cora() -> dict[str, np.ndarray]:
    """60 papers. Papers of the same class share a word and cite each other."""
    draw, labels = np.random.RandomState(0), np.arange(60) % 3
    words = [np.sort([4 * k, *draw.choice(np.setdiff1d(range(100), [4 * k]), 2, replace=False)]) for k in labels]
    pairs = [(i, j) for i in range(60) for j in range(i) if labels[i] == labels[j]]
    split = {"train": np.arange(9), "val": np.arange(9, 21), "test": np.arange(45, 60)}
    return {
        "feature_indptr": np.arange(0, 181, 3),
        "feature_indices": np.concatenate(words),
        "labels": labels,
        "edges": np.sort([pairs[k] for k in draw.choice(len(pairs), 90, replace=False)], axis=1),
        **split,
    }


def ring(number: int) -> tuple[int, list[tuple[int, list[int]]]]:
    """A ring of 4 to 6 nodes with a tail whose tag is the class: label, and each node's tag and neighbours."""
    size, label = 4 + number % 3, 2 * (number % 3 == 0)
    nodes = [(1, [(k - 1) % size, (k + 1) % size]) for k in range(size)]
    nodes[0][1].append(size)
    return label, [*nodes, (5 if label else 3, [0])]


def write_rings(folder: Path) -> None:
    """Write MUTAG.txt, with attributes after the neighbours, and ten folds of 6 graphs; 4 graphs are in no fold."""
    lines = [str(GRAPHS)]
    for label, nodes in map(ring, range(GRAPHS)):
        lines.append(f"{len(nodes)} {label}")
        lines += [" ".join(map(str, (tag, len(others), *others, 0.5, "-1e3", 7))) for tag, others in nodes]
    folder.mkdir(parents=True)
    (folder / "MUTAG.txt").write_text("\n".join(lines) + "\n")
    order = np.random.RandomState(0).permutation(GRAPHS)
    for k in range(10):
        np.savetxt(folder / f"test_idx-{k + 1}.txt", order[6 * k : 6 * k + 6], fmt="%d")


def human_go() -> dict[str, np.ndarray]:
    """60 proteins with one of three labels. Edges join proteins with the same label, which is the kind of the edge."""
    draw, group = np.random.RandomState(0), np.arange(60) % 3
    edges = draw.randint(0, 60, (2, 900))
    edges = edges[:, group[edges[0]] == group[edges[1]]]
    confidence = np.eye(3)[group[edges[0]]].astype(np.float16) / 2
    features, labels = draw.standard_normal((60, 5)).astype(np.float16), np.eye(3, dtype=np.uint8)[group]
    return {"edges": edges, "kinds": np.array(KINDS), "confidence": confidence, "labels": labels, "features": features}


def umls() -> dict[str, np.ndarray]:
    """40 concepts and two relations: one among the even concepts, one among the odd."""
    draw = np.random.RandomState(0)
    heads, tails = draw.randint(0, 20, (2, 160)) * 2
    odd = draw.randint(0, 2, 160)
    triples = np.stack([heads + odd, odd, tails + odd], axis=1).astype(np.int16)
    parts = dict(zip(("train", "valid", "test"), np.split(triples, [80, 120]), strict=True))
    return {"entities": np.arange(40).astype(str), "relations": np.array(["even", "odd"]), **parts}


def factors(size: int) -> dict[str, np.ndarray]:
    """96 nodes with a class for each factor. Two nodes are joined if they share the class of a factor."""
    draw = np.random.RandomState(0)
    labels = np.stack([draw.permutation(96) % 16 for _ in range(size)], axis=1)
    low, high = np.triu_indices(96, 1)
    same = (labels[low] == labels[high]).any(axis=1)
    split = dict(zip(("train", "val", "test"), np.split(draw.permutation(96), [60, 78]), strict=True))
    return {"edges": np.stack([low[same], high[same]]), "labels": labels + 16 * np.arange(size), **split}


def films() -> str:
    """40 users who have each rated 20 to 40 of 80 films, in any order of lines."""
    draw = np.random.RandomState(0)
    lines = [
        (user, film, 880 + n) for user in range(1, 41) for n, film in enumerate(draw.permutation(80)[: 20 + user // 2])
    ]
    text = [f"{user}\t{film + 1}\t3\t{time}" for user, film, time in draw.permutation(lines)]
    return "\n".join(["user_id:token\titem_id:token\trating:float\ttimestamp:float", *text]) + "\n"
