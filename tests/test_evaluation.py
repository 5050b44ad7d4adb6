"""Evaluation: every image counted once, no labels seen, and its numbers against published ones."""

import pytest
import torch

from graphcaps import CapsNet
from graphcaps.cli.tables import accuracy_table
from graphcaps.images.analysis.accuracy import Evaluation, evaluate, wilson_interval
from graphcaps.images.data import Batches, to_float
from graphcaps.images.models import capsnet_loss

from . import small


@pytest.mark.fact(10)
def test_all_images_are_counted_in_eval_mode_though_the_last_batch_is_smaller():
    torch.manual_seed(0)
    model, images = CapsNet.from_preset("compact", (1, 12, 12)), small.digits().test
    before = {name: tensor.clone() for name, tensor in model.train().state_dict().items()}
    result = evaluate(model, Batches(images, 7))  # of 41
    assert model.training and all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.eval()
    with torch.no_grad():
        outputs = [model(to_float(image[None])) for image in images.pixels]
        losses = [
            capsnet_loss(output, to_float(image[None]), label[None])
            for output, image, label in zip(outputs, images.pixels, images.labels, strict=True)
        ]
    assert torch.equal(result.labels, images.labels)
    assert torch.equal(result.predicted, torch.stack([output.lengths.argmax() for output in outputs]))
    assert result.loss == pytest.approx(float(torch.stack(losses).mean()), rel=1e-4)  # float32 sums of 41
    right = sum(int(output.lengths.argmax() == label) for output, label in zip(outputs, images.labels, strict=True))
    assert result.correct == right and result.accuracy == right / 41


# Newcombe 1998, Statistics in Medicine 17, table I, method 3
@pytest.mark.parametrize(("correct", "total", "published"), [(81, 263, (0.2553, 0.3662)), (0, 20, (0, 0.1611))])
def test_the_interval_equals_published_ones(correct, total, published):
    assert wilson_interval(correct, total) == pytest.approx(published, abs=5e-5)
    low, high = wilson_interval(total - correct, total)
    assert (1 - high, 1 - low) == pytest.approx(published, abs=5e-5)


RESULT = Evaluation(torch.tensor([0, 1, 1, 0, 1]), torch.tensor([0, 0, 1, 2, 2]), 0.5, torch.zeros(5, 3))


def test_the_table_holds_every_class_also_one_without_images():
    lines = accuracy_table(RESULT, ("a", "b", "a long name", "none")).splitlines()
    assert lines[0] == "test accuracy 40.00% (95 % interval 11.76% to 76.93%)"
    assert lines[1] == "error rate    60.00% (3 of 5 images wrong)"
    assert [line.split() for line in lines[4:]] == [
        ["a", "2", "50.00%", "9.45%", "to", "90.55%", "50.00%"],
        ["b", "1", "100.00%", "20.65%", "to", "100.00%", "33.33%"],
        ["a", "long", "name", "2", "0.00%", "0.00%", "to", "65.76%", "-"],
        ["none", "0", "-", "-", "-"],
    ]
    assert len({len(line) for line in lines[3:]}) == 1
