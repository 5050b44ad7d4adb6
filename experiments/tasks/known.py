"""Graphs with latent factors, some of whose nodes have known classes: how many others are found, without any training?

All methods get the edges and the classes of the known nodes. ``BeliefConv`` and belief propagation count their rates on
the known nodes; they don't get the generator's. The strength of label propagation is chosen on a fifth of the known
nodes, whose classes are hidden for this. Scores are micro-F1 on all nodes that aren't known.
"""

from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments import run
from experiments.data.beliefs import beliefs
from experiments.data.relations import Related, drawn_factors
from experiments.run import Place
from experiments.tasks.relations import DATA as RELATIONS
from graphcaps.nn import BeliefConv
from graphcaps.nn.edge_rates import counted_rates

DATA = {name: RELATIONS[name] for name in RELATIONS if "published" in name}
DATA |= {f"{k} factors, drawn": lambda root, seed, k=k: drawn_factors(seed, k) for k in (6, 8, 10)}
SHARES, SEEDS, STRENGTHS, ROUNDS = (0.1, 0.3, 0.6), 5, (0.25, 0.5, 1.0, 2.0), 30


def by_layer(data: Related, labels: Tensor, messages: bool = True) -> Tensor:
    """Classes (N, K) by ``BeliefConv.from_labels``, untrained. ``messages``: see ``BeliefConv``."""
    layer = BeliefConv.from_labels(data.graph, labels)
    layer.beliefs.messages = messages
    with torch.no_grad():
        return layer(data.graph, labels).argmax(2)


def by_propagation(data: Related, labels: Tensor) -> Tensor:
    """Classes (N, K) by belief propagation with counted rates."""
    known = (labels[:, 0] >= 0).nonzero().flatten()
    return beliefs(data, known, counted_rates(data.graph, labels, degree_corrected=False)).classes.argmax(2)


def by_neighbours(data: Related, labels: Tensor) -> Tensor:
    """Classes (N, K) by label propagation.

    In a round, a node takes the softmax of strength times the sum over its neighbours, less what a node with neighbours
    drawn at random would get.
    """
    known = labels[:, 0] >= 0
    chosen = known.nonzero().flatten()
    hidden = chosen[torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0))[: len(chosen) // 5]]
    (src, dst), classes = data.graph.edges(), int(data.labels.max()) + 1

    def spread(given: Tensor, strength: float) -> Tensor:
        truth = F.one_hot(labels.clamp_min(0), classes).float()
        h = torch.where(given[:, None, None], truth, 1 / classes)
        for _ in range(ROUNDS):
            total = torch.zeros_like(h).index_add(0, dst, h[src]) - len(src) / len(h) * h.mean(0)
            h = torch.where(given[:, None, None], truth, (strength * total).softmax(2))
        return h.argmax(2)

    trial = known.index_fill(0, hidden, False)
    right = [(spread(trial, strength) == labels)[hidden].float().mean() for strength in STRENGTHS]
    return spread(known, STRENGTHS[int(torch.stack(right).argmax())])


METHODS: dict[str, Callable[[Related, Tensor], Tensor]] = {
    "BeliefConv": by_layer,
    "without messages": lambda data, labels: by_layer(data, labels, messages=False),
    "belief propagation": by_propagation,
    "label propagation": by_neighbours,
}


def fit(place: Place, data: str, share: float, method: str, seed: int) -> dict:
    """Find the classes of the nodes that aren't known. The seed draws the known nodes, and the graph if it is drawn."""
    related = DATA[data](place.data, seed)
    count = len(related.labels)
    known = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: round(share * count)]
    labels = torch.full_like(related.labels, -1).index_copy(0, known, related.labels[known])
    right = METHODS[method](related, labels) == related.labels
    return {"test": float(right[labels[:, 0] < 0].double().mean())}


def rows(place: Place, seeds: int, quick: bool, only: Sequence[str]) -> list[dict]:
    """A row for each graph, share of known nodes and method."""
    made = []
    for data, share, method in product(run.chosen(only, DATA), SHARES[2:] if quick else SHARES, METHODS):
        trials = [{"data": data, "share": share, "method": method, "seed": seed} for seed in range(seeds)]
        scores = [result["test"] for result in run.run(fit, trials, place, f"{data}, {share:.0%}, {method}")]
        made.append({"data": data, "share": share, "name": method, "test": scores})
    return made
