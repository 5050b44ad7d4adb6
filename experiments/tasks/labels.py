"""Graphs with latent factors, where the classes of training nodes are inputs and those of other nodes are predicted.

A training step hides a quarter of the training nodes' classes and predicts them. Validation and test nodes are
predicted from the classes of all training nodes (as in Shi et al. 2021, Masked label prediction, IJCAI).
``BeliefConv`` gets the classes as logits of its capsules. One control is ``BeliefConv`` with equal evidence on all
edges. The other controls are four of ``relations.NETWORKS`` and a network without edges. They get the classes as
features, next to the rows of the adjacency matrix.

With ``heads="told"``, a network knows which classes belong to the same factor. With ``"found"``, it doesn't know this.
Then ``exclusive`` assigns each class to a capsule of ``BeliefConv``.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run, table
from experiments.data.related import Related
from experiments.networks import PART, PATIENCE, WEIGHT_DECAY, Network, information
from experiments.run import Place
from experiments.task import Task
from experiments.tasks import relations
from graphcaps import dgl
from graphcaps.nn import BeliefConv

DATA = [name for name in relations.DATA if "published" in name]
HIDDEN, STRENGTH = 0.25, 6.0
SHORT = {"messages": False, "degree_corrected": False}  # a training with messages takes three times as long


class Without(nn.Linear):
    """A layer that ignores the edges."""

    def __init__(self, inputs: int, outputs: int, parts: int):
        super().__init__(inputs, outputs * parts)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return super().forward(feat)


class Control(nn.Module):
    """Map the rows of the adjacency matrix and the known classes (N, L, J) to scores (N, L, J)."""

    def __init__(self, network: str, data: Related, classes: int, *, heads: str, dropout: float = 0.5, **own):
        super().__init__()
        self.rows, parts = data.features, data.labels.shape[1]
        inputs, kinds = self.rows.shape[1] + parts * classes, {**relations.NETWORKS, "no edges": Without}
        layer, width = kinds[network](inputs, PART, parts, **own), PART * parts
        self.network = Network([layer], width, classes, parts, heads == "told", dropout)

    def forward(self, graph: dgl.DGLGraph, classes: Tensor) -> Tensor:
        return self.network(graph, torch.cat([self.rows, classes.flatten(1)], dim=1)).transpose(1, 2)


class Beliefs(nn.Module):
    """``BeliefConv``. Each class is a state of a capsule. Scores (N, L, J) are logarithms of the layer's result."""

    def __init__(self, network: str, data: Related, classes: int, *, heads: str, iterations: int):
        super().__init__()
        sizes = data.labels.shape[1]
        capsule = torch.arange(sizes).repeat_interleave(classes)
        if heads == "found":
            capsule = exclusive(F.one_hot(data.labels[data.train], classes).flatten(1).float(), sizes)
        state = (capsule[:, None] == capsule).tril(-1).sum(1)  # the number of each class within its capsule
        self.register_buffer("place", capsule * (1 + int(state.max())) + state)
        self.layer = BeliefConv(None, 1 + int(state.max()), sizes, iterations, **SHORT)
        self.strength, self.scale = nn.Parameter(torch.tensor(STRENGTH)), nn.Parameter(torch.ones(()))
        if network == "equal beliefs":  # with a large epsilon, w_ek is about g / epsilon on all edges
            with torch.no_grad():
                self.layer.beliefs.logarithms[:2] = torch.tensor(1e4).log()

    def beliefs(self, graph: dgl.DGLGraph, classes: Tensor) -> tuple[Tensor, Tensor]:
        """The result h (N, K, D) and the couplings (E, 1, K)."""
        sizes = self.layer.beliefs.bias.shape
        z = classes.new_zeros(len(classes), sizes.numel()).index_add(1, self.place, classes.flatten(1) * self.strength)
        return self.layer(graph, z.unflatten(1, sizes), get_coupling=True)

    def forward(self, graph: dgl.DGLGraph, classes: Tensor) -> Tensor:
        h, _ = self.beliefs(graph, classes)
        return (h.flatten(1)[:, self.place].clamp_min(1e-9).log() * self.scale).view_as(classes)


def exclusive(has: Tensor, capsules: int, steps: int = 600) -> Tensor:
    """Assign each class to a capsule, (C,), so that no capsule has two classes of one node.

    ``has`` (N, C) is 1 if a node has a class, else 0. Each class has shares (C, K) in all capsules, with sum 1. Let n_k
    be the sum of a node's classes' shares in capsule k. Gradient descent lowers the sum over k of (n_k - 1)^2, and with
    growing weight the entropy of the shares.
    """
    logits = nn.Parameter(torch.randn(has.shape[1], capsules) / 2)
    adam = torch.optim.Adam([logits], lr=0.1)
    for step in range(steps):
        shares = logits.softmax(1)
        entropy = -(shares * logits.log_softmax(1)).sum(1).mean()
        loss = (has @ shares - 1).square().sum(1).mean() + step / steps * entropy
        adam.zero_grad()
        loss.backward()
        adam.step()
    return logits.argmax(1)


_BELIEFS: list[dict] = [{"lr": 0.03, "iterations": iterations} for iterations in (8, 16)]
_OTHERS: list[dict] = [{"lr": 0.01, "dropout": dropout} for dropout in (0.2, 0.5)]
NETWORKS = dict.fromkeys(("beliefs", "equal beliefs"), _BELIEFS)
NETWORKS |= {"mutual": [settings | {"concentration": 4.0} for settings in _OTHERS]}
NETWORKS |= dict.fromkeys(("uniform", "GCN", "GAT", "no edges"), _OTHERS)
"""For each network, two settings to choose from."""
HEADS = {"told": [*NETWORKS], "found": ["beliefs", "equal beliefs", "mutual", "uniform"]}
"""The networks for each value of ``heads``. With ``"found"``, ``Control`` reads each class from all parts of a node."""


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str, heads: str) -> dict:
    """Train one network on the graph ``data``. The validation loss chooses the epoch."""
    related = relations.DATA[data](place.data, seed)
    torch.manual_seed(seed)
    options, classes, control = dict(settings), related.num_classes, "beliefs" not in network
    rates = {"lr": options.pop("lr"), "weight_decay": WEIGHT_DECAY if control else 0.0, "patience": PATIENCE}
    graph = dgl.add_self_loop(related.graph) if control else related.graph
    model = (Control if control else Beliefs)(network, related, classes, heads=heads, **options)
    truth = F.one_hot(related.labels, classes).float()

    def classes_of(known: Tensor) -> Tensor:
        return torch.zeros_like(truth).index_copy(0, known, truth[known])

    def answers(part: Tensor, known: Tensor = related.train) -> tuple[Tensor, Tensor]:
        return model(graph, classes_of(known))[part].transpose(1, 2), related.labels[part]  # (n, J, L), (n, L)

    def losses() -> list[Tensor]:
        hidden = torch.rand(len(related.train)) < HIDDEN
        return [F.cross_entropy(*answers(related.train[hidden], related.train[~hidden]))]

    epochs = 3 if quick else 300 if control else 40
    result = run.fit(model, losses, answers, related.val, related.test, epochs=epochs, **rates)
    if isinstance(model, Beliefs):
        which, kind = related.single()
        with torch.no_grad():
            c = model.beliefs(graph, classes_of(related.train))[1][which, 0]
        result["couplings"] = information(kind, c.argmax(1))
        result["learned"] = model.layer.beliefs.learned.tolist()
    return result


def row(network: str, fits: list[dict], settings: list[dict]) -> dict:
    learned = {name: [fit[name] for fit in fits] for name in ("couplings", "learned") if name in fits[0]}
    return table.row(network, fits, settings) | learned


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    uniform = {(row["data"], row["heads"]): row["test"] for row in rows if row["name"] == "uniform"}
    for row in rows:
        score, case = table.percent(row["test_mean"], row["test_sd"]), (row["data"], row["heads"])
        yield {"graph": row["data"], "factors": row["heads"], row["name"]: score}
        if row["name"] == "beliefs":
            lead, couplings = table.lead(row["test"], uniform[case]), table.spread(row["couplings"])
            texts = {"beliefs, ahead of uniform": lead, "information": table.score(couplings)}
            yield {"graph": row["data"], "factors": row["heads"], **texts}


TASK = Task(
    "labels",
    fit,
    lambda data, heads: {network: NETWORKS[network] for network in HEADS[heads]},
    cases=[{"data": data, "heads": heads} for data, heads in product(DATA, HEADS)],
    row=row,
    cells=cells,
    index=2,
    score="score",
)
