"""Training of the rates that a ``BeliefConv`` has counted, judged by known nodes that are held out."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import expect, warn
from ..graph import read_graph
from ..graph.links import members_of_sizes
from ..progress import bar
from ..typed import Size, typed
from .node_beliefs import NodeBeliefs
from .rates import LEAST


@typed
@torch.inference_mode(False)
@torch.enable_grad()
def fit_rates(conv: nn.Module, graph: Any, labels: Any, epochs: Size = 12) -> bool:
    """Train epsilon, g, nu and rho of a ``BeliefConv``, unless the rates that it has are as good.

    A fifth of the known nodes is held out. In each epoch, three tenths of the others are predicted from the rest. The
    layer receives the rates by which the log-loss of held-out nodes is lowest, if it is lower than before by two
    standard errors, and as many of their labels are right. Returns whether this happened.

    Args:
        conv: the layer of ``BeliefConv.from_labels(graph, labels)``, in DGL or PyG.
        graph, labels: what it was made from; one graph, not a batch. Weights of edges are ignored.
        epochs: an epoch is a step of Adam on all nodes.
    """
    own: Any = getattr(conv, "beliefs", None)
    fits = isinstance(own, NodeBeliefs) and own.weight is None
    expect(fits, "conv", "a layer of BeliefConv.from_labels", type(conv).__name__)
    expect(getattr(graph, "batch_size", 1) == 1, "graph", "one graph", "a batch", "Take it apart: dgl.unbatch(graph)")
    named, beliefs = read_graph(graph, weight=None), copy.deepcopy(own).requires_grad_()
    labels, rates = named.labels(labels).to(own.bias.device), [beliefs.logarithms, beliefs.log_rates]
    links, members = named.links(labels.device), members_of_sizes((len(labels),), labels.device)
    nodes = (labels >= 0).any(1).nonzero().flatten()
    held_out, others = nodes[torch.randperm(len(nodes)).to(nodes.device)].tensor_split([len(nodes) // 5])
    if len(held_out) < 2:
        warn(f"labels: {len(nodes)} nodes are known, too few to hold any out, so the counted rates stay")
        return False

    def judged(inputs: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        """The log-loss of each of some nodes (n,), and which of their labels are right (n, K)."""
        h, truth = beliefs(links, inputs, None, members)[0][of], labels[of]
        log_p = h.clamp_min(LEAST).log().transpose(1, 2)
        return F.nll_loss(log_p, truth, ignore_index=-1, reduction="none").sum(1), h.argmax(2) == truth

    inputs, adam = labels.index_fill(0, held_out, -1), torch.optim.Adam(rates, lr=0.03)
    with torch.no_grad():
        counted, right = judged(inputs, held_out)
    lowest, best = counted, None
    with bar("training rates") as on_progress:
        for epoch in range(epochs):
            hidden = others[torch.randperm(len(others))[: len(others) * 3 // 10].to(others.device)]
            adam.zero_grad()
            judged(inputs.index_fill(0, hidden, -1), hidden)[0].mean().backward()
            adam.step()
            with torch.no_grad():
                loss, now_right = judged(inputs, held_out)
            gain = counted - loss
            better = loss.mean() < lowest.mean() and gain.mean() > 2 * gain.std() / len(gain) ** 0.5
            if better and now_right.sum() >= right.sum():
                lowest, best = loss, [rate.detach().clone() for rate in rates]
            on_progress((epoch + 1) / epochs)
    if best is not None:
        with torch.no_grad():
            own.logarithms.copy_(best[0])
            own.log_rates.copy_(best[1])
    return best is not None
