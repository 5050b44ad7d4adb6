"""What a graph's page shows of a ``BeliefConv``: the share of each edge that each cause explains, and the rest.

The page contains the layer's rounds and doesn't compute them. The layer stays the same on the random graphs for
comparison. On 165 random graphs of 60 to 1,000 edges with random labels, no page named causes; with rates that were
counted again on each random graph, six did. A cause isn't named either if a random graph has as many edges of it. Keys
of the data that only these pages have, for T rounds and K causes::

    capsules   K + 1 names: the columns of the labels, and "no cause"; without a name, a number
    logits     (T, E, K + 1): their softmax are the shares of an edge that each cause explains, and that none explains
    likeliest  (T, N, K + 1): the probability of the likeliest state of each capsule, and 0
    found      (N, K): the likeliest states in the last round
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..algorithms.observers import recording
from ..errors import check_tensor, required
from ..graph import NamedGraph
from ..graph.labels import read_classes
from ..nn import BeliefConv
from .chance import Chance, with_random
from .network import packed

MOST = 0.5  # an edge counts for a cause, or for none, that explains more of it than this


@torch.no_grad()
def explain_beside_chance(
    conv: BeliefConv, named: NamedGraph, feat: Any, weight: Tensor | None, shown: Tensor, nodes: Tensor
) -> tuple[dict, Chance]:
    """Run a layer on a graph, and on random graphs with its degrees. Return the data of the edges and nodes shown."""
    feat, num_caps = required(feat, "feat", "the layer's labels (N, K), or its features"), conv.beliefs.num_caps
    numbers, states = [f"capsule {k}" for k in range(num_caps)], [*map(str, range(conv.beliefs.out_feats))]
    texts = [states] * num_caps
    counts: list[Tensor] = []  # (K,), edges of each cause on the graph, and on each random one
    rounds: list[tuple[Tensor, ...]] = []
    columns = [feat] if isinstance(feat, str) else [*map(str, getattr(feat, "columns", numbers))]
    if of_labels := conv.beliefs.in_feats is None and getattr(feat, "ndim", 0) < 3:
        feat, names = read_classes("feat", named.rows("feat", feat, complete=False), len(named.names))
        texts = [of_column or states for of_column in names]
    else:
        feat = check_tensor("feat", named.features(feat))
    layer = copy.deepcopy(conv).eval()
    nothing = layer.beliefs.learned[:1].expand(len(named.src), 1)
    for graph in reversed(with_random(named.dgl)):  # the graph itself comes last
        rounds.clear()
        with recording(lambda *links: lambda r, b, c, *state: rounds.append(state)):  # beliefs h, explanations
            layer(graph, feat, weight)
        explained = torch.stack([torch.cat([a.view(-1, num_caps), nothing], dim=1) for _, a in rounds])
        logits = explained.clamp_min(torch.finfo(explained.dtype).tiny).log()
        counts.insert(0, (logits[-1].softmax(1)[:, :-1] > MOST).sum(0))
    chosen, (own, *others) = [int(count.sum()) for count in counts], counts
    chance = Chance([number / len(named.src) for number in chosen], chosen, [], len(named.src))
    beyond = (own > torch.stack(others).amax(0)) & (chance.beyond and of_labels)
    names_of_capsules = [(columns if is_named else numbers)[k] for k, is_named in enumerate(beyond.tolist())]
    h = torch.stack([h.unflatten(0, (-1, num_caps)) for h, _ in rounds])[:, nodes]  # (T, N, K, D)
    name = "the layer's beliefs"
    return {
        "title": f"BeliefConv, {num_caps} × {conv.beliefs.out_feats}",
        "capsules": [*names_of_capsules, "no cause"],
        "logits": packed(logits[:, shown], "float32", name),
        "likeliest": packed(F.pad(h.amax(3), (0, 1)), "float32", name),
        "found": [[texts[k][state] for k, state in enumerate(node)] for node in h[-1].argmax(2).tolist()],
        "routing": "",
        "iterations": len(rounds),
        "z": packed(torch.zeros(len(nodes), num_caps + 1, 1), "float32", name),
        "power": packed(torch.zeros(len(nodes)), "float32", name),
    }, chance
