"""Two digits in an image: how pairs are made, what is asked of a network, and a whole training."""

from pathlib import Path

import pytest
import torch

import graphcaps
from graphcaps import CapsNet, InputError, train
from graphcaps.cli import main
from graphcaps.cli.tables import accuracy_table
from graphcaps.functional import margin_loss
from graphcaps.images.analysis.accuracy import Evaluation, evaluate
from graphcaps.images.data import Batches, ImageSplits, Pairs
from graphcaps.images.models import capsnet_loss
from graphcaps.images.models.answers import is_correct, longest, overlaid
from graphcaps.images.training.run_folder import Run

from . import small

SIZE = 8


def digits(count: int, seed: int = 0) -> Pairs:
    """Images of 8 x 8: an upright bar, a level one, a frame or a cross, by class, each dot of its own brightness."""
    shapes = torch.zeros(4, SIZE, SIZE, dtype=torch.uint8)
    shapes[0, 1:7, 3:5], shapes[1, 3:5, 1:7], shapes[2, 1:7, 1:7] = 1, 1, 1
    shapes[2, 2:6, 2:6] = 0
    shapes[3] = torch.eye(SIZE).byte() | torch.eye(SIZE).byte().flip(0)
    labels = torch.arange(count) % 4
    bright = torch.randint(120, 256, (count, SIZE, SIZE), generator=torch.Generator().manual_seed(seed)).byte()
    return Pairs((shapes[labels] * bright)[:, None], labels)


def splits() -> ImageSplits:
    return ImageSplits("multimnist", tuple("abcd"), digits(60), digits(20, 1), digits(22, 2))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return CapsNet.from_preset("compact", (1, 16, 16), 4, objects=2).eval()


def place_in(layer: torch.Tensor, source: Pairs) -> set[tuple[int, int, int]]:
    """Every (image, down, right) of the source that gives this layer (16, 16), shifts counted from the centre."""
    inside = (layer * 255).round().to(torch.uint8).unfold(0, SIZE, 1).unfold(1, SIZE, 1)  # (9, 9, SIZE, SIZE)
    whole = inside.sum((2, 3)) == inside.sum((2, 3)).max()
    same = (source.pixels == inside.flatten(0, 1)).flatten(2).all(2).unflatten(1, (9, 9)) & whole  # (N, 9, 9)
    return {(k, down - 4, across - 4) for k, down, across in same.nonzero().tolist()}


@pytest.mark.parametrize("order", ["epoch", "in_order"])
def test_each_layer_is_a_digit_of_its_class_shifted_by_up_to_4_pixels(order):
    source, batches = digits(60), Batches(digits(60), 20)
    shifts, firsts = set(), []
    for layers, labels in batches.epoch(0) if order == "epoch" else batches.in_order():
        assert layers.shape == (20, 2, 1, 16, 16) and labels.shape == (20, 2) and labels.dtype == torch.int64
        assert order == "epoch" or (labels >= 0).all()
        layers, labels = layers[(labels >= 0).all(1)], labels[(labels >= 0).all(1)]
        assert (labels[:, 0] < labels[:, 1]).all()  # two different classes, the lower first
        for pair, classes in zip(layers, labels.tolist(), strict=True):
            (one,), (other,) = (place_in(layer[0], source) for layer in pair)
            assert [int(source.labels[k]) for k, _, _ in (one, other)] == classes
            shifts |= {*one[1:], *other[1:]}
            firsts.append({one[0], other[0]})
    assert shifts == set(range(-4, 5))
    if order == "in_order":
        assert set().union(*firsts) == set(range(60))  # every digit is in an image of its own
        assert all(k in pair for k, pair in enumerate(firsts))


def test_training_images_also_show_one_digit_or_none():
    ((layers, labels),) = Batches(digits(8000), 8000).epoch(0)
    shown = (labels >= 0).sum(1)
    shares = torch.bincount(shown, minlength=3) / 8000
    torch.testing.assert_close(shares, torch.tensor([0.05, 0.15, 0.8]), rtol=0, atol=0.015)  # four standard errors
    assert not layers[(labels < 0) & (shown == 1)[:, None]].any() and not layers[shown == 0, 1].any()
    assert layers[labels >= 0].flatten(1).any(1).all()
    inked = layers[shown == 0, 0].flatten(1).bool().sum(1)
    assert 0.2 < (inked == 0).double().mean() < 0.5 and 0.1 < (inked > 32).double().mean() < 0.5  # blank; noise


def test_an_absent_digit_has_no_reconstruction_error_and_should_be_short(model):
    layers, labels = next(Batches(digits(12), 12).in_order())
    fewer = labels.clone()
    fewer[::2, 0], fewer[0] = -1, -1
    output = model.train()(overlaid(layers), fewer)
    hot = torch.zeros(12, 5).scatter_(1, fewer % 5, 1)[:, :4]  # -1 is column 4
    errors = (model.decoder(output.capsules, labels) - layers).square().flatten(2).sum(2)[fewer >= 0].sum() / 24
    torch.testing.assert_close(capsnet_loss(output, layers, fewer), margin_loss(output.lengths, hot) + 0.0005 * errors)
    answers = torch.tensor([[0, 2]]).expand(3, 2)
    assert is_correct(answers, torch.tensor([[-1, 2], [-1, 3], [-1, -1]])).tolist() == [True, False, True]
    with pytest.raises(InputError, match="labels: expected classes from 0 to J - 1 = 3, got -2"):
        capsnet_loss(output, layers, fewer - 1)


def test_evaluation_pairs_depend_on_nothing_but_the_digits_and_a_resumed_epoch_is_the_rest_of_the_whole_one():
    one = list(Batches(digits(22), 5, seed=1).in_order())
    (two, labels), *_ = Batches(digits(22), 22, seed=2).in_order()
    assert torch.equal(torch.cat([layers for layers, _ in one]), two)
    assert torch.equal(torch.cat([labels for _, labels in one]), labels)
    batches = Batches(digits(60), 20, seed=3)
    whole, rest = list(batches.epoch(0)), list(batches.epoch(0, 1))
    assert len(rest) == 2 and all(torch.equal(x, y) for x, y in zip(sum(whole[1:], ()), sum(rest, ()), strict=True))


def test_the_answer_is_the_two_longest_capsules_and_the_confusion_matrix_counts_each_class_once():
    lengths = torch.tensor([[0.9, 0.8, 0.3, 0.1], [0.2, 0.7, 0.1, 0.6], [0, 0, 0.3, 0.2]])
    answers = longest(lengths, 2)
    assert answers.tolist() == [[0, 1], [1, 3], [2, 3]]
    # both; one missed (2 taken for 3); both missed (0 for 2, 1 for 3)
    result = Evaluation(answers, torch.tensor([[0, 1], [1, 2], [0, 1]]), 0.0, torch.zeros(3, 3))
    assert result.confusion(4).tolist() == [[1, 0, 1, 0], [0, 2, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    lines = accuracy_table(result, tuple("abcd")).splitlines()
    assert "(2 of 3 images wrong)" in lines[2]
    assert [line.split()[2] for line in lines[5:]] == ["50.00%", "66.67%", "0.00%", "-"]


def test_evaluation_chooses_capsules_without_labels(model):
    layers, labels = next(Batches(digits(12), 12).in_order())
    one, two = model(overlaid(layers), labels), model(overlaid(layers), labels.flip(0))
    assert torch.equal(one.reconstruction, two.reconstruction) and one.reconstruction.shape == layers.shape
    answered = longest(one.lengths, 2)
    assert torch.equal(one.reconstruction, model.decoder(one.capsules, answered))
    assert torch.equal(evaluate(model, Batches(digits(12), 5)).predicted, answered)


def test_two_classes_are_learned_and_evaluated(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small.use(monkeypatch, splits())
    result = train(small.config(tmp_path / "runs", dataset="multimnist", epochs=24, batch_size=10), progress=False)
    assert result["test_accuracy"] > 0.5  # a guess of two classes of four is right in a sixth
    run = Path(result["run"])
    assert graphcaps.load(run).objects == 2 and 0.3 < Run.open(run).metrics()[-1]["train_accuracy"] <= 1
    assert main(["evaluate", str(run)]) == 0
    out = capsys.readouterr().out
    assert f"test accuracy {result['test_accuracy']:.2%}" in out and "if all its classes are found" in out
