"""Layers, networks and runs with every routing: what they learn, and that trace, capsule usage and network agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps import CapsNet, RoutingTrace, route, squash, train
from graphcaps.analysis.capsule_usage import capsule_usage
from graphcaps.analysis.parse_tree import NOTES, parse_tree
from graphcaps.cli import main
from graphcaps.data import Batches, to_float
from graphcaps.nn import CapsuleLayer, ConvCaps, PrunedCaps, SharedCaps
from graphcaps.routing.engines import routing_names
from graphcaps.trace.recording import routing_of
from graphcaps.training.run_folder import Run, load

from . import small

pytestmark = pytest.mark.usefixtures("one_thread")
ROUTINGS = routing_names()


def net_with(routing: str) -> CapsNet:
    torch.manual_seed(0)
    return CapsNet.from_preset("compact", (1, 12, 12), 10, routing=routing).eval()


@pytest.mark.parametrize(
    ("routing", "learned"),
    [
        ("dynamic", set()),
        ("uniform", set()),
        ("attention", set()),
        ("inverted", {"norm.weight", "norm.bias", "head.weight", "head.bias"}),
        ("em", {"beta_u", "bias"}),
    ],
)
def test_a_layer_learns_what_its_routing_has(routing, learned, draw):
    layer = CapsuleLayer(6, 3, routing=routing)
    names = {name.removeprefix("learned.") for name, _ in layer.named_parameters()} - {"weight"}
    assert names == learned
    layer(draw(6, 2, 8, dtype=torch.float32) / 4).square()[..., 0].sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())


@pytest.mark.parametrize("make", [lambda: CapsuleLayer(6, 3, routing="em"), lambda: ConvCaps(3, 1, 2, 2, routing="em")])
def test_em_takes_a_childs_length_for_its_activation(make, draw):
    layer = make()
    u = draw(layer.num_children, 2, 8, dtype=torch.float32) / 4
    options = {"activation": u.norm(dim=-1), "routing": "em", "parameters": layer.learned()}
    torch.testing.assert_close(layer(u), route(layer.graph(), layer.votes(u), **options).v)
    options["activation"] = None
    assert not torch.allclose(layer(u), route(layer.graph(), layer.votes(u), **options).v, atol=1e-3)


def test_types_of_convolutional_capsules_have_costs_of_their_own_at_all_positions(draw):
    layer = ConvCaps((3, 4), child_types=2, parent_types=2, kernel=2, routing="em")
    with torch.no_grad():
        layer.learned.bias.copy_(torch.tensor([0.0, -100.0]))
    u = draw(24, 2, 8, dtype=torch.float32) / 4
    lengths = layer(u).norm(dim=-1).view(2, 2 * 3, 2)  # (types, positions, images)
    assert layer.learned().bias.tolist() == [0] * 6 + [-100] * 6
    assert lengths[1].amax() < lengths[0].amin()


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_layer_says_its_parents_lengths_outside_autocast(routing, draw):
    layer, u = CapsuleLayer(6, 3, routing=routing), draw(6, 2, 8, dtype=torch.float32) / 4
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(u), layer(u.clone()))
    v = layer(u)
    assert v.dtype == torch.float32 and ((v.norm(dim=-1) > 0) & (v.norm(dim=-1) < 1)).all()


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_pruned_layer_learns_the_same_and_gives_other_parents(routing, draw):
    layer, u = CapsuleLayer(6, 3, routing=routing), draw(6, 2, 8, dtype=torch.float32) / 4
    every, few = PrunedCaps(layer, torch.arange(18)), PrunedCaps(layer, torch.arange(0, 18, 2))
    torch.testing.assert_close(every(u), layer(u))
    assert [name for name, _ in few.named_parameters()] == [name for name, _ in layer.named_parameters()]
    assert not torch.allclose(few(u), layer(u))


@pytest.mark.parametrize("routing", ROUTINGS)
def test_trace_capsule_usage_and_network_see_the_same_parents(routing):
    net, test = net_with(routing), small.digits().test
    with torch.no_grad():
        if routing == "spherical":
            net.capsules.learned.exponent.zero_()  # kappa 1: an untrained layer couples equally to within 1 %
        lengths = net(to_float(test.pixels)).lengths
    states = routing_of(net, to_float(test.pixels))
    torch.testing.assert_close(torch.from_numpy(states.lengths[0, 2]), lengths, rtol=1e-4, atol=1e-5)
    b, c = (getattr(states, name)[0].astype(np.float32).reshape(10, -1, 16, 10) for name in ("b", "c"))
    nobodys = 1 / (1 + np.exp(b).sum(-1)) if routing == "nobody" else 0
    assert np.allclose(c.sum(-1) + nobodys, 1, atol=0.01)
    found = capsule_usage(net, Batches(test, 20))
    torch.testing.assert_close(found.parent_length.float(), lengths.amax(0), rtol=1e-4, atol=1e-5)
    uniform = found.starved_children.all() and found.starved_parents.all()
    assert uniform == (routing == "uniform")


@pytest.fixture(scope="module", params=["uniform", "attention", "inverted", "em"])
def run(request, tmp_path_factory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        config = small.config(tmp_path_factory.mktemp("runs"), routing=request.param)
        return Run.open(train(config, progress=False)["run"])


def test_training_moves_what_a_routing_learns_and_a_run_brings_it_back(run):
    net = load(run.path)
    assert net.capsules.routing == run.config.routing
    began = net_with(run.config.routing).capsules
    if began.learned is not None:
        for trained, new in zip(net.capsules.learned.parameters(), began.learned.parameters(), strict=True):
            assert not torch.equal(trained, new)
    kappa = [net.capsules.learned().concentration.item()] if run.config.routing == "spherical" else []
    assert run.result()["concentration"] == kappa


def test_what_is_drawn_and_explained_is_there_for_every_routing(run, monkeypatch, capsys):
    small.use(monkeypatch)
    trace = run.trace()
    assert isinstance(trace, RoutingTrace) and trace.about["routing"] == run.config.routing
    tree = parse_tree(trace, image=0)
    assert tree.graph.get("note") == NOTES.get(run.config.routing)
    main(["viz", str(run.path), "--what", "entropy", "--format", "png"])
    main(["explain", str(run.path)])
    said = capsys.readouterr().out
    assert ("note: " in said) == (run.config.routing in NOTES)
    assert (run.path / "explain" / "capsules.json").exists()


@pytest.mark.parametrize("routing", ["dynamic", "attention", "spherical"])
def test_a_learned_prior_is_where_the_routing_starts(routing):
    torch.manual_seed(0)
    layers = [
        CapsuleLayer(6, 3, routing=routing, learned_prior=True),
        SharedCaps(2, torch.rand(3, 2), 3, routing=routing, learned_prior=True),
    ]
    for layer in layers:
        u = squash(torch.randn(6, 2, 8))
        torch.testing.assert_close(layer(u), route(layer.graph(), layer.votes(u), **_options(layer), prior=None).v)
        torch.nn.init.normal_(layer.prior)
        found = layer(u)
        torch.testing.assert_close(found, route(layer.graph(), layer.votes(u), **_options(layer), prior=layer.prior).v)
        found.square().sum().backward()
        assert layer.prior.grad.abs().min() > 0
        before = layer.prior.clone()
        layer.reset_parameters()
        assert before.any() and not layer.prior.any()


def _options(layer):
    return {"routing": layer.routing, "parameters": layer.learned() if layer.learned else None}


def test_a_pruned_layer_keeps_the_priors_of_its_edges():
    layer = CapsuleLayer(4, 3, learned_prior=True)
    torch.nn.init.normal_(layer.prior)
    assert PrunedCaps(layer, torch.tensor([1, 5, 11])).prior.tolist() == layer.prior[[1, 5, 11]].tolist()
    assert not PrunedCaps(layer.requires_grad_(False), torch.tensor([1, 5, 11])).prior.requires_grad


@pytest.mark.parametrize("routing", ["spherical", "em", "inverted"])
@pytest.mark.parametrize("make", [lambda **how: CapsuleLayer(6, 3, **how), lambda **how: ConvCaps(3, 2, 2, 2, **how)])
def test_reset_parameters_forgets_what_the_routing_has_learned(routing, make):
    layer = make(routing=routing)
    for parameter in layer.parameters():
        torch.nn.init.constant_(parameter, 7.0)
    layer.reset_parameters()
    assert not any((parameter == 7).any() for parameter in layer.parameters())
