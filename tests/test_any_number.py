"""Any number of classes in an image: how they are read, what the loss makes of them, and a whole training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from graphcaps import CapsNet, InputError, load
from graphcaps.cli import main
from graphcaps.cli.tables import accuracy_table
from graphcaps.images.analysis.accuracy import Evaluation
from graphcaps.images.data import load_images
from graphcaps.images.models.answers import longest
from graphcaps.images.training.run_folder import Run

NAMES = ("bar", "dot", "frame")
SIDE = 12


def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (N, 12, 12) with any of a bar, a dot and a frame, and bool (N, 3): which of them."""
    shapes = np.zeros((3, SIDE, SIDE), bool)
    shapes[0, 2:10, 3], shapes[1, 5:8, 6:9], shapes[2, [0, -1]], shapes[2, :, [0, -1]] = 1, 1, 1, 1
    there = (np.arange(count)[:, None] >> np.arange(3)) % 2 == 1
    bright = np.random.default_rng(0).integers(150, 256, (count, SIDE, SIDE), np.uint8)
    return (there[:, :, None, None] & shapes).any(axis=1) * bright, there


def written(to: Path, count: int = 64) -> str:
    """The images as a data set, and its name."""
    images, there = drawn(count)
    np.savez(to / "shapes.npz", images=images, labels=there.astype(np.uint8))
    return f"npz:{to / 'shapes.npz'}"


def test_each_image_comes_with_all_of_its_classes(tmp_path):
    splits = load_images(written(tmp_path), tmp_path / "data", size=SIDE)
    assert splits.class_names == ("0", "1", "2") and splits.objects is None
    images, there = drawn(64)
    seen = []
    for part in (splits.train, splits.val, splits.test):
        for pixels, of in zip(part.pixels[:, 0].numpy(), part.labels.numpy(), strict=True):
            seen.append(int((images == pixels).all(axis=(1, 2)).nonzero()[0][0]) if of.any() else -1)
            assert of.dtype == bool and (seen[-1] < 0 or (there[seen[-1]] == of).all())
        assert len(part) in (44, 10) and part.labels.unique(dim=0).shape[0] == 8  # all sets of classes
    assert len(seen) == 64 and set(seen) == {-1, *np.flatnonzero(there.any(axis=1)).tolist()}


def test_a_class_per_image_stays_one_however_it_is_written(tmp_path):
    np.savez(tmp_path / "one.npz", images=drawn(30)[0], labels=np.eye(3)[np.arange(30) % 3])
    splits = load_images(f"npz:{tmp_path / 'one.npz'}", tmp_path)
    assert splits.objects == 1 and splits.train.labels.bincount().tolist() == [6, 6, 6]


def test_a_class_that_no_training_image_shows_is_named(tmp_path):
    labels = np.array([[[1, 1, 0], [1, 0, 0], [0, 1, 0]][k % 3] for k in range(30)] + [[1, 1, 1]])
    np.savez(tmp_path / "rare.npz", images=drawn(31)[0], labels=labels)
    with pytest.raises(InputError, match="training images of each class, got none of 2. Add some, or another --seed"):
        load_images(f"npz:{tmp_path / 'rare.npz'}", tmp_path)  # seed 0 holds out the one image
    load_images(f"npz:{tmp_path / 'rare.npz'}", tmp_path, seed=1)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_the_loss_reads_0_and_1_of_two_classes_as_0_and_1(dtype):
    """If they were class numbers, [1, 1] would be the second class twice, and [0, 1] both classes."""
    torch.manual_seed(0)
    net, images = CapsNet.from_preset("compact", (1, 12, 12), 2, objects=None).train(), torch.rand(4, 1, 12, 12)
    labels = torch.tensor([[1, 1], [0, 1], [0, 0], [1, 0]]).to(dtype)
    output = net(images, labels)
    there, v = labels.double(), output.lengths.double()
    margin = there * (0.9 - v).relu() ** 2 + 0.5 * (1 - there) * (v - 0.1).relu() ** 2
    together = net.decoder.layers((output.capsules * labels.float()[:, :, None]).flatten(1)).sigmoid()
    torch.testing.assert_close(output.reconstruction.flatten(1), together)
    wanted = margin.sum(1).mean() + 0.0005 * (together - images.flatten(1)).square().sum(1).mean()
    torch.testing.assert_close(net.loss(output, images, labels).double(), wanted)
    assert longest(output.lengths, None).tolist() == (output.lengths > 0.5).tolist()
    one = CapsNet.from_preset("compact", (1, 12, 12), 2)
    one.load_state_dict(net.state_dict())
    with pytest.raises(InputError, match=r"\(B=4,\) int64, got .*objects=None"):
        one.train()(images, labels)


def test_an_image_is_right_where_its_classes_are_found_and_no_others():
    labels = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]]).bool()
    answers = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1], [0, 0, 0]]).bool()
    result = Evaluation(answers, labels, 0.0, torch.full((4, 3), torch.nan))
    assert result.correct == 2
    assert [counts.tolist() for counts in result.per_class(3)] == [[2, 2, 0], [2, 1, 0], [2, 1, 1]]
    lines = accuracy_table(result, NAMES).splitlines()
    assert "all its classes are found and no others" in lines[1] and lines[-2].split()[:3] == ["dot", "2", "50.00%"]


def test_any_number_of_classes_is_learned_and_commands_take_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dataset, there = written(tmp_path, 240), drawn(240)[1]

    def says(*words: str) -> str:
        assert main([*words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    settings = ["--size", "12", "--epochs", "8", "--batch-size", "12", "--augment", "none"]
    assert "3 classes of " in says("train", "--dataset", dataset, *settings)
    run = Run.open(tmp_path / "runs" / "shapes-compact-1")
    network = load(run)
    assert network.objects is None and run.result()["test_accuracy"] > 0.8  # by chance 1 of 8 sets of classes
    predicted, labels = np.load(run.path / "answers.npz").values()
    assert predicted.dtype == labels.dtype == bool
    assert run.result()["test_correct"] == (predicted == labels).all(1).sum()
    path = str(run.path)
    assert "2 " in says("evaluate", path)
    both = int(np.flatnonzero((there == [True, True, False]).all(axis=1))[0])
    Image.fromarray(drawn(240)[0][both]).save("both.png")
    line = says("predict", path, "both.png")
    assert {line.split()[1], line.split()[3]} == {"0", "1"}
    assert Path(says("explore", path, "--no-open").split()[-1]).exists()
