"""The networks that come with graphcaps: their answers, their files, and the commands that take them without a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import interpolate, pad

from experiments import pretrained as maker
from graphcaps import CapsNet, GraphcapsError, InputError, margin_loss
from graphcaps.analysis.accuracy import evaluate
from graphcaps.cli import main
from graphcaps.data import Batches, load_images, to_float, write_image
from graphcaps.models import pretrained
from graphcaps.models.objects import is_correct, longest
from graphcaps.training.inside import Inside
from graphcaps.training.start import train

from . import small
from .traces import stored_in

MNIST = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"
NAMES = list(pretrained.PRETRAINED)
ANSWERS = {  # sha256 of the answers to the ten thousand test images, and how many are right
    "mnist": ("8bba8873adcce3253b071dd528c079b2cb6f2e9f311273641c51cda5eec79e94", 9961),
    "multimnist": ("e59b18167b7ee4326033bf071961123c06f3ef2c979c8c3bb4db0ad8f0fe9d72", 8298),
}


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty folder, on a machine that nothing can be downloaded to."""

    def offline(*args):
        raise OSError("no network")

    monkeypatch.setattr("graphcaps.data.datasets.download_files", offline)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(not MNIST.is_dir(), reason="real MNIST isn't at ../shared/data/mnist")
@pytest.mark.long
@pytest.mark.parametrize("name", ["mnist", "multimnist"])
def test_answers_to_the_ten_thousand_test_images(name):
    test = load_images(name, MNIST, download=False).test
    result = evaluate(CapsNet.from_pretrained(name), Batches(test, 50))  # large batches wait for memory
    numbers = pretrained.read(name)[0]["numbers"]
    assert (maker.answers_sha256(result.predicted), result.correct) == ANSWERS[name]
    assert (numbers["answers_sha256"], numbers["test_correct"]) == ANSWERS[name]
    assert numbers["test_accuracy"] == result.accuracy and numbers["test_images"] == 10_000


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_small_and_holds_half_precision_and_what_made_it(name):
    head, tensors = pretrained.read(name)
    assert pretrained.path_of(name).stat().st_size <= 400_000
    weights = {key: tensor for key, tensor in tensors.items() if key.startswith("model.")}
    counts = {key for key in weights if key.endswith("num_batches_tracked")}
    assert {tensor.dtype for key, tensor in weights.items() if key not in counts} == {torch.float16}
    assert not any("decoder" in key for key in weights)
    numbers = head["numbers"]
    assert numbers["command"].startswith("graphcaps train") and numbers["seed"] == 0 and len(numbers["date"]) == 10
    assert {"graphcaps", "torch", "dgl", "python", "device", "weighted_entropy"} <= numbers.keys()
    assert abs(numbers["test_correct"] - numbers["test_correct_in_float32"]) <= 5  # what rounding may cost


@pytest.mark.parametrize("name", NAMES)
def test_the_images_in_a_file_are_read(name):
    net, (_, tensors) = CapsNet.from_pretrained(name), pretrained.read(name)
    images, labels = to_float(tensors["images"]), tensors["labels"]
    assert images.shape == (20, *net.image_shape) and labels.reshape(20, -1).shape == (20, net.objects)
    right = is_correct(longest(net(images).lengths, net.objects), labels)
    assert right[:10].sum() >= (10 if net.objects == 1 else 7) and not right[10:].any()  # the hardest ones


def test_digits_of_another_data_set_are_read():
    """scikit-learn's, of 8 x 8 pixels, enlarged to the 20 x 20 that MNIST's digits fill."""
    test = load_images("digits").test
    images = pad(interpolate(to_float(test.pixels), size=(20, 20), mode="bilinear"), (4, 4, 4, 4))
    answers = CapsNet.from_pretrained("mnist")(images).lengths.argmax(dim=1)
    assert float((answers == test.labels).float().mean()) > 0.9


def test_a_network_without_a_decoder_learns_on_by_the_margin_loss():
    net = CapsNet.from_pretrained("mnist").train()
    images, labels = torch.rand(4, 1, 28, 28), torch.tensor([3, 1, 4, 1])
    output = net(images, labels)
    loss = net.loss(output, images, labels)
    loss.backward()
    assert output.reconstruction is None and not net.reconstructs
    torch.testing.assert_close(loss, margin_loss(output.lengths, labels))
    assert all(weight.grad is not None for weight in net.parameters())


def test_a_damaged_a_missing_and_an_unknown_network_are_refused(tmp_path, monkeypatch):
    content, copy = bytearray(pretrained.path_of("mnist").read_bytes()), tmp_path / "mnist.safetensors"
    content[200_000] ^= 1
    copy.write_bytes(content)
    with pytest.raises(InputError, match="pretrained: expected one of mnist.*, got 'mnits'. Did you mean 'mnist'"):
        CapsNet.from_pretrained("mnits")
    monkeypatch.setattr(pretrained, "path_of", lambda name: copy)
    with pytest.raises(GraphcapsError, match=r"expected the sha256 \w{16}..., got .*damaged. Install graphcaps again"):
        CapsNet.from_pretrained("mnist")
    copy.unlink()
    with pytest.raises(GraphcapsError, match="expected the weights of mnist, got: No such file or directory. Install"):
        Inside("mnist", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_install_predicts_explains_and_draws_and_says_with_which_network(fresh, capsys, name):
    head, tensors = pretrained.read(name)
    image = to_float(tensors["images"][3])
    write_image("3.png", image)
    named = [] if name == "mnist" else [name]
    own = "graphcaps train" + " --dataset multimnist" * (name == "multimnist")
    right = f"{head['numbers']['test_accuracy']:.2%}"
    line = f"network: {name}, inside graphcaps, {right} of the test images right; train your own with: {own}\n"
    folder = Path("runs") / f"pretrained-{name}"

    assert main(["predict", *named, "3.png", "--top", "1"]) == 0
    out, printed = capsys.readouterr()
    assert out.startswith("3.png: ") and printed == line
    best = int(CapsNet.from_pretrained(name)(image[None]).lengths.argmax())
    assert out.startswith(f"3.png: {best} 0.")

    assert main(["explain", *named, "--image", "3"]) == 0
    out, printed = capsys.readouterr()
    then = f"graphcaps explain {name} --what capsules downloads them"
    assert out.endswith(f"capsules are not counted: the test images of {name} aren't in data. {then}\n")
    assert line in printed and (folder / "explain" / "image-3.png").exists()
    assert main(["explain", *named, "--what", "capsules"]) == 1  # downloads, and can't
    assert f"{name}: expected MNIST/raw" in capsys.readouterr().err

    assert main(["explore", *named, "--no-open"]) == 0
    out, printed = capsys.readouterr()
    page = folder / "figures" / "explorer.html"
    network = stored_in(page.read_text(encoding="utf-8"))["network"]
    assert out == f"{page}\n" and line in printed
    assert network["decoder"] is None and network["objects"] == len(named) + 1

    assert main(["viz", *named, "--format", "png", "--what", "entropy"]) == 0
    assert (folder / "figures" / "entropy.png").exists()
    capsys.readouterr()
    assert main(["runs"]) == 0 and capsys.readouterr().out.startswith("no runs in runs. ")


def test_the_newest_run_goes_before_what_is_inside(fresh, capsys, monkeypatch):
    small.use(monkeypatch)
    train(small.config(fresh / "runs"), progress=False)
    write_image("a.png", torch.rand(1, 12, 12))
    capsys.readouterr()
    for words in (["predict", "a.png"], ["explain", "--what", "parts"]):
        assert main(words) == 0
        assert capsys.readouterr().err.startswith("network: runs/run, the newest run\n")
    assert main(["predict", "runs/run", "a.png"]) == 0 and "network:" not in capsys.readouterr().err
    assert main(["predict", "mnist", "a.png"]) == 0 and "mnist, inside" in capsys.readouterr().err
