"""Labels of ink held against strokes: the measure on made-up pixels, and what a network's capsules label by loops."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from experiments.__main__ import main
from experiments.tasks import images, strokes
from experiments.tasks.strokes import Ink, labellings, scores
from graphcaps import CapsNet
from graphcaps.nn.routed import route_layer

from .. import small

pytestmark = pytest.mark.usefixtures("one_thread")


def test_perfect_parts_have_1_and_random_ones_about_0():
    source = np.random.default_rng(0)
    image, stroke = np.arange(200).repeat(40), source.integers(0, 3, 8000)
    assert scores(image, stroke, 7 - stroke) == pytest.approx(np.ones(200))
    chance = scores(image, stroke, source.integers(0, 8, 8000))
    assert abs(chance.mean()) < 3 * chance.std() / 200**0.5 and abs(chance.mean()) < 0.02
    assert 0.3 < scores(image, stroke, np.where(stroke == 2, 1, stroke)).mean() < 0.9


@pytest.fixture
def ink() -> Ink:
    source = np.random.default_rng(0)
    image, row_column = np.arange(3).repeat(30), source.integers(0, 28, (90, 2))
    shown = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    return Ink(shown, np.arange(3), image, row_column, source.integers(0, 2, 90))


@pytest.mark.parametrize(("name", "first", "step"), [("deep", 5, 2)])
def test_a_pixel_is_labelled_by_the_longest_capsule_nearest_to_it(name, first, step, ink):
    """Fields begin at multiples of the step; ``first`` is the pixel in the middle of the first one."""
    torch.manual_seed(0)
    model = CapsNet.from_preset(name).eval()
    layer, last = model.between[0] if name == "deep" else model.capsules, {}
    with torch.no_grad():
        u = model.primary(model.stem(ink.images))
        route_layer(layer, u, on_iteration=lambda r, b, c, v, agreement: last.update(c=c))
    found, sides = labellings(model, ink), {"parts": 8, "deep": 9}[name]
    src, dst = layer.graph().edges()
    for m, (image, pixel) in enumerate(zip(ink.image, ink.pixel, strict=True)):
        row, column = np.clip(np.ceil((pixel - first) / step - 0.5), 0, sides - 1).astype(int)
        at = [kind * sides**2 + row * sides + column for kind in range(model.primary.num_types)]
        longest = max(at, key=lambda i: float(u[i, image].norm()))
        assert found["type"][m] == longest // sides**2
        edge = max((src == longest).nonzero().flatten().tolist(), key=lambda e: float(last["c"][e, image]))
        assert found["coupling"][m] == int(dst[edge]) // (16 if name == "deep" else 1)
    assert len(np.unique(found["stem, k-means"])) == model.primary.num_types


def write_strokes(folder, test) -> None:
    """Two strokes for each image: its ink in the left half, and that in the right."""
    found = [np.argwhere(pixels[0].numpy() > 127) for pixels in test.pixels]
    (folder / "mnist-strokes").mkdir()
    points = np.concatenate(found)
    start = np.cumsum([0, *map(len, found)])
    stroke = (points[:, 1] >= 14).astype(np.uint8)
    np.savez(folder / strokes.FILE, column_row=points[:, ::-1].astype(np.uint8), stroke=stroke, start=start)


def test_the_command_writes_a_table_and_goes_on(tmp_path, monkeypatch, capsys):
    data = small.digits(size=28)
    small.use(monkeypatch, data)
    for module in (images, strokes):
        monkeypatch.setattr(module, "load_images", lambda name, root: data)
    monkeypatch.setattr(strokes, "NETWORKS", ("parts",))
    monkeypatch.setattr(strokes, "SEEDS", 2)
    monkeypatch.setattr(strokes, "PER_CLASS", 1)
    monkeypatch.setattr(strokes, "TRAINING", {"dataset": "digits", "epochs": 1, "train_images": 120, "batch_size": 40})
    words = ["strokes", "--data", str(tmp_path), "--cache", str(tmp_path / "cache"), "--to", str(tmp_path / "to")]
    assert main(words) == 2
    assert "strokes: expected mnist-strokes/strokes-test.npz in" in capsys.readouterr().err
    write_strokes(tmp_path, data.test)
    assert main([*words, "--device", "cpu"]) == 0
    found = json.loads((tmp_path / "to" / "strokes.json").read_text())
    rows = {(row["labels"], row["state"]): row for row in found["labellings"]}
    assert sum(found["images"]) == 10 and len(rows) == 9 and len(rows["type", "trained"]["own"]["each"]) == 2
    assert rows["strokes", "no network"]["own"]["mean"] > 0.8  # positions are 2 pixels apart
    assert rows["position", "no network"]["digits"] == [0] * 10
    assert (tmp_path / "to" / "strokes.md").read_text() in capsys.readouterr().out
    monkeypatch.setattr(images, "train", None)
    assert main(words) == 0
