"""The preset ``parts``, from training to pictures: children that see a part of the image, and what they vote for."""

import pytest
import small
import torch
from traces import stored_in

from graphcaps import CapsNet, RoutingTrace, train
from graphcaps.cli import main

SIZE = 19  # 8 types at 4 x 4 positions: too many children for pictures of their votes


@pytest.fixture(autouse=True)
def images(monkeypatch):
    small.use(monkeypatch, small.digits(size=SIZE))


def test_larger_images_have_more_positions_and_no_more_weights():
    for side, positions in ((28, 64), (40, 196)):
        net = CapsNet.from_preset("parts", (1, side, side))
        own = sum(p.numel() for name, p in net.named_parameters() if not name.startswith("decoder."))
        assert own == 132_608 and net.capsules.num_children == 8 * positions
        fields = net.receptive_fields()
        assert fields[:, 2:].unique().tolist() == [13]
        torch.testing.assert_close(net.capsules.places, (2 * (fields[:, :2] + 6.5) / side - 1).unsqueeze(1))


def test_pictures_explanations_and_the_explorer_are_made_of_it(tmp_path):
    train(small.config(tmp_path, model="parts"), progress=False)
    run = tmp_path / "run"
    trace = RoutingTrace.load(run / "trace.npz")
    assert trace.decoded_votes is None and trace.decoded_parents.shape[:3] == (10, 3, 10)  # with which strokes are tinted
    assert main(["viz", str(run), "--what", "graph", "--format", "png", "--to", str(tmp_path / "to")]) == 0
    assert (tmp_path / "to" / "graph.png").is_file()
    assert main(["explain", str(run), "--image", "1"]) == 0
    assert (run / "explain" / "image-1.png").is_file()
    assert main(["evaluate", str(run), "--device", "cpu"]) == 0
    assert main(["explore", str(run), "--no-open"]) == 0
    data = stored_in((run / "figures" / "explorer.html").read_text(encoding="utf-8"))
    assert len(data["fields"]["places"]) == 16
    assert data["network"]["layers"][0]["places"]
