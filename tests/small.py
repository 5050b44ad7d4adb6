"""Short trainings for tests: real digits of 12 x 12 pixels, few of them, on one thread."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

import graphcaps
from graphcaps import TrainConfig
from graphcaps.images.data import Images, ImageSplits, load_images
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import Run

CLOCKS = {"seconds", "images_per_second", "epoch_seconds"}  # equal trainings differ in these


@functools.cache
def digits(train: int = 120, val: int = 40, test: int = 41, size: int = 12) -> ImageSplits:
    """The first images of each part, made ``size`` pixels high and wide; all ten classes are in each part."""
    whole = load_images("digits")
    few = {}
    for part, count in {"train": train, "val": val, "test": test}.items():
        images = getattr(whole, part)
        pixels = interpolate(images.pixels[:count].float(), size=(size, size), mode="area").round().to(torch.uint8)
        few[part] = Images(pixels, images.labels[:count])
        assert len(few[part]) == count and set(few[part].labels.tolist()) == set(range(10))
    return ImageSplits("digits", whole.class_names, **few)


def use(monkeypatch, images: ImageSplits | None = None) -> None:
    """Let every command read these images, on one thread, and don't wait for the disk."""
    images = images or digits()
    monkeypatch.setattr("graphcaps.images.data.load_images", lambda name, root, download=True: images)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    torch.set_num_threads(1)


def config(out: Path, **settings) -> TrainConfig:
    """Two epochs of three steps."""
    defaults = dict(dataset="digits", model="compact", epochs=2, batch_size=40, device="cpu", precision="float32")
    return TrainConfig(**defaults | {"out": out, "name": "run"} | settings)


def python(*words: object, stdout: int = subprocess.PIPE, **variables: str) -> subprocess.CompletedProcess:
    """Run Python in a process of its own, on one thread, with these words and environment variables."""
    paths = {"PYTHONPATH": str(Path(graphcaps.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    options = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True, "timeout": 120}
    return subprocess.run([sys.executable, *map(str, words)], env=os.environ | paths | variables, **options)


def pyg():
    """``graphcaps.pyg``; a test that calls this is skipped where PyTorch Geometric isn't installed."""
    return pytest.importorskip("graphcaps.pyg", reason='needs pip install -e ".[pyg]"')


def content(path: Path) -> dict:
    """All results of a run: weights, optimizer, history, metrics and routing; without clock readings."""
    run = Run.open(path)
    parts = {}
    for which in ("best", "last"):
        tensors, head = checkpoint.read(run.checkpoint(which))
        state = {key: value for key, value in head["state"].items() if key not in CLOCKS}
        state["history"] = [timeless(row) for row in state["history"]]
        parts |= {f"{which}.{name}": tensor.numpy() for name, tensor in tensors.items()}
        parts |= {f"{which} head": state, f"{which} limits": head["limits"]}
    parts |= vars(run.trace())
    parts["metrics"] = [timeless(row) for row in run.metrics()]
    parts["result"] = timeless(run.result() or {})
    return parts


def timeless(row: dict) -> dict:
    return {key: value for key, value in row.items() if key not in CLOCKS}


def differences(left: dict, right: dict) -> list[str]:
    """Names under which two contents differ in any bit."""
    keys = left.keys() | right.keys()
    return sorted(key for key in keys if not _same(left.get(key), right.get(key)))


def _same(left: object, right: object) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return type(left) is type(right) and left == right
