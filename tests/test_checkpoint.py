"""Checkpoints: what is written comes back to the bit; anything else is refused, and no pickle is ever run."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import graphcaps
from graphcaps import CapsNet, GraphcapsError
from graphcaps.images.training import checkpoint

SHAPE = (1, 12, 12)


class Hostile:
    """An object whose pickle makes a file when it is read."""

    def __reduce__(self):
        return Path.touch, (Path("was run"),)


def build(preset: str = "compact", num_classes: int = 3, image_shape=SHAPE) -> CapsNet:
    torch.manual_seed(0)
    return CapsNet.from_preset(preset, image_shape, num_classes)


def head_of(model: CapsNet) -> dict:
    names = [f"class {k}" for k in range(model.preset["num_classes"])]
    return {"preset": model.preset, "class_names": names, "limits": []}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run" / "checkpoints" / "best.safetensors"


def rewritten(path: Path, **head) -> None:
    """Change entries of the head, and write the right checksum."""
    tensors, old = checkpoint.read(path)
    checkpoint.write(path, tensors, old | head)


def test_tensors_of_any_dtype_and_the_head_come_back(path):
    head = {"state": {"loss": float("inf"), "third": 1 / 3}, "class_names": ["Ärmel", "袖"]}
    given = {
        "float64": torch.tensor([1 / 3, -0.0, float("inf")], dtype=torch.float64),
        "bfloat16": torch.tensor([0.1, 2.0], dtype=torch.bfloat16),
        "int64": torch.tensor(2**62),
        "bool": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
        "transposed": torch.arange(6.0).view(2, 3).T,
    }
    checkpoint.write(path, given, head)
    tensors, read = checkpoint.read(path)
    assert read == {"format_version": 2, **head} and tensors.keys() == given.keys()
    for name, tensor in given.items():
        assert tensors[name].dtype == tensor.dtype and torch.equal(tensors[name], tensor), name


@pytest.fixture
def saved(path) -> Path:
    model = build()
    checkpoint.write(path, checkpoint.model_tensors(model), head_of(model))
    return path


def test_a_flipped_bit_is_noticed_wherever_it_is(path):
    tensors, head = {"a": torch.arange(5.0), "b.c": torch.tensor(7)}, {"state": {"step": 3}, "class_names": ["x"]}
    checkpoint.write(path, tensors, head)
    sound = path.read_bytes()
    for place in range(0, 8 * len(sound), 5):  # some bit of each byte
        damaged = bytearray(sound)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(GraphcapsError, match="checkpoint: expected"):
            checkpoint.read(path)
    path.write_bytes(sound)
    checkpoint.read(path)


@pytest.mark.parametrize(
    ("preset", "dtype", "text"),
    [
        ("paper", torch.float32, r"expected capsules.weight \(96, 8, 16\) .*, got \(48, 8, 16\) .* for another model"),
        ("compact", torch.float64, r"expected capsules.weight .* torch.float64, got .* torch.float32"),
    ],
)
def test_weights_of_another_network_are_refused_and_change_nothing(saved, preset, dtype, text):
    model = build(preset, image_shape=(1, 17, 17) if preset == "paper" else SHAPE).to(dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(GraphcapsError, match=text):
        checkpoint.restore_model(model, checkpoint.read(saved)[0], saved)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def without_numbers(path: Path) -> None:
    tensors, head = checkpoint.read(path)
    tensors["model.capsules.weight"][3, 2, 1] = float("inf")
    checkpoint.write(path, tensors, head)


REFUSED = [
    (lambda path: torch.save({"model": Hostile()}, path), "expected weights written by graphcaps"),
    (lambda path: save_file({"weight": torch.zeros(3)}, path), "expected weights written by graphcaps"),
    (Path.unlink, "got none. Train another run$"),
    (without_numbers, "expected finite numbers, got NaN or infinity in capsules.weight"),
    (lambda path: rewritten(path, format_version=1), "expected format 2 in .*, got 1. Another version"),
    (lambda path: rewritten(path, preset=build().preset | {"speed": 9}), "expected a description of the network"),
    (lambda path: rewritten(path, preset=build().preset | {"protocol": "official"}), "unknown protocol. Another"),
    (lambda path: rewritten(path, class_names=["one"]), "got: 1 class names for 3 classes"),
]


@pytest.mark.parametrize(("damage", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_a_file_that_is_no_sound_checkpoint_is_refused_by_name_and_no_pickle_is_run(saved, damage, text, monkeypatch):
    monkeypatch.chdir(saved.parent)
    damage(saved)
    with pytest.raises(GraphcapsError, match=text) as error:
        graphcaps.load(saved)
    assert str(saved) in str(error.value) and str(error.value).startswith("checkpoint: expected")
    assert not Path("was run").exists()


def test_a_network_of_before_settings_were_removed_is_read(saved):
    rewritten(saved, preset=build().preset | {"protocol": "paper", "coupling_weight": 0.0})
    assert graphcaps.load(saved).preset == build().preset
