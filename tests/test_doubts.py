"""Doubtful answers: limits that are chosen on validation images, and the words of the commands."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps import cli, train
from graphcaps.images.data import read_image, to_float, write_image
from graphcaps.images.models import CapsNetOutput, Limits, doubts
from graphcaps.images.models.cnn import CNNOutput
from graphcaps.images.models.evidence import BLANK, limits_of, outside
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import Run

from . import small

LIMITS = Limits(answer=0.6, other=0.4, likeness=0.5)
DRAWING = torch.linspace(0, 1, 36).view(1, 1, 6, 6)


def model(objects=1, of=LIMITS):
    return SimpleNamespace(objects=objects, limits=of)


def output(*lengths: float, drawn: torch.Tensor = DRAWING) -> CapsNetOutput:
    return CapsNetOutput(torch.tensor([lengths]), torch.zeros(1, len(lengths), 2), drawn)


def kinds(found) -> list[str]:
    return [doubt.kind for doubt in found[0]]


def test_seven_right_answers_in_a_thousand_are_outside_a_limit_and_wrong_ones_are_not_asked():
    draw = torch.Generator().manual_seed(0)
    seen, right = torch.rand(1300, 3, generator=draw), torch.arange(1300) < 1000
    found = limits_of(seen, right)
    beyond = [
        int((sign * values[right] < sign * limit).sum())
        for values, limit, sign in zip(seen.T, found, (1, -1, 1), strict=True)
    ]
    assert beyond[0] == beyond[1] == beyond[2] in (2, 3) and outside(seen[right], found).any(dim=1).sum() in (5, 6, 7)
    assert limits_of(torch.where(right[:, None], seen, -1), right) == found
    alone = limits_of(torch.where(torch.tensor([False, True, True]), torch.nan, seen), right)
    assert (seen[right, 0] < alone.answer).sum() == 7 and alone[1:] == (None, None)


def test_an_answer_is_doubted_where_it_is_outside_a_limit():
    """Of two objects, one long capsule or none is an answer unless another is neither long nor short."""
    for objects, lengths, drawn, wanted in (
        (1, (0.6, 0.1, 0.4), DRAWING / 2, []),
        (1, (0.5, 0.5, 0.5), DRAWING, ["short"]),
        (1, (0.7, 0.9, 0.2), 1 - DRAWING, ["several", "unlike"]),
        (2, (0.9, 0.1, 0), DRAWING, []),
        (2, (0.2, 0.1, 0), DRAWING, []),
        (2, (0.9, 0.5, 0), DRAWING, ["short"]),
    ):
        assert kinds(doubts(model(objects), DRAWING, output(*lengths, drawn=drawn))) == wanted


def test_doubts_say_what_the_network_found_and_what_is_usual():
    for objects, given, text in (
        (
            1,
            output(0.1, 0.5, 0.2),
            "nothing is as long as usual: the longest capsule has 0.50, 99.3 % of right answers",
        ),
        (1, output(0.7, 0.9, 0), "two are long: the second longest capsule has 0.70, 99.3 % of right answers have 0.4"),
        (1, output(0.1, 0.9, 0, drawn=-DRAWING), "the reconstruction is unlike the image: their correlation is -1.00,"),
        (1, CNNOutput(torch.tensor([[0.5, 0.3]]), None), "nothing is as high as usual: the highest score has 0.50,"),
        (2, output(0.9, 0.5, 0.1), "fewer than 2 are as long as usual: the second longest capsule has 0.50"),
    ):
        assert doubts(model(objects), DRAWING, given)[0][0].text.startswith(text)


@pytest.mark.parametrize("tone", [0.0, 1.0])
def test_a_blank_image_is_doubted_for_that_alone_with_limits_or_without(tone):
    image = torch.full((1, 3, 6, 6), tone)
    image[0, 1, 2, 2] = abs(tone - 0.99 * BLANK)  # like the grain of paper
    for of in (LIMITS, Limits()):
        assert kinds(doubts(model(of=of), image, output(0.1, 0.2, drawn=image))) == ["blank"]
    image[0, 1, 2, 2] = abs(tone - 1.01 * BLANK)
    assert kinds(doubts(model(), image, output(0.1, 0.2, drawn=image))) == ["short"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two epochs. Its limits are chosen even if few answers are right."""
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        patch.setattr("graphcaps.images.models.evidence.MIN_ANSWERS", 1)
        yield Run.open(train(small.config(tmp_path_factory.mktemp("runs")), progress=False)["run"])


def test_a_checkpoint_has_the_limits_of_its_network_on_validation_images(trained):
    network, val = graphcaps.load(trained), small.digits().val
    with torch.no_grad():
        outputs = [network(to_float(image[None])) for image in val.pixels]
    right = [k for k, each in enumerate(outputs) if each.lengths.argmax() == val.labels[k]]
    longest = [outputs[k].lengths.max().item() for k in right]
    second = [outputs[k].lengths.flatten().sort().values[-2].item() for k in right]
    alike = [np.corrcoef(to_float(val.pixels[k]).flatten(), outputs[k].reconstruction.flatten())[0, 1] for k in right]
    wanted = min(longest), max(second), min(alike)  # among fewer than a hundred answers, 1 % is the last one
    np.testing.assert_allclose(network.limits, wanted, rtol=1e-4)


def test_evaluate_counts_doubted_answers(trained, capsys):
    assert cli.main(["evaluate", str(trained.path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("doubted"))
    network, test = graphcaps.load(trained), small.digits().test
    images = to_float(test.pixels)
    doubted = [bool(each) for each in doubts(network, images)]
    right = (network(images).lengths.argmax(dim=1) == test.labels).tolist()
    count = sum(doubt and hit for doubt, hit in zip(doubted, right, strict=True))
    assert f" {count} of {sum(right)} right answers" in line
    assert f", {sum(doubted) - count} of {41 - sum(right)} wrong answers" in line


def test_predict_has_no_answer_to_a_blank_image_and_doubts_others(trained, tmp_path, capsys):
    run = Run.open(shutil.copytree(trained.path, tmp_path / "copy"))
    tensors, head = checkpoint.read(run.checkpoint("best"))
    checkpoint.write(run.checkpoint("best"), tensors, {**head, "limits": [1.0, 1.0, -1.0]})
    write_image(tmp_path / "blank.png", torch.zeros(1, 50, 70))
    write_image(tmp_path / "a.png", to_float(small.digits().test.pixels[0]))
    assert cli.main(["predict", str(run.path), str(tmp_path / "blank.png"), str(tmp_path / "a.png")]) == 0
    printed = capsys.readouterr()
    blank, short = printed.out.splitlines()
    assert blank == f"{tmp_path}/blank.png: no answer: {doubts(model(), torch.zeros(1, 1, 6, 6), output(1))[0][0].text}"
    assert ". Doubtful: nothing is as long as usual: the longest capsule has 0." in short and printed.err == ""
    assert cli.main(["explain", str(run.path), str(tmp_path / "blank.png")]) == 0
    assert capsys.readouterr().out.splitlines() == [blank]
    assert cli.main(["explain", str(run.path), str(tmp_path / "a.png")]) == 0
    assert "\nDoubtful: nothing is as long as usual: the longest capsule has 0." in capsys.readouterr().out


def test_saved_inputs_are_what_the_network_saw_and_replace_no_image(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    names = ["a.png", "sub/a.png", "a-input.png", "dark.png"]
    for k, name in enumerate(names):
        write_image(name, 1 - to_float(small.digits(size=30).test.pixels[k]))
    before = [Path(name).read_bytes() for name in names]
    assert cli.main(["predict", str(trained.path), *names, "--save-inputs", "."]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "what the network saw: ."
    assert [Path(name).read_bytes() for name in names] == before
    saved = ["a-input-2.png", "a-input-3.png", "a-input-input.png", "dark-input.png"]
    for name, saw in zip(names, saved, strict=True):
        own = read_image(name, (1, 12, 12), ink=1.0)
        assert own.inverted and torch.equal(read_image(saw, (1, 12, 12), invert=False).pixels, own.pixels)
