"""Arguments that don't fit are named at every public door, with what was expected; none is taken for something else."""

import re

import pytest
import torch

from graphcaps import (
    CapsNet,
    InputError,
    bipartite_graph,
    complete_graph,
    coupling_entropy,
    dgl,
    engine,
    explore_graph,
    margin_loss,
    nn,
    route,
)
from graphcaps.models import CNN, MatrixCapsNet, capsnet_loss
from graphcaps.routing import EM, Dynamic, LinearVotes, MatrixVotes

GRAPH, VOTES, CLASSES = complete_graph(3, 2), torch.rand(6, 4, 5), torch.tensor([0, 1])
TWO_TYPES = dgl.heterograph({("a", "r", "b"): ([0], [0]), ("a", "q", "b"): ([0], [0])})
OUTSIDE = torch.tensor([0, 3])
U, MATRICES, INDEX = torch.ones(3, 8), torch.ones(2, 8, 4), torch.arange(6)
RING = dgl.add_self_loop(dgl.graph(([0, 1, 2], [1, 2, 0])))
WORDS = dgl.heterograph({("word", "in", "text"): ([0, 0, 1, 2], [0, 1, 1, 0])})
X, CONV, LAYER = torch.rand(3, 4), nn.CapsuleConv(4, 3, num_caps=2), nn.CapsuleLayer(12, 3)
BELIEFS, EDGES = nn.BeliefConv(4, 3, 2), torch.tensor([[0, 1], [1, 8]])

# Values that are passed instead of a tensor of floating point, and the error's text for each.
NO_TENSORS = {
    "a list": (lambda x: x.tolist(), r"a tensor, got list\. Convert it: torch\.as_tensor\({name}\)"),
    "complex": (lambda x: x + 1j, r"(real numbers|torch\.float32, like .*), got torch\.complex64"),
    "sparse": (lambda x: x.to_sparse(), r"a dense tensor, got torch\.sparse_coo\. Convert it: {name}\.to_dense\(\)"),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "a dense tensor, got a nested tensor"),
    "integers": (lambda x: x.long(), r"(floating point|torch\.float32, like .*), got torch\.int64\. Convert it"),
}
DOORS = {
    "u_hat": lambda wrong: route(GRAPH, wrong(VOTES)),
    "activation": lambda wrong: route(GRAPH, VOTES[:, 0], "em", activation=wrong(torch.rand(3))),
    "u": lambda wrong: LAYER(wrong(torch.rand(12, 2, 8))),
    "weight": lambda wrong: route(GRAPH, LinearVotes(torch.rand(3, 4), wrong(torch.rand(4, 5)))),
    "feat": lambda wrong: CONV(RING, wrong(X)),
    "c": lambda wrong: coupling_entropy(GRAPH, wrong(torch.rand(6))),
}


@pytest.mark.parametrize("name", DOORS)
def test_a_value_that_is_no_tensor_of_floating_point_is_named(name):
    for kind, (wrong, text) in NO_TENSORS.items():
        if (name, kind) == ("feat", "sparse"):  # sparse features are allowed
            continue
        with pytest.raises(InputError, match=f"^{name}: expected {text.format(name=name)}"):
            DOORS[name](wrong)


def routed(votes, routing="dynamic", name="auto", graph=GRAPH, **options):
    with engine(name):
        return route(graph, votes, routing, **options)


def conv(in_feats=4, out_feats=3, num_caps=2, routing="spherical", **options):
    return nn.CapsuleConv(in_feats, out_feats, num_caps, routing, **options)


def capsnet(image_shape, **options):
    return CapsNet.from_preset("compact", image_shape, 3, **options)


def on_dgl():
    with engine("dgl"):
        conv(mutual=True)(RING, X)


def page(options=None, **given):
    return explore_graph(conv(**options or {}), RING, X, "/nowhere/graph.html", **given)


def pyg():
    return pytest.importorskip("graphcaps.pyg", reason='needs pip install -e ".[pyg]"')


def pyg_conv(in_channels=4, out_channels=3, num_caps=2, **options):
    return pyg().CapsuleConv(in_channels, out_channels, num_caps, **options)


class Flat(Dynamic):
    def rule(self):
        return None

    def forward(self, edges, votes, prior, activation=None):
        return super().forward(edges, votes, prior).pose.sum(-1, keepdim=True)


NAMES = "dynamic, uniform, attention, spherical, inverted, em"
ONE_WAY = dgl.add_self_loop(dgl.graph(([0, 1], [1, 2])))
NODES = torch.rand(9, 4)  # the nodes of EDGES
# The error's text, with ... for anything, and the call.
WRONG = [
    # Routing
    ("u_hat: expected (E=6, *, D), got (2, 6, 3). Edges come first: u_hat.transpose(0, 1)...",
     lambda: route(GRAPH, torch.ones(2, 6, 3))),
    ("u_hat: expected ...", lambda: route(GRAPH, VOTES.to("meta"))),
    ("graph: expected one canonical edge type, got [('a', 'q', 'b'), ('a', 'r', 'b')]. ...",
     lambda: route(TWO_TYPES, VOTES)),
    (f"routing: expected one of {NAMES}, got 'dynamo'. Did you mean 'dynamic'?...", lambda: routed(VOTES, "dynamo")),
    ("routing.costs: expected device cpu as the votes, got meta...", lambda: routed(VOTES, EM().to("meta"))),
    ("prior: expected broadcastable from the left to (E, *)=(6, 4), got (5,)...",
     lambda: routed(VOTES, prior=torch.zeros(5))),
    ("activation: expected (I, *)=(3, 4), got (3,)...", lambda: routed(VOTES, activation=torch.ones(3))),
    ("activation: expected numbers in [0, 1], got -1. They are probabilities...",
     lambda: routed(VOTES, activation=-torch.ones(3, 4))),
    ("weight: expected torch.float32 as u, got torch.float64...", lambda: routed(LinearVotes(U, MATRICES.double()))),
    ("weight: expected (E=6, P, D), got (2, 8, 4)...", lambda: routed(LinearVotes(U, MATRICES))),
    ("weight: expected (T, J=2, P, D) with T a divisor of I=3, got (2, 2, 8, 4)...",
     lambda: routed(LinearVotes(U, torch.ones(2, 2, 8, 4)))),
    ("index: expected matrices in [0, M=2), got 0 to 5...", lambda: routed(LinearVotes(U, MATRICES, INDEX))),
    ("u: expected (I, *, 16), got (3, 8)...", lambda: routed(MatrixVotes(U, MATRICES, INDEX))),
    ("engine: expected one of auto, fused, torch, dgl, got 'dlg'. Did you mean 'dgl'?...",
     lambda: routed(VOTES, name="dlg")),
    ("engine fused: expected capsules of at most 256 numbers, got Dynamic of (6, 300) on cpu. Use...",
     lambda: routed(torch.ones(6, 300), name="fused")),
    ("engine fused: ... have one, got EM of (6, 4) on cpu. Use engine 'torch'...",
     lambda: routed(torch.ones(6, 4), "em", "fused")),
    # Losses and measures
    ("lengths: expected (B, J) with B >= 1, got (2,)...", lambda: margin_loss(torch.rand(2), CLASSES)),
    ("labels: expected (B=3,) or (B, J), got (2,)...", lambda: margin_loss(torch.rand(3, 3), CLASSES)),
    *(("labels: expected classes from 0 to J - 1 = 2, got 0 to 3...", call) for call in (
        lambda: margin_loss(torch.rand(2, 3), OUTSIDE),
        lambda: capsnet((1, 12, 12)).train()(torch.zeros(2, 1, 12, 12), OUTSIDE),
        lambda: capsnet_loss(capsnet((1, 12, 12), objects=2)(torch.zeros(2, 1, 12, 12)),
                             torch.zeros(2, 2, 1, 12, 12), torch.tensor([[0, 3], [0, 1]])),
        lambda: nn.Decoder(3, 2, (1, 4, 4))(torch.rand(2, 3, 2), OUTSIDE))),
    ("labels: expected (B,) or (B, J)=(2, 3), got (2, 4)...",
     lambda: margin_loss(torch.rand(2, 3), torch.zeros(2, 4))),
    ('graph: expected edata "c", got []. Pass c, or route with return_graph=True...', lambda: coupling_entropy(GRAPH)),
    # Layers for images, networks, runs
    ("capsules: expected Poses(...), got tuple...",
     lambda: nn.MatrixConvCaps((2, 3), 2, 3, kernel=2)((torch.rand(12, 4, 16), torch.rand(12, 4)))),
    ("...an EM routing, or 'em', got 'dynamic'...", lambda: nn.MatrixConvCaps(3, 1, 1, 2, routing="dynamic")),
    ("...got (3, 2, 4). Layers give (J, B, D): v.transpose(0, 1)...",
     lambda: nn.Decoder(3, 4, (1, 5, 5))(torch.rand(3, 2, 4), torch.tensor([0, 2]))),
    ("image_shape: expected (an integer >= 1, an integer >= 1, an integer >= 1), got (28, 28)",
     lambda: CapsNet.from_preset("compact", (28, 28))),
    ("objects: expected 1 for 'matrix', whose loss knows...", lambda: MatrixCapsNet.from_preset("matrix", objects=2)),
    ("routing: expected an EM routing, or 'em', got...",
     lambda: MatrixCapsNet.from_preset("matrix", routing=Dynamic())),
    # Layers for graphs
    ("in_feats: expected an integer >= 1, got -2...", lambda: conv(-2)),
    *((f"Flat.forward: expected pose of shape {wanted}, got...", call) for wanted, call in (
        ((3, 2, 3), lambda: conv(routing=Flat())(RING, X)), ((2, 4, 5), lambda: routed(VOTES, Flat())))),
    ("routing: expected one whose poses are sums of votes...", lambda: conv(routing="em")),
    ("in_caps: expected 1 with mutual=True, got 2...", lambda: conv(in_caps=2, mutual=True)),
    ("feat: expected (N=3, *, 4), got (3, 5)...", lambda: CONV(RING, torch.ones(3, 5))),
    ("edge_feat: expected none...Give it edge_feats=4...", lambda: CONV(RING, X, edge_feat=torch.ones(6, 4))),
    ("edge_feat: expected (E=6, 2), got none...", lambda: conv(edge_feats=2)(RING, X)),
    ("graph: expected a graph whose formats include coo, got csc...", lambda: CONV(RING.formats("csc"), X)),
    ("feat: expected a pair, with the destination's features...", lambda: conv(residual=True)(WORDS, X)),
    ("...a reverse for each edge, got the edge 0 -> 1 without one. Add...", lambda: conv(mutual=True)(ONE_WAY, X)),
    ("engine: expected 'auto' or 'torch' with mutual=True, got 'dgl'...", on_dgl),
    ("...both ways, ... got a block. Give it mutual=...", lambda: conv(mutual=True)(dgl.to_block(ONE_WAY), X)),
    ("...got sources and destinations. Give it...",
     lambda: conv(mutual=True)(bipartite_graph([0], [0], 1, 1), X[:1])),
    ("feat: expected (N, F) = (3, 4), got (3, 3)...", lambda: BELIEFS(RING, X[:, 1:])),
    ("feat: expected labels (N=3, K=2), or logits (N, K, D), got (3, 4)", lambda: nn.BeliefConv(None, 3, 2)(RING, X)),
    ("feat: expected torch.float32, like the layer's weights...", lambda: BELIEFS(RING, X.double())),
    ("edge_weight: expected (E=6,), got (1, 6)...", lambda: BELIEFS(RING, X, torch.ones(1, 6))),
    ("graph: expected nodes of one kind, got a block...", lambda: BELIEFS(dgl.to_block(RING), X)),
    # Pages of graphs
    ("conv: expected num_caps >= 2, got 1. One capsule has nothing to choose...", lambda: page({"num_caps": 1})),
    ("labels: expected...", lambda: page(labels=[0, 1])),
    ("...got graphcaps.pyg.conv.CapsuleConv. ... load_state_dict...",
     lambda: explore_graph(pyg_conv(), RING, X, "/nowhere/graph.html")),
    # Layers for PyTorch Geometric
    ("x: expected a pair with the target...", lambda: pyg_conv(residual=True)((NODES, None), EDGES)),
    ("edge_attr: expected (E, 2), ... got none...", lambda: pyg_conv(edge_dim=2)(NODES, EDGES)),
    ("edge_index: ...indices in [0, ...=4), got 0 to 8...", lambda: pyg_conv()(NODES[:4], EDGES)),
    ("index: ...indices in ... got 0 to 8...",
     lambda: pyg().CapsuleReadout(4, 3, 2)(NODES, torch.arange(9), dim_size=2)),
    ("prior: expected (N, num_caps)=(9, 2) or (9, 1, 2), got (9, 3)",
     lambda: pyg().CapsuleReadout(4, 3, 2)(NODES, prior=torch.ones(9, 3))),
    ("...in ascending order...", lambda: pyg().BeliefConv(4, 3, 2)(X[:2], EDGES[:, :1], batch=torch.tensor([1, 0]))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wrong"), WRONG, ids=[text[:60] for text, _ in WRONG])
def test_a_wrong_argument_is_named_with_what_was_expected_and_what_came(text, wrong):
    with pytest.raises(InputError) as caught:
        wrong()
    assert re.fullmatch(".*".join(map(re.escape, text.split("..."))), str(caught.value), re.DOTALL), caught.value


IMAGES = torch.rand(3, 1, 20, 20, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [CapsNet, CNN, MatrixCapsNet])
def test_images_that_a_network_would_misread_are_refused(kind):
    name = {CapsNet: "compact", CNN: "cnn-small", MatrixCapsNet: "matrix-small"}[kind]
    network = kind.from_preset(name, (1, 20, 20)).eval()
    for images, text in (
        (255 * IMAGES, r"numbers in \[0, 1\], got .* to 25\d.*\. Divide them: images / 255"),
        ((IMAGES - 0.13) / 0.31, r"numbers in \[0, 1\], got -0\.\d+ to 2\.\d+\. The networks of graphcaps read images"),
        (IMAGES * float("nan"), r"numbers in \[0, 1\], got NaN or infinity$"),
        (IMAGES[0], r"\(B, C=1, H=20, W=20\), got \(1, 20, 20\)\. One image is a batch too: images\[None\]"),
    ):
        with pytest.raises(InputError, match=f"^images: expected {text}"):
            network(images)


def test_a_loss_does_not_broadcast_images():
    output = CapsNet.from_preset("compact", (1, 20, 20)).eval()(IMAGES)
    with pytest.raises(InputError, match=r"^images: expected \(3, 1, 20, 20\), like the reconstructions, got "):
        capsnet_loss(output, IMAGES[:1], torch.tensor([0, 1, 2]))


LAYERS = [
    nn.CapsuleLayer(12, 3),
    nn.SharedCaps(2, torch.rand(6, 2), num_parents=3),
    nn.ConvCaps((2, 3), 2, 3, kernel=2),
    nn.MatrixConvCaps((2, 3), 2, 3, kernel=2),
    nn.MatrixClassCaps(2, torch.rand(6, 2), 3),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_batch_before_the_capsules_is_refused_with_the_fix(layer):
    matrix = isinstance(layer, (nn.MatrixConvCaps, nn.MatrixClassCaps))
    dim = 16 if matrix else 8

    def enter(u):
        return layer(nn.Poses(u, u[..., 0])) if matrix else layer(u)

    enter(torch.rand(12, 4, dim))
    wanted = rf"^u: expected \(I=12, \*, P={dim}\), got "
    with pytest.raises(InputError, match=wanted + r".*\. Capsules come first, then the batch: u\.transpose\(0, 1\)"):
        enter(torch.rand(4, 12, dim))
    with pytest.raises(InputError, match=wanted + rf"\(12, 4, {dim - 1}\)$"):
        enter(torch.rand(12, 4, dim - 1))
