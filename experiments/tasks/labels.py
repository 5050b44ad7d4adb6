"""Graphs with latent factors, where the classes of training nodes are inputs and those of other nodes are predicted.

A training step hides a quarter of the training nodes' classes and predicts them. Validation and test nodes are
predicted from the classes of all training nodes (as in Shi et al. 2021, Masked label prediction, IJCAI).
``BeliefConv`` gets the classes as logits of its capsules. With ``heads="told"``, it knows which classes belong to the
same factor. With ``"found"``, it doesn't know this, and ``exclusive`` assigns each class to a capsule.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run, table
from experiments.data.related import Related
from experiments.networks import PATIENCE, information
from experiments.run import Place
from experiments.task import Task
from experiments.tasks import relations
from graphcaps import dgl
from graphcaps.nn import BeliefConv

DATA = [name for name in relations.DATA if "published" in name]
HIDDEN, STRENGTH = 0.25, 6.0
SHORT = {"messages": False, "degree_corrected": False}  # a training with messages takes three times as long


class Beliefs(nn.Module):
    """``BeliefConv``. Each class is a state of a capsule. Scores (N, L, J) are logarithms of the layer's result."""

    def __init__(self, data: Related, heads: str, iterations: int):
        super().__init__()
        sizes, classes = data.labels.shape[1], data.num_classes
        capsule = torch.arange(sizes).repeat_interleave(classes)
        if heads == "found":
            capsule = exclusive(F.one_hot(data.labels[data.train], classes).flatten(1).float(), sizes)
        state = (capsule[:, None] == capsule).tril(-1).sum(1)  # the number of each class within its capsule
        self.register_buffer("place", capsule * (1 + int(state.max())) + state)
        self.layer = BeliefConv(None, 1 + int(state.max()), sizes, iterations, **SHORT)
        self.strength, self.scale = nn.Parameter(torch.tensor(STRENGTH)), nn.Parameter(torch.ones(()))

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


SETTINGS: list[dict] = [{"lr": 0.03, "iterations": iterations} for iterations in (8, 16)]
EPOCHS = 40


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str, heads: str) -> dict:
    """Train on the graph ``data``. The validation loss chooses the epoch."""
    related = relations.DATA[data](place.data, seed)
    torch.manual_seed(seed)
    model, graph, classes = Beliefs(related, heads, settings["iterations"]), related.graph, related.num_classes
    truth = F.one_hot(related.labels, classes).float()

    def classes_of(known: Tensor) -> Tensor:
        return torch.zeros_like(truth).index_copy(0, known, truth[known])

    def answers(part: Tensor, known: Tensor = related.train) -> tuple[Tensor, Tensor]:
        return model(graph, classes_of(known))[part].transpose(1, 2), related.labels[part]  # (n, J, L), (n, L)

    def losses() -> list[Tensor]:
        hidden = torch.rand(len(related.train)) < HIDDEN
        return [F.cross_entropy(*answers(related.train[hidden], related.train[~hidden]))]

    rates = {"lr": settings["lr"], "epochs": 3 if quick else EPOCHS, "patience": PATIENCE}
    result = run.fit(model, losses, answers, related.val, related.test, **rates)
    which, kind = related.single()
    with torch.no_grad():
        c = model.beliefs(graph, classes_of(related.train))[1][which, 0]
    learned = {"couplings": information(kind, c.argmax(1)), "learned": model.layer.beliefs.learned.tolist()}
    return result | learned


def row(network: str, fits: list[dict], settings: list[dict]) -> dict:
    return table.row(network, fits, settings) | {name: [fit[name] for fit in fits] for name in ("couplings", "learned")}


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    for row in rows:
        score, couplings = table.percent(row["test_mean"], row["test_sd"]), table.spread(row["couplings"])
        yield {"graph": row["data"], "factors": row["heads"], "test": score, "information": table.score(couplings)}


TASK = Task(
    "labels",
    fit,
    lambda data, heads: {"beliefs": SETTINGS},
    cases=[{"data": data, "heads": heads} for data, heads in product(DATA, ("told", "found"))],
    row=row,
    cells=cells,
    score="score",
)
