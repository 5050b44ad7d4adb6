"""Calls whose arguments look right: the error names the argument and, where there is one, the way out.

Arguments of a wrong kind are tried in test_signatures.py.
"""

import re

import pytest
import torch

import graphcaps
from graphcaps import CapsNet, InputError, dgl, engine, nn, route
from graphcaps.images.models import CNN, MatrixCapsNet, capsnet_loss
from graphcaps.routing import EM, Dynamic

from ..small import pyg

GRAPH, VOTES, CLASSES = graphcaps.complete_graph(3, 2), torch.rand(6, 4, 5), torch.tensor([0, 1])
TWO_TYPES = dgl.heterograph({("a", "r", "b"): ([0], [0]), ("a", "q", "b"): ([0], [0])})
RING = dgl.add_self_loop(dgl.graph(([0, 1, 2], [1, 2, 0])))
PAIRS = dgl.add_reverse_edges(dgl.remove_self_loop(RING))
ONE_WAY = dgl.add_self_loop(dgl.graph(([0, 1], [1, 2])))
WORDS = dgl.heterograph({("word", "in", "text"): ([0, 0, 1, 2], [0, 1, 1, 0])})
X, EDGES, NETWORK = torch.rand(3, 4), torch.tensor([[0, 1], [1, 8]]), CapsNet.from_preset("compact", (1, 20, 20)).eval()


def routed(votes, routing="dynamic", name="auto", graph=GRAPH, **options):
    with engine(name):
        return route(graph, votes, routing, **options)


def conv(routing="spherical", num_caps=2, **options):
    return nn.CapsuleConv(4, 3, num_caps, routing, **options)


def on_dgl():
    with engine("dgl"):
        conv(mutual=True)(PAIRS, X)


def page(layer):
    return graphcaps.explore_graph(layer, RING, X, "/nowhere/graph.html")


class Flat(Dynamic):
    def rule(self):
        return None

    def forward(self, edges, votes, prior, activation=None):
        return super().forward(edges, votes, prior).pose.sum(-1, keepdim=True)


# The error's text, with ... for anything, and the call.
WRONG = [
    # Routing
    ("u_hat: expected a tensor, got list. Convert it: torch.as_tensor(u_hat)...", lambda: routed(VOTES.tolist())),
    ("u_hat: expected a dense tensor, got torch.sparse_coo. Convert it: u_hat.to_dense()...",
     lambda: routed(VOTES.to_sparse())),
    ("feat: expected torch.float32, like ..., got torch.int64. Convert it...", lambda: conv()(RING, X.long())),
    ("u_hat: expected (E=6, *, D), got (2, 6, 3). Edges come first: u_hat.transpose(0, 1)...",
     lambda: routed(torch.ones(2, 6, 3))),
    ("graph: expected one canonical edge type, got [('a', 'q', 'b'), ('a', 'r', 'b')]. ...",
     lambda: routed(VOTES, graph=TWO_TYPES)),
    ("routing.costs: expected device cpu as the votes, got meta...", lambda: routed(VOTES, EM().to("meta"))),
    ("prior: expected broadcastable from the left to (E, *)=(6, 4), got (5,)...",
     lambda: routed(VOTES, prior=torch.zeros(5))),
    ("activation: expected numbers >= 0, got -1. They are probabilities...",
     lambda: routed(VOTES, activation=-torch.ones(3, 4))),
    ("engine fused: expected capsules of at most 256 numbers, got Dynamic of (6, 300) on cpu. Use...",
     lambda: routed(torch.ones(6, 300), name="fused")),
    ('graph: expected edata "c", got []. Pass c, or route with return_graph=True...',
     lambda: graphcaps.coupling_entropy(GRAPH)),
    ("graph: expected edges between layers of sizes (1000000000, 1000000000) that fit into the memory...",
     lambda: graphcaps.complete_graph(10**9, 10**9)),
    # Losses, layers for images, networks
    ("labels: expected (B=3,) or (B, J), got (2,)...", lambda: graphcaps.margin_loss(torch.rand(3, 3), CLASSES)),
    ("labels: expected classes from 0 to J - 1 = 2, got 0 to 3...",
     lambda: graphcaps.margin_loss(torch.rand(2, 3), torch.tensor([0, 3]))),
    ("images: expected (3, 1, 20, 20), like the reconstructions, got ...",
     lambda: capsnet_loss(NETWORK(IMAGES), IMAGES[:1], torch.tensor([0, 1, 2]))),
    ("...got (3, 2, 4). Layers give (J, B, D): v.transpose(0, 1)...",
     lambda: nn.Decoder(3, 4, (1, 5, 5))(torch.rand(3, 2, 4), torch.tensor([0, 2]))),
    ("u: expected (I=12, *, P=8), ...: u.transpose(0, 1)...",
     lambda: nn.ConvCaps((2, 3), 2, 3, kernel=2)(torch.rand(4, 12, 8))),
    ("objects: expected 1 for 'matrix', whose loss knows...", lambda: MatrixCapsNet.from_preset("matrix", objects=2)),
    # Layers for graphs
    ("Flat.forward: expected pose of shape (3, 2, 3), got...", lambda: conv(Flat())(RING, X)),
    ("routing: expected one whose poses are sums of votes...", lambda: conv("em")),
    ("edge_feat: expected none...Give it edge_feats=4...", lambda: conv()(RING, X, edge_feat=torch.ones(6, 4))),
    ("graph: expected a graph whose formats include coo, got csc...", lambda: conv()(RING.formats("csc"), X)),
    ("feat: expected a pair, with the destination's features...", lambda: conv(residual=True)(WORDS, X)),
    ("feat[1]: expected the same dims between...", lambda: conv(residual=True)(RING, (X, X[:, None]))),
    ("engine: expected 'auto' or 'torch' with mutual=True, got 'dgl'...", on_dgl),
    ("...both ways, ... got a block. Give it mutual=...", lambda: conv(mutual=True)(dgl.to_block(ONE_WAY), X)),
    ("...or logits (N, K, D), got (3, 4). A layer of...", lambda: nn.BeliefConv(None, 3, 2)(PAIRS, X)),
    ("labels: expected either texts or numbers ...", lambda: nn.BeliefConv.from_labels(PAIRS, ["a", 1, None])),
    ("graph: expected nodes of one kind, got a block...", lambda: nn.BeliefConv(4, 3, 2)(dgl.to_block(RING), X)),
    ("conv: expected num_caps >= 2, got 1. One capsule has nothing to choose...", lambda: page(conv(num_caps=1))),
    ("...got graphcaps.pyg.conv.CapsuleConv. ... load_state_dict...", lambda: page(pyg().CapsuleConv(4, 3, 2))),
    # Layers for PyTorch Geometric
    ("edge_index[1]: expected indices in [0, 3), got 1 to 8", lambda: pyg().CapsuleConv(4, 3, 2)(X, EDGES)),
    ("...in ascending order...", lambda: pyg().BeliefConv(4, 3, 2)(X[:2], EDGES[:, :1], batch=torch.tensor([1, 0]))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wrong"), WRONG, ids=[text[:60] for text, _ in WRONG])
def test_a_wrong_argument_is_named_with_what_was_expected_and_what_came(text, wrong):
    with pytest.raises(InputError) as caught:
        wrong()
    assert re.fullmatch(".*".join(map(re.escape, text.split("..."))), str(caught.value), re.DOTALL), caught.value


IMAGES = torch.rand(3, 1, 20, 20, generator=torch.Generator().manual_seed(0))


def test_images_that_a_network_would_misread_are_refused():
    network = CNN.from_preset("cnn-small", (1, 20, 20)).eval()
    for images, text in (
        (255 * IMAGES, r"numbers in \[0, 1\], got .* to 25\d.*\. Divide them: images / 255"),
        ((IMAGES - 0.13) / 0.31, r"numbers in \[0, 1\], got -0\.\d+ to 2\.\d+\. The networks of graphcaps read images"),
        (IMAGES * float("nan"), r"numbers in \[0, 1\], got NaN or infinity$"),
        (IMAGES.to("meta"), r"device cpu, like the network's weights, got meta. Move them: images.to\('cpu'\)"),
        (IMAGES[0], r"\(B, C=1, H=20, W=20\), got \(1, 20, 20\)\. One image is a batch too: images\[None\]"),
    ):
        with pytest.raises(InputError, match=f"^images: expected {text}"):
            network(images)
