"""Triton's kernels by node equal engine torch in float64, on CUDA, in Triton's interpreter, and compile for an H200."""

import dataclasses
from unittest.mock import MagicMock, Mock

import pytest
import torch
from gpu_kernels import compile_for, device_of_kernels, out_of_resources, outside_only, run_in_interpreter
from torch.utils._python_dispatch import TorchDispatchMode

from graphcaps import dgl, engine
from graphcaps.algorithms.votes import NodeVotes
from graphcaps.graph import links_of_graph
from graphcaps.kernels import KernelError
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Dynamic, Spherical, Uniform, route_nodes


@outside_only
@pytest.mark.long
@pytest.mark.fact(12)
def test_what_follows_holds_in_the_interpreter():
    run_in_interpreter(__file__, "-m", "")


CODE = """
from graphcaps.graph import Links
from graphcaps.routing import Rule
from graphcaps.kernels.gpu import nodes
from graphcaps.algorithms.votes import Finish, NodeVotes

nodes.SEGMENT, ends = 2, torch.tensor([[0, 1, 1, 2, 1, 1], [1, 0, 2, 1, 1, 1]])
for caps, dim, dtype, kappa, iterations, mutual, per_edge in [
    (8, 16, torch.float32, 1.0, 3, False, False),
    (8, 16, torch.bfloat16, None, 3, True, False),
    (3, 5, torch.float16, 1.0, 2, True, True),
    (1, 1, torch.float32, None, 4, False, True),
    (33, 31, torch.float32, 1.0, 3, False, False),
    (7, 6, torch.float32, None, 1, False, False),
]:
    z = torch.zeros(6 if per_edge else 3, caps, dim, dtype=dtype, requires_grad=True)
    scale = torch.ones(6, caps, requires_grad=True) if caps < 8 else None
    kappa = None if kappa is None else torch.ones((), requires_grad=True)
    rule = Rule(iterations, "capsules" if kappa is None else "directions", kappa)
    power = torch.ones(len(z), requires_grad=True) if caps < 33 else None
    finish = (None, None, None) if scale is None else (torch.ones(caps, dim), torch.ones(3, caps, dim), torch.ones(3))
    votes = NodeVotes(z, scale, per_edge, None, Finish(power, *finish))
    nodes.sums_by_node(Links(*ends, 3, 3), votes, rule, mutual, caps < 8).v.sum().backward()
"""


@outside_only
@pytest.mark.long
def test_every_kernel_compiles_for_an_h200_and_fits_its_shared_memory(tmp_path):
    compile_for("H200", CODE, {"route_node", "route_segment", "finish_hub", "finish_node"}, tmp_path)


device = pytest.fixture(device_of_kernels)


def graph():
    """Edges in both directions, two of them parallel, and a self-loop. Node 4 has 5 in-edges, node 6 none."""
    src, dst = torch.tensor([[0, 1, 2, 3, 3, 5], [4, 4, 4, 4, 4, 1]])
    return dgl.graph((torch.cat([src, dst, src[:1]]), torch.cat([dst, src, src[:1]])), num_nodes=7)


def routed(device, routing, z, scale, mutual, per_edge, traced=False, exact=False):
    """s, couplings, and the gradients of z, scale and kappa, all in float64 on the CPU."""
    device, dtype = ("cpu", torch.float64) if exact else (device, torch.float32)
    routing = routing.to(device, dtype)
    leaves = [z.to(device, dtype if exact else z.dtype).requires_grad_(), scale.to(device, dtype).requires_grad_()]
    links = links_of_graph(graph(), device)
    if traced:  # the operator finds the hubs, as in a program that torch compiled
        links = dataclasses.replace(links, traced=True, cache={})
    with engine("torch" if exact else "fused"):
        s, c, _ = route_nodes(links, NodeVotes(*leaves, per_edge), routing, mutual, coupling=True)
    cotangent = torch.randn(s.shape, generator=torch.Generator().manual_seed(2)).to(s)
    gradients = torch.autograd.grad(s, [*leaves, *routing.parameters()], cotangent, allow_unused=True)
    return [x.detach().cpu().double() for x in (s, c, *gradients) if x is not None]


MUTUAL, EDGE, HUB, SORTED, HALF, TRACED = "mutual", "per edge", "hub", "deterministic", "bfloat16", "traced"
CASES = {
    "hub": (Spherical(2, 2.0), (3, 5), (HUB,)),
    "hub traced": (Spherical(3, 2.0), (3, 5), (HUB, TRACED)),
    "per edge": (Dynamic(2), (4, 8), (HUB, EDGE)),
    "mutual": (Spherical(2), (3, 4), (MUTUAL,)),
    "mutual traced": (Dynamic(2), (3, 4), (MUTUAL, TRACED, HUB)),
    "one capsule": (Spherical(3, 2.0), (1, 5), (HUB, SORTED)),
    "uniform": (Uniform(1), (3, 5), (HUB, SORTED)),
    "mutual hub": (Dynamic(3), (4, 3), (MUTUAL, EDGE, HUB)),
    "mutual half": (Spherical(3), (4, 8), (MUTUAL, HALF, SORTED)),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_equal_engine_torch_in_float64(device, monkeypatch, case):
    from graphcaps.kernels.gpu import nodes

    routing, (caps, dim), options = CASES[case]
    monkeypatch.setattr(nodes, "SEGMENT", 4 if HUB in options else 128)
    draw = torch.Generator().manual_seed(1)
    z = torch.randn(13 if EDGE in options else 7, caps, dim, generator=draw)
    z = z.bfloat16() if HALF in options else z
    call = routing, z, torch.rand(13, caps, generator=draw), *(option in options for option in (MUTUAL, EDGE, TRACED))
    torch.use_deterministic_algorithms(SORTED in options)
    try:
        got = routed(device, *call)
        again = routed(device, *call) if SORTED in options else got
    finally:
        torch.use_deterministic_algorithms(False)
    # Float32: sums of few numbers, whose gradients lose two digits. A bfloat16 gradient has 8 bits: 4e-3.
    tolerance = 1e-2 if HALF in options else 1e-4
    torch.testing.assert_close(got, routed(device, *call, exact=True), rtol=tolerance, atol=tolerance)
    assert all(map(torch.equal, got, again))


@pytest.mark.parametrize(
    "options",
    [{}, {"residual": True}, {"unit_votes": True, "residual": True}, {"mutual": True, "edge_feats": 2}]
    + [{"routing": "dynamic", "bias": False, "normalise": False, "residual": True}],
)
def test_a_step_of_a_layer_equals_engine_torch_also_captured(device, options):
    layer = CapsuleConv(6, 5, 3, allow_zero_in_degree=True, **options).to(device)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    joined, x, a = graph(), torch.randn(7, 6, device=device), torch.randn(13, 2, device=device)
    with engine("torch"):
        exact = step(layer.double(), joined, x.double(), a.double())
    got = step(layer.float(), joined, x, a)
    if device == "cuda":
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            got = step(layer, joined, x, a)
        captured.replay()  # on the stream that the comparison waits for
    torch.testing.assert_close([y.double() for y in got], exact, rtol=1e-3, atol=1e-4)


def test_a_graph_without_nodes_has_gradients(device):
    layer, x = CapsuleConv(6, 5, 3).to(device), torch.zeros(0, 6, device=device)
    out, *slopes = step(layer, dgl.graph(([], []), num_nodes=0, device=device), x, None)
    assert out.shape == (0, 3, 5) and not any(slope.any() for slope in slopes)


def test_zero_votes_have_finite_gradients(device):
    s, c, *gradients = routed(device, Spherical(2), torch.zeros(7, 3, 4), torch.ones(13, 3), False, False)
    assert not s.any() and gradients[0].any() and all(x.isfinite().all() for x in gradients)
    torch.testing.assert_close(c, torch.full_like(c, 1 / 3))


@pytest.mark.parametrize("segment", [4, 128])
def test_where_squares_overflow_the_result_is_nan_as_that_of_engine_torch(device, monkeypatch, segment):
    from graphcaps.kernels.gpu import nodes

    monkeypatch.setattr(nodes, "SEGMENT", segment)
    call = links_of_graph(graph(), device), NodeVotes(torch.full((7, 2, 1), 1e19, device=device)), Spherical(2)
    with engine("torch"):
        exact = route_nodes(*call, coupling=True)[:2]
    got = route_nodes(*call, coupling=True)[:2]
    assert got[0].isnan().any() and not got[0].isnan().all()  # node 6 has no in-edges
    torch.testing.assert_close(got, exact, equal_nan=True)


def test_the_operator_can_be_traced_and_refuses_second_derivatives_and_explains_failures(device, monkeypatch):
    from graphcaps.kernels.gpu import nodes

    z, kappa = torch.randn(7, 3, 4, device=device, requires_grad=True), torch.ones((), device=device)
    by_node, hubs = nodes.edges_by_node(links_of_graph(graph(), device), False)
    finish = [torch.rand(size, device=device) for size in ((7,), (3, 4), (7, 3, 4), (7,))]
    given = [z, z.new_empty(0), kappa.requires_grad_(), *finish, *by_node, *hubs], [2, 0, 0, 1, 0, 1, 0]
    torch.library.opcheck(torch.ops.graphcaps.by_node_on_gpu.default, given)
    (slope,) = torch.autograd.grad(torch.ops.graphcaps.by_node_on_gpu(*given)[1].sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative: .*engine.'torch'"):
        slope.sum().backward()
    monkeypatch.setattr(nodes.kernels, "route_node", MagicMock(__getitem__=lambda *grid: out_of_resources()))
    with pytest.raises(KernelError, match="Required: 114688.*Use engine 'torch'"):  # compiled programs call it so
        torch.ops.graphcaps.by_node_on_gpu(*given)


class Waits(TorchDispatchMode):
    """Counts what would wait for a GPU; ``tolist`` is counted by a patch, because torch hides it from a mode."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        reads = str(operation).startswith(("aten._local_scalar_dense", "aten.nonzero", "aten.repeat_interleave"))
        self.count += reads and args[0].numel() > 0 and not (kwargs or {}).get("output_size")
        return operation(*args, **(kwargs or {}))


@outside_only
def test_a_new_graph_of_pyg_waits_for_a_gpu_three_times_and_its_edges_stay_there(monkeypatch):
    edges = pytest.importorskip("graphcaps.pyg.edges", exc_type=ImportError)
    from graphcaps.kernels.gpu.nodes import edges_by_node

    to_list, copies = torch.Tensor.tolist, Mock()
    for name in ("cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, copies)
    ends = torch.stack([torch.arange(500) % 50, torch.arange(500) % 7])  # node 0 has fewer in-edges than a hub
    with Waits() as waits:
        monkeypatch.setattr(torch.Tensor, "tolist", lambda x: setattr(waits, "count", waits.count + 1) or to_list(x))
        links = edges.links_of_edges(ends, (50, 50), loops=True, one_kind=True).links
        edges_by_node(links, False)
    assert waits.count == 3 and not copies.called  # the bounds of the ends, the number of loops, that of hubs


def step(layer, joined, x, a):
    learned = [x.requires_grad_(), *layer.parameters()]
    out = layer(joined, x, edge_feat=a if layer.capsules.edge_feats else None)
    return [out.detach(), *torch.autograd.grad(out, learned, out)]
