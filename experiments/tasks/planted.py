"""Graphs with wrong edges: how well are classes found, and which scores tell the wrong edges from the true ones?

30 % of the nodes' classes are known. Wrong edges join random nodes, or nodes drawn by their degrees, so that their
degrees grow in proportion. Networks are those of the task ``known``, with two layers. GCN-Jaccard (Wu et al. 2019,
arXiv 1903.01610) is a GCN without the edges whose ends have a Jaccard similarity below 0.01, as in that paper. Jaccard
similarities are those of words, or of neighbours if there are no words.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from experiments import table
from experiments.data.related import Related, joined
from experiments.data.relations import components
from experiments.run import Place
from experiments.task import Task
from experiments.tasks import known
from graphcaps import read_graph, smooth

DATA = ("Cora", "Citeseer", "ACM", "DBLP", "email-Eu", "Chameleon", "Cornell", "Texas", "Wisconsin")
SHARE, LEAST = 0.3, 0.01
PLANTED = ((0.0, False), *((share, by_degree) for by_degree in (False, True) for share in (0.3, 1.0, 2.0)))
NETWORKS, DEPTHS, EPOCHS = ("APPNP", "GCN", "GAT"), (2,), 200
CLASSICAL = ("label propagation, Zhou", "label propagation, harmonic", "compatible label propagation")


def with_wrong_edges(data: Related, share: float, by_degree: bool, seed: int) -> Related:
    """Add a share of the number of edges. The only kind of edges is then whether an edge was added.

    Without words, features are singular vectors of the adjacency matrix with the wrong edges.
    """
    draw, nodes = np.random.RandomState(seed), data.graph.num_nodes()
    pairs = torch.stack(data.graph.edges()).numpy()[:, : data.graph.num_edges() // 2]
    there, wanted, added = {*map(tuple, np.sort(pairs, 0).T.tolist())}, round(share * pairs.shape[1]), []
    while len(added) < wanted:
        u, v = draw.choice(pairs.ravel(), 2) if by_degree else draw.randint(nodes, size=2)
        pair = min(u, v), max(u, v)
        if u != v and pair not in there:
            there.add(pair)
            added.append(pair)
    ends = np.concatenate([pairs, np.array(added, dtype=np.int64).reshape(-1, 2).T], axis=1)
    graph, kinds = joined(ends, nodes, np.arange(ends.shape[1])[:, None] >= pairs.shape[1])
    bare = not data.features.shape[1]
    features = components(graph.adj_external(scipy_fmt="csr"), seed) if bare else data.features
    return replace(data, graph=graph, kinds=kinds, features=features)


def jaccard(data: Related) -> Tensor:
    """The similarity (E,) of the ends of each edge: the number of words of both over the number of words of either.

    Without words, each neighbour is one.
    """
    rows = data.graph.adj_external(scipy_fmt="csr") if data.words is None else data.words
    rows, (src, dst) = (sparse.csr_array(rows) != 0).astype(np.float32), (ends.numpy() for ends in data.graph.edges())
    size, both = rows.sum(1), rows[src].multiply(rows[dst]).sum(1)
    return torch.from_numpy(both / (size[src] + size[dst] - both).clip(1))


def regression(data: Related, labels: Tensor) -> Tensor:
    """Logarithms (N, 1, C) of probabilities by logistic regression on features."""
    x, classes = F.pad(data.features, (0, 1), value=1.0), labels[:, 0]
    model = LogisticRegression(max_iter=1000).fit(x[classes >= 0], classes[classes >= 0])
    p = torch.full((len(x), data.num_classes), 1e-9).double()
    p[:, model.classes_] = torch.from_numpy(model.predict_proba(x)).clamp_min(1e-9)
    return (p / p.sum(1, keepdim=True)).log().float().unsqueeze(1)


@torch.no_grad()
def attention(model: known.Masked, labels: Tensor) -> Tensor:
    """The mean attention (E,) of an edge over layers and heads of a GAT."""
    calls: list[tuple] = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda *call: calls.append(call))
    model(labels)
    shares = [layer(*inputs, get_attention=True)[1].flatten(1).mean(1) for layer, inputs in tuple(calls)]
    return torch.stack(shares).mean(0)[: model.graph.num_edges() - model.graph.num_nodes()]  # self-loops come last


def fit(
    place: Place, network: str, settings: dict, seed: int, quick: bool, data: str, planted: float, by_degree: bool
) -> dict:
    """The accuracies of all methods, and areas under the curve by which scores tell wrong edges from true ones.

    The seed draws the wrong edges and the known nodes.
    """
    related = with_wrong_edges(known.DATA[data](place.data, seed), planted, by_degree, seed)
    graph, wrong, labels = related.graph, related.kinds[:, 0], known.partly_known(related.labels, SHARE, seed)
    torch.manual_seed(seed)
    epochs = 2 if quick else EPOCHS
    log_p, similarity = regression(related, labels), jaccard(related)
    smoothed = smooth(read_graph(graph), log_p, labels)
    models = {name: known.trained(name, related, labels, DEPTHS, epochs) for name in NETWORKS}
    pruned = replace(related, graph=graph.edge_subgraph(similarity >= LEAST, relabel_nodes=False))
    answers = {
        "smooth": smoothed.p,
        "regression": log_p,
        **{name: model(labels) for name, model in models.items()},
        "GCN-Jaccard": known.trained("GCN", pruned, labels, DEPTHS, epochs)(labels),
    }
    classes = {name: scores.argmax(2) for name, scores in answers.items()}
    classes["Correct and Smooth"] = known.correct_and_smooth(related, labels, regression)
    classes |= {name: known.by_edges(name, related, labels) for name in CLASSICAL}
    hidden = labels[:, 0] < 0
    accuracy = {name: float((found == related.labels)[hidden].double().mean()) for name, found in classes.items()}
    if not planted:
        return {"accuracy": accuracy}
    p, (src, dst), shares = F.normalize(log_p[:, 0].exp()), graph.edges(), attention(models["GAT"], labels)
    relative = shares * graph.in_degrees()[dst]  # 1 where a node attends to all equally
    scores = {
        "unexplained": smoothed.unexplained,
        "Jaccard": -similarity,
        "cosine": -(p[src] * p[dst]).sum(1),
        "attention": -shares - shares.roll(len(shares) // 2),
        "attention times degree": -relative - relative.roll(len(shares) // 2),
    }
    return {"accuracy": accuracy, "AUC": {name: float(roc_auc_score(wrong, score)) for name, score in scores.items()}}


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    """Accuracies, and the difference of smooth to the best other method, with an interval for overlapping choices."""
    for row in rows:
        wrong, accuracy = f"{row['planted']:.0%}" + ", by degree" * row["by_degree"], row["accuracy"]
        best = max((name for name in accuracy if name != "smooth"), key=lambda name: accuracy[name]["mean"])
        gap = table.lead(accuracy["smooth"]["each"], accuracy[best]["each"], (1 - SHARE) / SHARE)
        texts = {name: table.percent(part["mean"], part["sd"]) for name, part in accuracy.items()}
        scores = {f"AUC, {name}": table.score(part) for name, part in row.get("AUC", {}).items()}
        yield {"graph": row["data"], "wrong": wrong, **texts, "smooth - best": f"{best}: {gap}", **scores}


TASK = Task(
    "planted",
    fit,
    lambda **case: {"all": [{}]},
    cases=[{"data": data, "planted": share, "by_degree": by_degree} for data in DATA for share, by_degree in PLANTED],
    seeds=lambda case, network: 3 if case["planted"] in (0.0, 1.0) else 1,
    cells=cells,
    index=2,
)
