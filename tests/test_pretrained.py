"""The networks that come with graphcaps: their answers, their run folders, and the commands that take them."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from experiments import pretrained as maker
from graphcaps import GraphcapsError, load
from graphcaps.cli import main
from graphcaps.images.analysis.accuracy import evaluate
from graphcaps.images.data import Batches, load_images, to_float, write_image
from graphcaps.images.models.answers import is_correct, longest
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import Run

from .traces import stored_in

NAMES = ("mnist", "multimnist")
ANSWERS = {  # sha256 of the answers to the ten thousand test images, and how many are right
    "mnist": ("dec3fb5231a9f33fff6a2df7b6098dc68d859dbc14afb00f7f8d08c682aa985e", 9976),
    "multimnist": ("ca8f4e41fb12cbc262eb5d364343589568659cd0d1da86d928b015d1c2512d47", 9522),
}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_answers_to_the_ten_thousand_test_images(name, mnist_root):
    test = load_images(name, mnist_root, download=False).test
    result, numbers = evaluate(load(name), Batches(test, 50)), Run.open(name).result()
    assert (maker.answers_sha256(result.predicted), result.correct) == ANSWERS[name]
    assert (numbers["answers_sha256"], numbers["test_correct"]) == ANSWERS[name]
    assert numbers["test_accuracy"] == result.accuracy and numbers["test_images"] == 10_000


@pytest.mark.parametrize("name", NAMES)
def test_a_run_folder_is_small_and_says_what_made_it_and_its_images_are_read(name):
    run, net = Run.open(name), load(name)
    path = run.checkpoint("best")
    tensors, _ = checkpoint.read(path)
    weights = [tensor for key, tensor in tensors.items() if key.startswith("model.") and tensor.is_floating_point()]
    assert path.stat().st_size <= maker.MAX_BYTES and {tensor.dtype for tensor in weights} == {torch.float16}
    numbers = run.result()
    assert numbers["command"] == run.config.command() and numbers["seed"] == 0 and len(numbers["date"]) == 10
    assert abs(numbers["test_correct"] - numbers["test_correct_in_float32"]) <= 5  # float16 may turn a few answers
    images, labels = to_float(tensors["images"]), tensors["labels"]
    lengths = net(images).lengths
    right = is_correct(longest(lengths, net.objects), labels)
    assert right[: -maker.HARD].all() and not right[-maker.HARD :].any()
    trace = run.trace()
    assert (trace.images == tensors["images"][: -maker.HARD].numpy()).all() and trace.class_names == net.class_names
    recorded = torch.from_numpy(trace.lengths[0, net.capsules.routing.iterations - 1])
    torch.testing.assert_close(recorded, lengths[: -maker.HARD].detach(), rtol=0, atol=1e-3)


def test_a_network_is_opened_by_its_run_its_file_or_its_name_and_else_the_error_says_what_there_is():
    images, run = torch.rand(1, 1, 28, 28), Run.open("mnist")
    lengths = [load(each)(images).lengths for each in ("mnist", run, run.path, run.checkpoint("best"))]
    assert all(torch.equal(each, lengths[0]) for each in lengths)
    with pytest.raises(
        GraphcapsError,
        match="got mnits. Did you mean 'mnist'\\? List them with: graphcaps runs. mnist and multimnist come",
    ):
        load("mnits")


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_install_predicts_explains_and_draws_and_says_with_which_network(tmp_path, monkeypatch, capsys, name):
    monkeypatch.setattr("torchvision.datasets.MNIST.download", Mock(side_effect=OSError("no network")))
    monkeypatch.chdir(tmp_path)
    run = Run.open(name)
    image = to_float(torch.from_numpy(run.trace().images[3]))
    write_image("3.png", image)
    named = [] if name == "mnist" else [name]
    own = "graphcaps train" + " --dataset multimnist" * (name == "multimnist")
    right = f"{run.result()['test_accuracy']:.2%}"
    line = f"network: {name}, inside graphcaps, {right} of the test images right; train your own with: {own}\n"
    folder = Path("runs") / f"pretrained-{name}"

    assert main(["predict", *named, "3.png", "--top", "1"]) == 0
    out, printed = capsys.readouterr()
    assert out.startswith("3.png: ") and printed == line
    best = int(load(name)(image[None]).lengths.argmax())
    assert out.startswith(f"3.png: {best} 0.")

    assert main(["explain", *named, "--image", "3"]) == 0
    out, printed = capsys.readouterr()
    assert line in printed and (folder / "explain" / "image-3.png").exists()
    assert main(["explain", *named, "--what", "capsules"]) == 1  # it can't download them
    assert "MNIST: expected its files in" in capsys.readouterr().err

    assert main(["explore", *named, "--no-open"]) == 0
    out, printed = capsys.readouterr()
    page = folder / "figures" / "explorer.html"
    network = stored_in(page.read_text(encoding="utf-8"))["network"]
    assert out == f"{page}\n" and line in printed
    assert (network["decoder"] is not None) == (name == "multimnist") and network["objects"] == len(named) + 1

    assert main(["runs"]) == 0 and capsys.readouterr().out.startswith("no runs in runs. ")
