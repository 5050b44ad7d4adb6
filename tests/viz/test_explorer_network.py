"""The network in the explorer's page says what PyTorch says, and a page without one says why."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from traces import as_base64, stored_in

from graphcaps import CapsNet, GraphcapsError, TrainConfig, cli
from graphcaps.explore.network import network_data, page_parts
from graphcaps.images import recording
from graphcaps.images.data import ImageSplits
from graphcaps.images.models.matrix import MatrixCapsNet
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import Run
from graphcaps.routing import Dynamic, Spherical
from graphcaps.viz.explorer.html import explorer_page

from .browser import page_that_computes
from .live import answer, digits, network

SIZE = (1, 28, 28)
# (preset, shape, options): every stem, every kind of layer, every routing that the page knows
NETWORKS = [
    ("compact", (3, 20, 24), {"routing": "attention", "prior": "learned"}),
    pytest.param("parts", SIZE, {"routing": "spherical"}, marks=pytest.mark.long),
    ("parts", (1, 20, 16), {"routing": Dynamic(2)}),
    ("deep", (1, 26, 23), {}),
    pytest.param("paper", (3, 20, 18), {"routing": "uniform"}, marks=pytest.mark.long),
]

ASK = """({ found, pixels, rounds }) => {
  const network = new Network(asBytes(found)), { last } = network, u_hat = network.votes(pixels);
  const states = last.route(u_hat, rounds), at = states[last.iterations - 1];
  const longest = at.lengths.indexOf(Math.max(...at.lengths));
  const capsule = at.v.slice(longest * last.dim, (longest + 1) * last.dim);
  return {
    lengths: states.map(({ lengths }) => [...lengths]),
    c: states.map(({ c }) => [...c]),
    picture: [...network.decode(longest, capsule)],
  };
}"""


@pytest.fixture(scope="module")
def ask(chromium):
    """A function that gives the page's numbers of all iterations for a network and pixels (C, H, W)."""
    page = page_that_computes(chromium, network="Network")

    def answers(model: CapsNet, pixels: np.ndarray) -> dict:
        asked = {"found": as_base64(network_data(model)), "pixels": pixels.ravel().tolist(), "rounds": 10}
        return page.evaluate(ASK, asked)

    return answers


def trained(preset: str, shape: tuple[int, int, int], options: dict) -> CapsNet:
    """A network with its own statistics, priors and concentration, all of them exact in half precision."""
    model = copy.deepcopy(network(preset, shape, **options))
    torch.manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 2)
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(std=0.1)
        if model.capsules.prior is not None:
            model.capsules.prior.normal_()
        if isinstance(model.capsules.routing, Spherical):
            model.capsules.routing.exponent.fill_(0.1)  # kappa 2.7
        if len(model.between):
            model.capsules.weight /= 12  # its children are long
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    return model


@pytest.mark.parametrize(("preset", "shape", "options"), NETWORKS, ids=lambda value: str(value))
def test_lengths_couplings_and_pictures_are_pytorchs(ask, preset, shape, options):
    model = trained(preset, shape, options)
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    got, wanted = ask(model, pixels), answer(model, pixels)
    assert np.ptp(wanted.lengths[2]) > 0.005  # not all alike
    np.testing.assert_allclose(got["lengths"], wanted.lengths, atol=2e-4)
    np.testing.assert_allclose(got["c"], wanted.c, atol=1e-3)  # a trace keeps 11 bits of them
    assert np.abs(np.array(got["picture"]) - wanted.tops[0][3].ravel().astype(int)).max() <= 4


def test_what_the_page_cannot_compute_is_named():
    with pytest.raises(GraphcapsError, match="the page doesn't support MatrixCapsNet"):
        network_data(MatrixCapsNet.from_preset("matrix-small"))
    with pytest.raises(GraphcapsError, match="the page doesn't support routing 'em'"):
        network_data(network(routing="em"))
    for broken, value in (("stem.0.weight", float("nan")), ("capsules.weight", 1e6), ("decoder.layers.0.bias", np.inf)):
        model = copy.deepcopy(network())
        dict(model.named_parameters())[broken].data.flatten()[0] = value
        with pytest.raises(GraphcapsError, match="NaN, infinity"):
            network_data(model)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run folder with weights after three epochs and a trace of five."""
    made = Run.create(TrainConfig(dataset="digits", out=tmp_path_factory.mktemp("runs"), name="live"))
    head = {"preset": network().preset, "class_names": network().class_names, "state": {"epoch": 3}, "limits": []}
    checkpoint.write(made.checkpoint("best"), checkpoint.model_tensors(network()), head)
    few, trace = digits(), None
    splits = ImageSplits("digits", network().class_names, few, few, few)
    for epoch in (0, 1, 5):
        about = {"run": "live", "dataset": "digits", "model": "compact"}
        trace = recording.record(trace, network(), splits, epoch, "cpu", about)
    trace.save(made.path / "trace.npz")
    return made


def test_the_page_of_a_run_has_its_best_weights_and_ends_with_their_routing(run):
    trace, carried, without = page_parts(run)
    assert without == "" and carried["epoch"] == 3 and trace.epochs.tolist() == [0, 1, 3]
    wanted = answer(network(), trace.images[2])
    np.testing.assert_allclose(trace.lengths[-1, :, 2], wanted.lengths, atol=1e-5)
    data = stored_in(explorer_page(trace, 0, carried))
    assert data["source"] == ["run live", "3 epochs"] and data["network"]["desk"]["detail"] == 8
    assert data["without"] == ""


def test_explore_writes_the_page_and_opens_it_where_there_is_a_display(run, monkeypatch, capsys, tmp_path):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    path = tmp_path / "explorer.html"
    for display, words, wanted in ((":0", [], [path.as_uri()]), (":0", ["--no-open"], []), ("", [], [])):
        opened.clear()
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.setattr("sys.platform", "linux")
        assert cli.main(["explore", str(run.path), "--to", str(tmp_path), *words]) == 0
        assert capsys.readouterr().out == f"{path}\n" and opened == wanted
    assert stored_in(path.read_text(encoding="utf-8"))["network"]["epoch"] == 3
