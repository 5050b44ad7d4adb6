"""Do several vectors for a user recommend more than one? MIND, ComiRec and spherical routing on the users of ml-100k.

A network gets the last 50 items of a user's history and returns K vectors, or one. An item's score is its largest dot
product with them. In training, the history of 4 items of each user is what came before them, and the loss is the cross
entropy of the item over all items, for the vector that is nearest to it (as in ComiRec, arXiv 2005.09347).

In each fold, another tenth of the users are for testing, and a tenth for validation. No network is trained on them.
Their history is the first 80 % of what they did, and Recall@50 is the share of the rest among the 50 best items that
aren't in the history, averaged over users. On validation users, it chooses the epoch. The rate is 0.01 for all: on
those of the first fold, 0.003 was worse for six of the seven networks, by 0.3 to 3.3 points.

Ratings count as behaviours, whatever their value. No network knows the order of a history.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run
from experiments.run import Place
from experiments.task import Task
from graphcaps import bipartite_graph, dgl, route
from graphcaps.errors import expect
from graphcaps.nn import CapsuleReadout
from graphcaps.routing import Dynamic, Routing, Spherical, Uniform

K, D, LAST, BEST, TARGETS, BATCH = 4, 64, 50, 50, 4, 256
EPOCHS, PATIENCE, RATE = 40, 10, 0.01


@dataclass(frozen=True)
class Behaviours:
    """The films of each user, sorted by user and time, and the users for training, validation and testing."""

    item: Tensor  # int64 (N,), from 0
    user: Tensor  # int64 (N,), from 0
    start: Tensor  # int64 (U + 1,): user u's behaviours are start[u] to start[u + 1] - 1
    train: Tensor  # int64 user numbers; train, val and test are disjoint
    val: Tensor
    test: Tensor

    def history(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """The items (B, LAST) before the behaviours ``at`` (B,), latest first; and which are by the same user."""
        place = at[:, None] - torch.arange(1, LAST + 1)
        return self.item[place.clamp_min(0)], place >= self.start[self.user[at]][:, None]

    def parts(self, users: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first hidden behaviour (B,) of some users, and the items in their history and hidden: bool (B, items)."""
        first = self.start[users] + (0.8 * (self.start[users + 1] - self.start[users])).long()
        both = torch.zeros(2, len(users), int(self.item.max()) + 1, dtype=torch.bool)
        for n, (a, b, c) in enumerate(zip(self.start[users], first, self.start[users + 1], strict=True)):
            both[0, n, self.item[a:b]], both[1, n, self.item[b:c]] = True, True
        return first, *both


def load(place: Place, fold: int) -> Behaviours:
    """Read ``ml-100k/ml-100k.inter`` (RecBole, https://github.com/RUCAIBox/RecBole, folder dataset)."""
    path = place.data / "ml-100k" / "ml-100k.inter"
    expect(path.is_file(), "ml-100k", str(path), "no such file", "It is in dataset/ of github.com/RUCAIBox/RecBole")
    user, item, _, time = pd.read_csv(path, sep="\t").to_numpy().T
    user, item = (np.unique(column, return_inverse=True)[1] for column in (user, item))
    order = torch.from_numpy(np.lexsort((item, time, user)))
    user, item = torch.from_numpy(user)[order], torch.from_numpy(item)[order]
    tenths = np.array_split(np.random.RandomState(0).permutation(int(user.max()) + 1), 10)
    test, val = tenths.pop(fold % 10), tenths.pop((fold + 5) % 9)
    parts = (torch.from_numpy(users) for users in (np.concatenate(tenths), val, test))
    start = F.pad(user.bincount().cumsum(0), (1, 0))
    return Behaviours(item, user, start, *parts)


MIND = "dynamic, random logits (MIND)"
READOUTS: dict[str, Callable[[], Routing]] = {
    "dynamic, random logits, divided sums": lambda: Dynamic(3),
    "spherical, max-min seeds": lambda: Spherical(concentration=4.0),
    "max-min seeds alone": Uniform,
}
"""``CapsuleReadout`` with these routings, which divides a sum by the number of behaviours before the squash."""
ATTENTION = {"attention, one vector": 1, "attention, K vectors (ComiRec)": K}
NETWORKS = ("mean", *ATTENTION, MIND, *READOUTS)


class Interests(nn.Module):
    """Map histories (B, LAST) to vectors (B, K, D) or (B, 1, D)."""

    def __init__(self, network: str, items: int):
        super().__init__()
        self.network, self.items = network, nn.Embedding(items, D)
        nn.init.normal_(self.items.weight, std=D**-0.5)
        if network in ATTENTION:
            self.attention = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, ATTENTION[network]))
        elif network in READOUTS:
            self.readout = CapsuleReadout(D, D, K, READOUTS[network](), bias=False, shared=True)
        else:
            self.matrix = nn.Linear(D, D, bias=False)

    def forward(self, history: Tensor, present: Tensor) -> Tensor:
        h, size = self.items(history), present.sum(1)
        if self.network == "mean":
            return self.matrix((h * present[..., None]).sum(1, keepdim=True) / size[:, None, None])
        if self.network in ATTENTION:
            c = self.attention(h).masked_fill(~present[..., None], -torch.inf).softmax(1)  # (B, LAST, K or 1)
            return c.transpose(1, 2) @ h
        user = torch.arange(len(h)).repeat_interleave(size)
        prior = 4 * max_min(h.detach(), present)[present] if "seeds" in self.network else torch.randn(len(user), K)
        if self.network in READOUTS:
            batch = dgl.graph(([], []), num_nodes=len(user))
            batch.set_batch_num_nodes(size)
            return self.readout(batch, h[present], prior=prior)
        parents = (user[:, None] * K + torch.arange(K)).flatten()
        graph = bipartite_graph(torch.arange(len(user)).repeat_interleave(K), parents, len(user), len(h) * K)
        votes = self.matrix(h[present]).repeat_interleave(K, 0)
        return route(graph, votes, Dynamic(3), prior=prior.flatten()).v.view(-1, K, D)


def max_min(h: Tensor, present: Tensor) -> Tensor:
    """Cosines (B, LAST, K) with seeds: the behaviour nearest to the mean, then always the furthest from all seeds."""
    unit = F.normalize(h, dim=-1) * present[..., None]
    score, cosines = (unit @ unit.sum(1)[..., None]).squeeze(2), []
    for _ in range(K):
        seed = score.masked_fill(~present, -torch.inf).argmax(1)
        cosines.append((unit * unit[torch.arange(len(h)), seed][:, None]).sum(2))
        score = -torch.stack(cosines).amax(0)
    return torch.stack(cosines, 2)


def recall(scores: Tensor, hidden: Tensor) -> float:
    """Recall@50, averaged over users, for scores (B, items) and hidden items: bool (B, items)."""
    best = scores.topk(min(BEST, scores.shape[1])).indices
    return float((hidden.gather(1, best).sum(1) / hidden.sum(1)).double().mean())


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool) -> dict:
    """Train one network; ``seed`` is the fold, too."""
    data = load(place, seed)
    torch.manual_seed(seed)
    model = Interests(network, int(data.item.max()) + 1)

    def losses():
        users = data.train.repeat(TARGETS)[torch.randperm(TARGETS * len(data.train))]
        length = data.start[users + 1] - data.start[users]
        for at in (data.start[users] + 1 + (torch.rand(len(users)) * (length - 1)).long()).split(BATCH):
            v, target = model(*data.history(at)), data.item[at]
            nearest = (v @ model.items(target)[..., None]).squeeze(2).argmax(1)
            yield F.cross_entropy(v[torch.arange(len(at)), nearest] @ model.items.weight.T, target)

    def answers(users: Tensor) -> tuple[Tensor, Tensor]:
        first, seen, hidden = data.parts(users)
        scores = (model(*data.history(first)) @ model.items.weight.T).amax(1)
        return scores.masked_fill(seen, -torch.inf), hidden

    def loss(scores: Tensor, hidden: Tensor) -> Tensor:
        return torch.tensor(-recall(scores, hidden))

    options = {"lr": settings["lr"], "epochs": 3 if quick else EPOCHS, "patience": PATIENCE}
    return run.fit(model, losses, answers, data.val, data.test, loss=loss, score=recall, **options)


TASK = Task("interests", fit, lambda: dict.fromkeys(NETWORKS, [{"lr": RATE}]), score="Recall@50")
