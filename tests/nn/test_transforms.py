"""Layers in exported programs, in traces and under torch.func's transforms, before any other call."""

from __future__ import annotations

import pytest
import torch
from packaging.version import Version
from torch.export import Dim
from torch.func import functional_call, grad, jacrev

from graphcaps import dgl
from graphcaps.graph import bipartite
from graphcaps.nn import CapsuleConv, CapsuleLayer

NEW = Version(torch.__version__).release >= (2, 9)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_graph_made_before():
    bipartite._complete.cache_clear()


RING = dgl.add_self_loop(dgl.graph(([0, 1, 2, 3], [1, 2, 3, 0])))
ENTER = {
    "layer": (CapsuleLayer(12, 3), lambda layer, u: layer(u), torch.rand(12, 2, 8)),
    "conv": (CapsuleConv(4, 3, num_caps=2), lambda layer, x: layer(RING, x), torch.rand(4, 4)),
}


@pytest.mark.skipif(
    not NEW, reason="torch 2.4 fails for the graph layer: FuncTorchGradWrapper is no device; 2.14 was tried"
)
@pytest.mark.parametrize("name", ENTER)
def test_gradients_of_functions_are_autograds(name):
    layer, call, x = ENTER[name]
    parameters = dict(layer.named_parameters())
    inputs = (x,) if name == "layer" else (RING, x)
    found = grad(lambda weights: functional_call(layer, weights, inputs).square().sum())(parameters)
    wanted = torch.autograd.grad(call(layer, x).square().sum(), list(parameters.values()))
    torch.testing.assert_close(list(found.values()), list(wanted))
    columns = jacrev(lambda x: call(layer, x))(x)
    torch.testing.assert_close(columns, torch.autograd.functional.jacobian(lambda x: call(layer, x), x))


def test_shapes_are_found_without_numbers():
    layer = CapsuleLayer(12, 3)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert layer(torch.rand(12, 2, 8)).shape == (3, 2, 16)


class Graph(torch.nn.Module):
    """A graph network whose inputs all have names of their own."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index, edge_attr):
        return self.layer(x, edge_index, edge_attr=edge_attr)


@pytest.mark.skipif(not NEW, reason="torch below 2.9 writes no such ONNX")
def test_a_graph_layer_is_exported_for_any_graph(tmp_path):
    pyg = pytest.importorskip("graphcaps.pyg", reason='needs pip install -e ".[pyg]"')
    onnxruntime = pytest.importorskip("onnxruntime", reason='needs pip install -e ".[export]"')
    network = Graph(pyg.CapsuleConv(4, 3, num_caps=2, edge_dim=2)).eval()

    def draw(nodes, edges):
        return torch.rand(nodes, 4), torch.randint(nodes, (2, edges)), torch.rand(edges, 2)

    sizes = {"x": {0: Dim("N", min=2)}, "edge_index": {1: Dim("E", min=2)}, "edge_attr": {0: Dim("E", min=2)}}
    others = draw(9, 30)
    exported = torch.export.export(network, draw(5, 11), strict=False, dynamic_shapes=sizes)
    torch.testing.assert_close(exported.module()(*others), network(*others))
    program = torch.onnx.export(network, draw(5, 11), dynamo=True, dynamic_shapes=sizes, verbose=False)
    program.save(tmp_path / "graph.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "graph.onnx")
    found = session.run(None, {name: value.numpy() for name, value in zip(sizes, others, strict=True)})[0]
    torch.testing.assert_close(torch.from_numpy(found), network(*others))
