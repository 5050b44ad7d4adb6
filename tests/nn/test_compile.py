"""Layers in torch.compile without a break in the graph, and exported."""

import importlib

import pytest
import small
import torch
from packaging.version import Version
from torch._dynamo.utils import counters
from torch.export import Dim

from graphcaps import dgl
from graphcaps.graph import links_of_graph, local
from graphcaps.images.models import from_preset
from graphcaps.nn import BeliefConv, CapsuleConv, CapsuleLayer
from graphcaps.routing import Spherical

RELEASE = Version(torch.__version__).release
NEW = RELEASE >= (2, 9)
compiles = pytest.mark.skipif(RELEASE < (2, 8), reason="torch below 2.8 can't compile them in one piece")
pytestmark = pytest.mark.usefixtures("one_thread")
RING = dgl.add_self_loop(dgl.to_bidirected(dgl.graph(([0, 1, 2, 3], [1, 2, 3, 0]))))
EXACT = dict(rtol=1e-10, atol=1e-10)  # float64, sums of few terms


@pytest.fixture(autouse=True)
def before_any_other_call():
    local.links_of_layer.cache_clear()
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def step(net, called) -> list[torch.Tensor]:
    """Loss and gradients of a training step."""
    images = torch.rand(5, *net.image_shape, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(5) % 3
    loss = net.loss(called(images, labels), images, labels)
    learned = [p for p in net.parameters() if p.requires_grad]
    return [loss, *torch.autograd.grad(loss, learned, allow_unused=True)]


@compiles
def test_a_compiled_network_takes_the_step_of_the_network():
    torch.manual_seed(0)
    net = from_preset("compact", image_shape=(1, 12, 12), num_classes=3, routing=Spherical(3), prior="learned")
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for _ in range(2):  # the second call compiles nothing
        for got, wanted in zip(step(net, compiled), step(net, net), strict=True):
            # float32 through batch normalisation of five images, added up in another order
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4 * float(wanted.detach().abs().max()) + 1e-7)
        assert counters["stats"]["unique_graphs"] == 1


@compiles
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_a_compiled_layer_calls_the_kernels_of_the_layer(backend, draw):
    layer = CapsuleLayer(12, 3, routing=Spherical(3), learned_prior=True).double()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    bits = dict.fromkeys(("rtol", "atol"), 0 if backend == "aot_eager" else 1e-12)  # inductor adds in another order
    for images in (2, 5, 7):
        u = draw(12, images, 8).requires_grad_()
        values = [called(u) for called in (compiled, layer)]
        torch.testing.assert_close(*values, **bits)
        torch.testing.assert_close(
            *(torch.autograd.grad(v.sin().sum(), [u, *layer.parameters()]) for v in values), **bits
        )
    assert counters["stats"]["unique_graphs"] == 2  # the second for any number of images
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Capsules come first"):
        compiled(u.transpose(0, 1))


class OnPyG(torch.nn.Module):
    """Both layers for graphs, with code to compile before, between and after them."""

    def __init__(self):
        super().__init__()
        pyg = small.pyg()
        torch.manual_seed(0)
        self.into = torch.nn.Linear(6, 6)
        self.conv = pyg.CapsuleConv(6, 4, 3, residual=True, edge_dim=2, add_self_loops=False)
        self.readout = pyg.CapsuleReadout(12, 4, 2, shared=True)

    def forward(self, graph, x, weight, attr):
        edges, batch, num_graphs = graph
        h, (_, c) = self.conv(self.into(x).relu(), edges, weight, return_coupling=True, edge_attr=attr)
        h = h.sin().flatten(-2)
        return self.readout(h, batch, dim_size=num_graphs, prior=x[:, :2]).norm(dim=-1), c


@compiles
@pytest.mark.long
def test_compiled_layers_on_nodes_give_their_value_coupling_and_gradient(draw):
    net = OnPyG().double()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for nodes in ([5, 4], [7, 9, 2], [6, 2]):  # compiled code reads the graph at each call
        graphs = [dgl.to_bidirected(dgl.rand_graph(number, number)) for number in nodes]
        graph = dgl.batch([dgl.add_self_loop(each) for each in graphs])
        edges = graph.num_edges()
        x, attr = draw(sum(nodes), 6).requires_grad_(), draw(edges, 2)
        weight, cotangent = draw(edges).abs().requires_grad_(), draw(len(nodes), 2)
        batch = torch.arange(len(nodes)).repeat_interleave(torch.tensor(nodes))
        graph = torch.stack(graph.edges()), batch, len(nodes)
        (got, c), (wanted, own) = (called(graph, x, weight, attr) for called in (compiled, net))
        learned = x, weight, *net.parameters()
        gradients = [torch.autograd.grad(each, learned, cotangent) for each in (got, wanted)]
        torch.testing.assert_close((got, c, *gradients[0]), (wanted, own, *gradients[1]), **EXACT)


@compiles
@pytest.mark.long
def test_a_compiled_convolution_of_pyg_replaces_self_loops(draw):
    pyg = small.pyg()
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 0], [1, 0, 2, 1, 2, 3, 0]])
    conv, x = pyg.CapsuleConv(6, 4, 3, edge_dim=2, residual=True, mutual=True).double(), draw(5, 6).requires_grad_()
    attr, weight = draw(7, 2), draw(7).abs().requires_grad_()
    results = []
    for called in (conv, torch.compile(conv, backend="aot_eager", fullgraph=True)):
        out = called(x, edges, weight, edge_attr=attr)
        results.append((out, *torch.autograd.grad(out.sin().sum(), (x, weight, *conv.parameters()))))
    torch.testing.assert_close(*results, **EXACT)


@compiles
@pytest.mark.long
def test_compiled_beliefs_are_those_of_the_layer(draw):
    pyg = small.pyg()
    conv, x, batch = pyg.BeliefConv(6, 2, 3).double(), draw(4, 6), torch.tensor([0, 0, 1, 1])
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    results = []
    for called in (conv, torch.compile(conv, backend="aot_eager", fullgraph=True)):
        out, c = called(x, edges, batch=batch, return_coupling=True)
        results.append((out, c, *torch.autograd.grad(out.sin().sum(), tuple(conv.parameters()), allow_unused=True)))
    torch.testing.assert_close(*results, **EXACT)
    twin = BeliefConv(6, 2, 3).double()
    twin.load_state_dict(conv.state_dict())
    graph = dgl.batch([dgl.graph(([0, 1], [1, 0]))] * 2)
    torch.testing.assert_close(torch.compile(twin, backend="aot_eager")(graph, x), results[0][0], **EXACT)


@compiles
def test_a_compiled_layer_of_dgl_gives_its_value_and_gradient_and_refuses_a_node_without_in_edges(draw):
    layer, x = CapsuleConv(6, 4, 3, edge_feats=2, routing="dynamic").double(), draw(4, 6).requires_grad_()
    compiled, attr, results = torch.compile(layer, backend="aot_eager"), draw(RING.num_edges(), 2), []
    for called in (layer, compiled):
        out, c = called(RING, x, get_coupling=True, edge_feat=attr)
        results.append((out, c, *torch.autograd.grad(out.sin().sum(), (x, *layer.parameters()))))
    torch.testing.assert_close(*results, **EXACT)
    assert len(counters["graph_break"]) <= 1  # where the layer reads the graph
    with pytest.raises(dgl.DGLError, match="an in-edge for every node"):
        compiled(dgl.graph(([0, 1, 1, 2, 3, 0, 1, 0], [1, 0, 2, 1, 0, 1, 1, 0])), x, edge_feat=draw(8, 2))


@pytest.mark.long
def test_a_compiled_network_in_a_fresh_process_loads_numba_and_dgl_outside_of_the_compiler():
    code = (
        "import torch, graphcaps\n"
        "net = graphcaps.CapsNet.from_preset('compact', (1, 12, 12), 3).eval()\n"
        "got = torch.compile(net, backend='eager')(torch.ones(2, 1, 12, 12))\n"
        "assert torch.equal(got.lengths, net(torch.ones(2, 1, 12, 12)).lengths)\n"
        "from torch._dynamo.utils import counters; print(counters['stats']['unique_graphs'])"
    )
    done = small.python("-c", code)
    assert done.stdout.split() == ["1"] and "numba" not in done.stderr, done.stderr


def test_torch_accepts_the_operators(draw):
    for module in ("by_child", "by_node"):
        importlib.import_module(f"graphcaps.kernels.cpu.{module}")
    prior, ratio, nothing, complete = (
        draw(12 * 3, 2),
        draw(3, 2),
        draw(0),
        local.links_of_layer((12, 3), torch.device("cpu")),
    )
    *order, most, in_order = complete.by_child
    linear = [draw(12, 2, 8), draw(12 * 3, 8, 4), prior, ratio, nothing, nothing, *order]
    ring = links_of_graph(dgl.reverse(RING)).by_child
    given = [draw(12, 2, 4), nothing, nothing, nothing, nothing, nothing, *ring[:3]]
    scale, of_edges = draw(2, RING.num_edges(), 3)
    z, kappa = draw(4, 3, 2), draw(4, 3).square()
    nodes = [z, scale, of_edges, kappa, *links_of_graph(RING).by_parent(False)]
    calls = [
        ("by_child", linear, [3, 1, 1, 1, 3, most, in_order]),
        ("by_child", given, [2, 0, 0, 1, 4, ring.most, ring.sorted]),
        ("by_node", nodes, [0, 3, 0, 0, 1, 1]),
    ]
    for operator, tensors, settings in calls:
        tensors = [x.detach().requires_grad_(x.is_floating_point() and x.numel() > 0) for x in tensors]
        torch.library.opcheck(getattr(torch.ops.graphcaps, operator).default, (tensors, settings))


class Graph(torch.nn.Module):
    """A graph network whose inputs all have different names."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index, edge_attr):
        return self.layer(x, edge_index, edge_attr=edge_attr)


@pytest.mark.long
@pytest.mark.skipif(not NEW, reason="torch below 2.9 writes no such ONNX")
def test_a_graph_layer_is_exported_for_any_graph(tmp_path):
    pyg = small.pyg()
    onnxruntime = pytest.importorskip("onnxruntime", reason='needs pip install -e ".[export]"')
    network = Graph(pyg.CapsuleConv(4, 3, num_caps=2, edge_dim=2)).eval()

    def draw(nodes, edges):
        return torch.rand(nodes, 4), torch.randint(nodes, (2, edges)), torch.rand(edges, 2)

    sizes = {"x": {0: Dim("N", min=2)}, "edge_index": {1: Dim("E", min=2)}, "edge_attr": {0: Dim("E", min=2)}}
    others = draw(9, 30)
    exported = torch.export.export(network, draw(5, 11), strict=False, dynamic_shapes=sizes)
    torch.testing.assert_close(exported.module()(*others), network(*others))
    torch.onnx.export(exported, dynamo=True, verbose=False).save(tmp_path / "graph.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "graph.onnx")
    got = session.run(None, {name: value.numpy() for name, value in zip(sizes, others, strict=True)})[0]
    torch.testing.assert_close(torch.from_numpy(got), network(*others))
