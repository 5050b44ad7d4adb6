"""The CNNs: their papers' sizes, training to the end, and commands that say that they have no routing."""

from __future__ import annotations

import pytest
import small
from torch import nn

from graphcaps import train
from graphcaps.cli import main
from graphcaps.models import CNN, CapsNet
from graphcaps.training.run_folder import Run

pytestmark = pytest.mark.usefixtures("one_thread")


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_cnn_has_the_parameters_of_the_paper():
    net = CNN.from_preset("cnn")
    # section 5 of the 2017 paper: 35.4 M
    assert count(net) == 35_445_522
    convs = [layer for layer in net.layers if isinstance(layer, nn.Conv2d)]
    assert [(conv.out_channels, conv.kernel_size, conv.stride) for conv in convs] == [
        (channels, (5, 5), (1, 1)) for channels in (256, 256, 128)
    ]


def test_cnn_small_has_the_parameters_of_compact_without_its_decoder():
    ours, compact = CNN.from_preset("cnn-small", (3, 32, 32), 3), CapsNet.from_preset("compact", (3, 32, 32), 3)
    wanted = count(compact) - count(compact.decoder)
    assert abs(count(ours) - wanted) <= (128 + 1 + 3) / 2  # half of one unit's


@pytest.fixture
def run(tmp_path, monkeypatch):
    small.use(monkeypatch)
    train(small.config(tmp_path, model="cnn-small"), progress=False)
    return Run.open(tmp_path / "run")


def test_commands_take_a_cnn_or_say_that_it_has_no_routing(run, capsys):
    assert main(["evaluate", str(run.path)]) == 0 and "test accuracy" in capsys.readouterr().out
    assert main(["runs", "--out", str(run.path.parent)]) == 0 and "cnn-small" in capsys.readouterr().out
    for command in ("viz", "explain"):
        assert main([command, str(run.path)]) == 1
        wanted = f"graphcaps: {run}: expected a network that routes, got cnn-small, which has no capsules\n"
        assert capsys.readouterr().err.endswith(wanted)
