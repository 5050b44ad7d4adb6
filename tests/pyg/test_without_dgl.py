"""The library alone: it needs torch, numpy, numba and networkx. PyG's layers need no DGL, DGL's layers say so."""

import pytest
import small

from graphcaps import _dgl

pytest.importorskip("torch_geometric", reason='needs pip install -e ".[pyg]"')

CODE = """
import sys, warnings
absent = "dgl torchvision matplotlib PIL accelerate safetensors filelock sklearn joblib rich tyro".split()
sys.modules.update(dict.fromkeys(absent))  # each import of one fails
warnings.simplefilter("ignore")
import torch, graphcaps
from graphcaps import beliefs, nn, pyg, routing
from graphcaps.images.training.hardware import Hardware, made_with

edges, x = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.randn(3, 10, requires_grad=True)
layers = [pyg.CapsuleConv(10, 2, 3, mutual=mutual, residual=True) for mutual in (False, True)]
layers += [pyg.BeliefConv(10, 2, 3)]
for layer in layers:
    with graphcaps.watch(layer) as seen:
        watched = layer(x, edges)
    torch.testing.assert_close(watched, layer(x, edges))
    layer(x, edges).sum().backward()
pyg.CapsuleReadout(10, 2, 3)(x, torch.tensor([0, 0, 1])).sum().backward()
labels = torch.tensor([[0], [0], [-1]])
pyg.BeliefConv.from_labels(labels, edges)(labels, edges)
ring = torch.stack([torch.arange(40), torch.arange(40).roll(1)])
ring, labels = torch.cat([ring, ring.flip(0)], 1), torch.arange(40)[:, None] // 20
beliefs.fit_rates(pyg.BeliefConv.from_labels(labels, ring), ring, labels, epochs=1)
nn.CapsuleLayer(6, 2)(torch.randn(6, 4, 8)).sum().backward()
assert made_with(Hardware(torch.device("cpu")))["dgl"] == "none"  # else, no network for images could be trained
for call in (lambda: graphcaps.complete_graph(3, 2), lambda: routing.route(None, torch.ones(6, 4))):
    try:
        call()
    except graphcaps.GraphcapsError as error:
        print(error)
"""


def test_the_library_runs_where_nothing_else_is_installed():
    done = small.python("-c", CODE)
    first, second = done.stdout.splitlines() or [done.stderr, ""]
    assert first == f"dgl: expected it to be installed, got none. Run: {_dgl.install_command()}"
    assert second.startswith("graph: expected a DGLGraph, got None")
