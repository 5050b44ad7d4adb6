"""Image layers with every routing: what they learn, where a prior enters, and what a run brings back."""

import pytest
import small
import torch

from graphcaps import route, squash, train
from graphcaps.algorithms.by_name import ROUTINGS, name_of
from graphcaps.images.analysis.capsule_usage import capsule_usage
from graphcaps.images.analysis.parse_tree import NOTES, in_words, parse_tree
from graphcaps.images.data import Batches, to_float
from graphcaps.images.recording import routing_of
from graphcaps.images.training.run_folder import Run, load
from graphcaps.nn import CapsuleLayer, ConvCaps, SharedCaps
from graphcaps.routing import Spherical

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def u(draw):
    return draw(6, 2, 8, dtype=torch.float32) / 4


@pytest.mark.parametrize(
    ("routing", "learned"),
    [
        ("attention", set()),
        ("spherical", {"exponent"}),
        ("inverted", {"norm.weight", "norm.bias", "head.weight", "head.bias"}),
        ("em", {"costs", "biases"}),
    ],
)
def test_a_layer_learns_what_its_routing_has(routing, learned, u):
    layer = CapsuleLayer(6, 3, routing=routing)
    names = {name.removeprefix("routing.") for name, _ in layer.named_parameters()} - {"weight"}
    assert names == learned
    layer(u).square()[..., 0].sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())


@pytest.mark.parametrize("make", [lambda: CapsuleLayer(6, 3, routing="em"), lambda: ConvCaps(3, 1, 2, 2, routing="em")])
def test_em_takes_a_childs_length_for_its_activation(make, draw):
    layer = make()
    u = draw(layer.num_children, 2, 8, dtype=torch.float32) / 4
    wanted = route(layer.graph(), layer.votes(u), layer.routing, activation=u.norm(dim=-1)).v
    torch.testing.assert_close(layer(u), wanted)
    assert not torch.allclose(layer(u), route(layer.graph(), layer.votes(u), layer.routing).v, atol=1e-3)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_routing_works_in_a_layer_and_under_autocast(routing, u):
    layer = CapsuleLayer(6, 3, routing=routing)
    v, call = layer(u), (layer.graph(), layer.votes(u), layer.routing)
    exact = route(*call).v
    assert v.dtype == torch.float32 and ((v.norm(dim=-1) > 0) & (v.norm(dim=-1) < 1)).all()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(u), v)
        assert torch.equal(layer(u.bfloat16()), layer(u.bfloat16().float()))
        assert torch.equal(route(*call).v, exact)


@pytest.mark.parametrize(
    "layer",
    [
        CapsuleLayer(6, 3, routing=Spherical(concentration=2.0), learned_prior=True),
        SharedCaps(2, torch.rand(3, 2), 3, routing="dynamic", learned_prior=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_learned_prior_is_where_the_routing_starts(layer):
    u = squash(torch.randn(6, 2, 8))
    torch.testing.assert_close(layer(u), route(layer.graph(), layer.votes(u), layer.routing).v)
    torch.nn.init.normal_(layer.prior)
    got = layer(u)
    torch.testing.assert_close(got, route(layer.graph(), layer.votes(u), layer.routing, prior=layer.prior).v)
    got.square().sum().backward()
    assert layer.prior.grad.abs().min() > 0
    layer.reset_parameters()
    assert not layer.prior.any()


@pytest.mark.parametrize("routing", ["spherical", "em", "inverted"])
def test_reset_parameters_forgets_what_the_routing_has_learned(routing):
    layer = ConvCaps(3, 2, 2, 2, routing=routing)
    for parameter in layer.parameters():
        torch.nn.init.constant_(parameter, 7.0)
    layer.reset_parameters()
    assert not any((parameter == 7).any() for parameter in layer.parameters())


@pytest.mark.parametrize("routing", ["spherical", "em"])
def test_a_run_brings_back_what_its_routing_learned_and_trace_usage_and_network_agree(routing, tmp_path, monkeypatch):
    small.use(monkeypatch)
    run = Run.open(train(small.config(tmp_path, routing=routing), progress=False)["run"])
    net, images = load(run.path, "last"), to_float(small.digits().test.pixels)
    assert name_of(net.capsules.routing) == routing
    torch.manual_seed(0)
    new = type(net).from_preset("compact", (1, 12, 12), 10, routing=routing)
    for trained, start in zip(net.capsules.routing.parameters(), new.capsules.routing.parameters(), strict=True):
        assert not torch.equal(trained, start)
    trace = run.trace()
    assert trace.about["routing"] == routing
    said = in_words(trace, parse_tree(trace, image=0))
    assert (NOTES[routing] in said) if routing in NOTES else ("note: " not in said)
    with torch.no_grad():
        scores = net(images).scores
    states = routing_of(net, images)
    last = net.capsules.routing.iterations - 1
    torch.testing.assert_close(torch.from_numpy(states.lengths[0, last]), scores, rtol=1e-4, atol=1e-5)
    [usage] = capsule_usage(net, Batches(small.digits().test, 20))
    torch.testing.assert_close(usage.parents.length.float(), scores.amax(0), rtol=1e-4, atol=1e-5)
