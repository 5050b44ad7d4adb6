"""Checkpoints: what is written comes back to the bit; anything else is refused, and no pickle is ever run."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import graphcaps
from graphcaps import CapsNet, GraphcapsError
from graphcaps.training import checkpoint

SHAPE = (1, 12, 12)


class Hostile:
    """Its pickle makes a file when it is read."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def build(preset: str = "compact", num_classes: int = 3, image_shape=SHAPE) -> CapsNet:
    torch.manual_seed(0)
    return CapsNet.from_preset(preset, image_shape, num_classes)


def head_of(model: CapsNet) -> dict:
    return {
        "preset": model.preset,
        "class_names": [f"class {k}" for k in range(model.preset["num_classes"])],
        "limits": [],
    }


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run" / "checkpoints" / "best.safetensors"


def rewritten(path: Path, **head) -> None:
    """Change what the head says, with a right checksum."""
    tensors, old = checkpoint.read(path)
    checkpoint.write(path, tensors, old | head)


ALL_DTYPES = {
    "float64": torch.tensor([1 / 3, float("nan"), -0.0, float("inf")], dtype=torch.float64),
    "float32": torch.tensor([[1e-45, 3.4e38]]),
    "float16": torch.tensor([0.1], dtype=torch.float16),
    "bfloat16": torch.tensor([0.1, 2.0], dtype=torch.bfloat16),
    "int64": torch.tensor(2**62),
    "int32": torch.tensor([-1], dtype=torch.int32),
    "uint8": torch.tensor([255], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "empty": torch.empty(0, 3),
    "transposed": torch.arange(6.0).view(2, 3).T,
}


def test_tensors_of_every_dtype_come_back_to_the_bit(path):
    head = {"state": {"loss": float("inf"), "third": 1 / 3}, "class_names": ["Ärmel", "袖"]}
    checkpoint.write(path, ALL_DTYPES, head)
    tensors, found = checkpoint.read(path)
    assert found == {"format_version": 2, **head}
    assert tensors.keys() == ALL_DTYPES.keys()
    for name, tensor in ALL_DTYPES.items():
        assert tensors[name].dtype == tensor.dtype and tensors[name].shape == tensor.shape
        raw = [
            each.contiguous().reshape(-1).view(torch.uint8) if each.numel() else each
            for each in (tensor, tensors[name])
        ]
        assert torch.equal(*raw), name


def test_a_network_and_its_optimizer_come_back(path):
    model, other = build(), CapsNet.from_preset("compact", SHAPE, 3)
    optimizers = [torch.optim.Adam(net.parameters()) for net in (model, other)]
    model(torch.rand(4, *SHAPE)).lengths.sum().backward()
    optimizers[0].step()
    cpu = torch.device("cpu")
    checkpoint.write(
        path, checkpoint.model_tensors(model) | checkpoint.training_tensors(optimizers[0], cpu), head_of(model)
    )
    tensors, _ = checkpoint.read(path)
    checkpoint.restore_model(other, tensors, path)
    checkpoint.restore_training(optimizers[1], cpu, tensors)
    left, right = (optimizer.state_dict()["state"] for optimizer in optimizers)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[k][name], right[k][name]) for k in left for name in left[k])
    restored, _ = checkpoint.read_model(path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor) and torch.equal(restored.state_dict()[name], tensor)
    assert restored.class_names == ("class 0", "class 1", "class 2") and restored.preset == model.preset


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


@pytest.mark.parametrize("how", ["pickle", "torch.save"])
def test_a_hostile_pickle_is_never_run(saved, tmp_path, how):
    marker = tmp_path / "was run"
    if how == "pickle":
        saved.write_bytes(pickle.dumps({"model": Hostile(marker)}))
    else:
        torch.save({"model": Hostile(marker)}, saved)
    (tmp_path / "run" / "config.json").write_text(graphcaps.TrainConfig().to_json())
    with pytest.raises(GraphcapsError, match="checkpoint: expected weights written by graphcaps"):
        graphcaps.load(tmp_path / "run")
    assert not marker.exists()
    if how == "pickle":  # the trap works
        pickle.loads(saved.read_bytes())
        assert marker.exists()


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (
            lambda: build("paper", image_shape=(1, 17, 17)),
            r"expected capsules.weight \(96, 8, 16\) .*, got \(48, 8, 16\) .*: it is of another model",
        ),
        (lambda: build().double(), r"expected capsules.weight .* torch.float64, got .* torch.float32"),
    ],
    ids=["preset", "dtype"],
)
def test_weights_of_another_network_are_refused_and_change_nothing(saved, other, text):
    model = other()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(GraphcapsError, match=text):
        checkpoint.restore_model(model, checkpoint.read(saved)[0], saved)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def without_numbers(path: Path) -> None:
    tensors, head = checkpoint.read(path)
    tensors["model.capsules.weight"][3, 2, 1] = float("inf")
    checkpoint.write(path, tensors, head)


REFUSED = [
    (lambda path: path.write_bytes(path.read_bytes()[:-1]), "expected weights written by graphcaps"),
    (lambda path: save_file({"weight": torch.zeros(3)}, path), "expected weights written by graphcaps"),
    (Path.unlink, "got none. .* go on with: graphcaps train --resume .*run$"),
    (without_numbers, "expected finite numbers, got NaN or infinity in capsules.weight"),
    (lambda path: rewritten(path, format_version=1), "expected format 2 in .*, got 1. A run of another version"),
    (lambda path: rewritten(path, preset=build().preset | {"speed": 9}), "expected a description of the network"),
    (lambda path: rewritten(path, preset=build().preset | {"protocol": "official"}), "no longer has"),
    (lambda path: rewritten(path, class_names=["one"]), "got: 1 class names for 3 classes"),
]


@pytest.mark.parametrize(("damage", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_what_is_no_sound_checkpoint_is_refused_and_named(saved, damage, text):
    damage(saved)
    with pytest.raises(GraphcapsError, match=text) as error:
        graphcaps.load(saved)
    assert str(saved) in str(error.value) and str(error.value).startswith("checkpoint: expected")


def test_a_network_of_before_the_other_protocol_was_removed_is_read(saved):
    rewritten(saved, preset=build().preset | {"protocol": "paper"})
    assert graphcaps.load(saved).preset == build().preset
