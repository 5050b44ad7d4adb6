"""The preset ``deep``, from training to pictures: everything shows the routing of its last layer."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch

import graphcaps
from graphcaps import CapsNet
from graphcaps.analysis.accuracy import evaluate
from graphcaps.analysis.capsule_usage import capsule_usage
from graphcaps.cli import main
from graphcaps.data import Batches, to_float
from graphcaps.models import capsnet_loss
from graphcaps.trace.recording import kept_saliency, routing_of
from graphcaps.training.run_folder import Run

from . import small
from .traces import stored_in

pytestmark = pytest.mark.long  # the layers and the pictures are tested one by one elsewhere

SIZE = 24  # the smallest but one: 16 types at 1 x 1 position enter the last layer


@pytest.fixture(autouse=True)
def images(monkeypatch):
    small.use(monkeypatch, small.digits(size=SIZE))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    words = "train --dataset digits --model deep --epochs 2 --batch-size 40 --device cpu --name run --out"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        small.use(patch, small.digits(size=SIZE))
        assert main([*words.split(), str(out)]) == 0
    (out / "printed.txt").write_text(printed.getvalue())
    return out / "run"


def test_training_says_the_sizes_of_all_layers(run):
    printed = (run.parent / "printed.txt").read_text().splitlines()
    assert printed[1:3] == ["784 child capsules, 20736 edges, to", "144 child capsules, 2304 edges, to"]
    assert printed[3].startswith(
        "16 child capsules, 10 parents, 160 edges, 3 iterations of dynamic routing on engine '"
    )


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


def test_capsule_usage_is_of_the_last_layers_children(run):
    net = graphcaps.load(run)
    found = capsule_usage(net, Batches(small.digits(size=SIZE).test, 20))
    assert (found.num_types, len(found.child_length), len(found.parent_length)) == (16, 16, 10)


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


def test_of_a_larger_grid_the_trace_has_fields():
    """144 children on images of 32 x 32, at 3 x 3 positions."""
    net = CapsNet.from_preset("deep", (3, 32, 32)).eval()
    images = torch.zeros(1, 3, 32, 32)
    trace = dataclasses.replace(routing_of(net, images), saliency=kept_saliency(net, images))
    fields = trace.fields.reshape(16, 3, 3, 4)
    trace.check()
    assert trace.saliency is None
    assert (fields[..., 2:] == fields[0, 0, 0, 2]).all() and (fields[0, 1:, 0, 0] - fields[0, :-1, 0, 0] == 4).all()
