"""Half precision, NaN, edges that point the wrong way, the meta device, and FSDP."""

import pytest
import torch
import torch.distributed

from graphcaps import complete_graph, dgl, route, squash
from graphcaps.functional import squash_scaled
from graphcaps.images.models import from_preset
from graphcaps.nn import BeliefConv, CapsuleConv, CapsuleLayer, MatrixPrimaryCaps, PrimaryCaps

pytestmark = pytest.mark.usefixtures("one_thread")
STAR = dgl.graph(([0, 0, 0], [1, 2, 3]))


@pytest.mark.parametrize(("length", "dtype"), [(300, torch.bfloat16), (4e4, torch.float16)])
def test_long_vectors_in_half_precision_keep_their_direction(length, dtype):
    s = torch.tensor([[0.6 * length, 0.8 * length]], dtype=dtype)
    slope = torch.autograd.functional.jacobian
    for squashing in (squash, squash_scaled):
        torch.testing.assert_close(squashing(s), squash(s.float()).to(dtype))
        torch.testing.assert_close(slope(squashing, s), slope(squash, s.float()).to(dtype), atol=1e-4, rtol=0.02)


@pytest.mark.parametrize("place", ["u_hat", "prior", "activation", "feat"])
def test_nan_is_reported_with_the_argument_that_it_came_in(place):
    given = {"u_hat": torch.ones(6, 2, 4), "prior": torch.zeros(6, 2), "activation": torch.ones(3, 2)}
    given |= {"feat": torch.ones(4, 8)}
    given[place][1] = torch.nan
    with pytest.warns(UserWarning, match=f"NaN in {place}"):
        if place == "feat":
            BeliefConv(8, 2, 3)(dgl.to_bidirected(STAR), given["feat"])
            CapsuleConv(8, 2, 3)(dgl.to_bidirected(STAR), given["feat"])
        else:
            votes = {name: given[name] for name in ("prior", "activation")}
            assert route(complete_graph(3, 2), given["u_hat"], "em", **votes).activation.isnan().all()


@pytest.mark.parametrize("options", [{}, {"unit_votes": True}, {"squash_output": False}, {"routing": "uniform"}])
def test_squares_that_overflow_are_reported_and_no_capsule_is_zero(options):
    layer, graph = CapsuleConv(8, 1, 3, **options), dgl.to_bidirected(STAR)
    with pytest.warns(UserWarning, match=r"overflow: feat is up to 1e\+21"):
        assert layer(graph, torch.full((4, 8), 1e21)).isnan().all()
    with pytest.warns(UserWarning, match="overflow: u_hat is up to"):
        assert route(complete_graph(300, 9), torch.linspace(-8e18, 8e18, 2700)[:, None], "spherical").v.isnan().all()


def test_edges_that_point_the_wrong_way_are_reported(recwarn):
    layer = CapsuleConv(8, 2, 3, allow_zero_in_degree=True)
    for way in (dgl.reverse(STAR), dgl.add_self_loop(STAR)):  # to a club from its members; the advice of DGL's error
        with pytest.warns(UserWarning, match="no node both votes and gets votes"):
            layer(way, torch.ones(4, 8))
    with pytest.warns(UserWarning, match="no vote has another to agree with"):
        route(STAR, torch.ones(3, 8))
    route(dgl.reverse(STAR), torch.ones(3, 8))
    layer(dgl.graph(([0, 1], [1, 2])), torch.ones(3, 8))
    assert not recwarn


@pytest.mark.parametrize(("preset", "assign"), [("deep", True), ("parts", False), ("matrix-small", True)])
def test_a_network_made_on_the_meta_device_computes_the_same_with_loaded_weights(preset, assign):
    wanted, images = from_preset(name=preset, image_shape=(1, 28, 28), num_classes=3).eval(), torch.rand(2, 1, 28, 28)
    with torch.device("meta"):
        made = from_preset(name=preset, image_shape=(1, 28, 28), num_classes=3).eval()
    made = made if assign else made.to_empty(device="cpu")
    made.load_state_dict(wanted.state_dict(), assign=assign)
    assert torch.equal(made(images).scores, wanted(images).scores)
    assert BeliefConv(4, [2, 3], 2).to("meta").to_empty(device="cpu").beliefs.states.tolist() == [2, 3]


@pytest.mark.long
def test_fsdp_trains_every_layer_as_one_process_does():
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("torch has no fully_shard")
    layer = CapsuleLayer(6, 3, routing="spherical", learned_prior=True)
    cases = [(layer, torch.randn(6, 1, 8)), (CapsuleConv(8, 2, 3), dgl.to_bidirected(STAR), torch.randn(4, 8))]
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        for layer, *inputs in cases:
            wanted = layer(*inputs)
            slopes = torch.autograd.grad(wanted.square().sum(), list(layer.parameters()))
            fsdp.fully_shard(layer, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
            with torch.no_grad():
                assert torch.equal(layer(*inputs), wanted)
            layer(*inputs).square().sum().backward()
            for parameter, slope in zip(layer.parameters(), slopes, strict=True):
                assert torch.equal(parameter.grad.full_tensor(), slope)
    finally:
        torch.distributed.destroy_process_group()


def test_a_layer_in_float64_computes_in_float64():
    torch.manual_seed(0)
    first, last = PrimaryCaps(2, 2, 3, 2, 1).double(), CapsuleLayer(18, 3, 3, 5, "em").double()
    images = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: last(first(x)), images)
    assert all(x.dtype == torch.float64 for x in MatrixPrimaryCaps(2, 3).double()(images))
