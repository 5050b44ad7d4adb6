"""Arguments of the wrong kind are named at every public door; none is taken for something else."""

from __future__ import annotations

import pytest
import torch

from graphcaps import InputError, complete_graph, coupling_entropy, dgl, load, margin_loss, route, squash
from graphcaps.functional import spread_loss
from graphcaps.nn import CapsuleConv, CapsuleLayer, CapsuleReadout
from graphcaps.routing import LinearVotes

GRAPH, VOTES, CLASSES = complete_graph(3, 2), torch.rand(6, 4, 5), torch.tensor([0, 1])
RING = dgl.add_self_loop(dgl.graph(([0, 1, 2], [1, 2, 0])))
X, CONV, LAYER = torch.rand(3, 4), CapsuleConv(4, 3, num_caps=2), CapsuleLayer(12, 3)

# Values that are passed instead of a tensor of floating point, and what the error says of each.
NO_TENSORS = {
    "a list": (lambda x: x.tolist(), r"a tensor, got list\. Convert it: torch\.as_tensor\({name}\)"),
    "an array": (lambda x: x.numpy(), "a tensor, got ndarray"),
    "complex": (lambda x: x + 1j, r"(real numbers|torch\.float32, as .*), got torch\.complex64"),
    "sparse": (lambda x: x.to_sparse(), r"a dense tensor, got torch\.sparse_coo\. Convert it: {name}\.to_dense\(\)"),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "a dense tensor, got a nested tensor"),
    "float8": (lambda x: x.to(torch.float8_e4m3fn), r"(floating point|torch\.float32, as .*), got torch\.float8"),
}
DOORS = {
    "u_hat": lambda wrong: route(GRAPH, wrong(VOTES)),
    "prior": lambda wrong: route(GRAPH, VOTES, prior=wrong(torch.rand(6))),
    "activation": lambda wrong: route(GRAPH, VOTES[:, 0], "em", activation=wrong(torch.rand(3))),
    "u": lambda wrong: LAYER(wrong(torch.rand(12, 2, 8))),
    "weight": lambda wrong: route(GRAPH, LinearVotes(torch.rand(3, 4), wrong(torch.rand(4, 5)))),
    "feat": lambda wrong: CONV(RING, wrong(X)),
    "s": lambda wrong: squash(wrong(X)),
    "lengths": lambda wrong: margin_loss(wrong(torch.rand(2, 3)), CLASSES),
    "activations": lambda wrong: spread_loss(wrong(torch.rand(2, 3)), CLASSES, 0.2),
    "c": lambda wrong: coupling_entropy(GRAPH, wrong(torch.rand(6))),
}


@pytest.mark.parametrize("name", DOORS)
def test_a_value_that_is_no_tensor_of_floating_point_is_named(name):
    for kind, (wrong, text) in NO_TENSORS.items():
        if (name, kind) == ("feat", "sparse"):  # is taken
            continue
        with pytest.raises(InputError, match=f"^{name}: expected {text.format(name=name)}"):
            DOORS[name](wrong)


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("u_hat: expected ", lambda: route(GRAPH, VOTES.to("meta"))),
        ("prior: expected ", lambda: route(GRAPH, VOTES, prior=True)),
        ("on_iteration: expected ", lambda: route(GRAPH, VOTES, on_iteration=5)),
        ("squash_output: expected ", lambda: CapsuleConv(4, 3, 2, squash_output="no")),
        ("normalise: expected ", lambda: CapsuleReadout(4, 3, 2, normalise=0)),
        ("activation: expected ", lambda: CapsuleConv(4, 3, 2, activation="relu")),
        ("learned_prior: expected ", lambda: CapsuleLayer(4, 3, learned_prior="no")),
        ("mutual: expected ", lambda: CapsuleConv(4, 3, 2, mutual="no")),
        ("edge_weight: expected ", lambda: CONV(RING, X, [1.0] * 6)),
        ("edge_feat: expected ", lambda: CONV(RING, X, edge_feat=[1.0] * 6)),
        ("feat: expected ", lambda: CONV(RING, None)),
        ("index: expected ", lambda: route(GRAPH, LinearVotes(torch.rand(3, 4), torch.rand(2, 4, 5), [0] * 6))),
        ("labels: expected ", lambda: margin_loss(torch.rand(2, 3), [0, 1])),
        ("lengths: expected ", lambda: margin_loss(torch.rand(0, 3), torch.zeros(0, dtype=torch.int64))),
        ("lengths: expected (B, J) with B >= 1, got (2,)", lambda: margin_loss(torch.rand(2), CLASSES)),
        ("labels: expected (B=3,) or (B, J), got (2,)", lambda: margin_loss(torch.rand(3, 3), CLASSES)),
        (
            "labels: expected (B,) or (B, J)=(2, 3), got (2, 4)",
            lambda: margin_loss(torch.rand(2, 3), torch.zeros(2, 4)),
        ),
        ('graph: expected edata "c", got []. Pass c, or route with return_graph=True', lambda: coupling_entropy(GRAPH)),
        ("c: expected (E=6, *), got (5,)", lambda: coupling_entropy(GRAPH, torch.ones(5))),
        ("run: expected ", lambda: load(None)),
    ],
)
def test_a_wrong_argument_is_named(text, wrong):
    with pytest.raises(InputError) as caught:
        wrong()
    assert str(caught.value).startswith(text)
