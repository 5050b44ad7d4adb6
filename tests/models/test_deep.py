"""The preset ``deep``, from training to pictures: everything shows the routing of its last layer."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest
import small
import torch
from traces import stored_in

import graphcaps
from graphcaps import CapsNet, train
from graphcaps.analysis.accuracy import evaluate
from graphcaps.cli import main
from graphcaps.data import Batches, to_float
from graphcaps.models import capsnet_loss
from graphcaps.training.run_folder import Run

pytestmark = pytest.mark.long  # the layers and the pictures are tested one by one elsewhere

SIZE = 24  # the smallest but one: 16 types at 1 x 1 position enter the last layer


@pytest.fixture(autouse=True)
def images(monkeypatch):
    small.use(monkeypatch, small.digits(size=SIZE))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch, small.digits(size=SIZE))
        return Path(train(small.config(out, model="deep"), progress=False)["run"])


def test_it_learns_digits_in_thirty_steps():
    splits = small.digits(train=600, test=100, size=SIZE)
    torch.manual_seed(0)
    net = CapsNet.from_preset("deep", splits.image_shape)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    batches = Batches(splits.train, 40, seed=0, augment="none")
    for images, labels in (pair for epoch in (0, 1) for pair in batches.epoch(epoch)):
        capsnet_loss(net(images, labels), images, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert evaluate(net, Batches(splits.test, 50)).accuracy > 0.7


def test_the_trace_is_the_last_layers_routing(run):
    trace, net = Run.open(run).trace(), graphcaps.load(run, "last")
    layer, images = net.capsules, to_float(torch.from_numpy(trace.images))
    assert (trace.num_children, trace.num_parents, trace.num_edges) == (16, 10, 160)
    assert trace.saliency.shape == (10, 16, SIZE, SIZE)
    with torch.no_grad():
        v = layer(net.children_of(images))
        np.testing.assert_allclose(trace.lengths[-1, 2].T, v.norm(dim=-1), atol=1e-5)
        np.testing.assert_allclose(trace.lengths[-1, 2], net(images).lengths, atol=1e-5)


def test_viz_explain_and_explore_take_such_a_run(run, capsys, monkeypatch):
    monkeypatch.setattr("graphcaps.explore.of_run.load_images", lambda *args, **options: small.digits(size=SIZE))
    assert main(["viz", str(run), "--format", "png", "--what", "all"]) == 0
    assert main(["explore", str(run), "--no-open"]) == 0
    assert main(["explain", str(run), "--image", "3"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert (run / "figures/explorer.html").is_file() and all(Path(line).is_file() for line in printed if "/" in line)
    tree = networkx.read_graphml(run / "explain/image-3.graphml", force_multigraph=True)
    assert {tree.nodes[child]["layer"] for child, _ in tree.edges()} == {0}
    data = stored_in((run / "figures/explorer.html").read_text(encoding="utf-8"))
    assert data["images"][0]["saliency"] and [layer["children"] for layer in data["network"]["layers"]][-1] == 16
