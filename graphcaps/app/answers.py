"""The live page's questions and answers, from JSON to JSON; every question is checked. Knows nothing of HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import DATASETS, Batches, DatasetSpec, Images, load_images
from ..data.pairs import Pairs
from ..errors import GraphcapsError, InputError, expect
from ..models import CapsNet
from ..models.objects import overlaid
from ..trace.recording import one_of_each_class, to_bytes
from ..training import checkpoint
from ..training.run_folder import Run, load_routing
from ..viz.explorer.data import packed
from .explain import decode, explain_image

FARTHEST = 2.0  # numbers of a capsule lie in [-1, 1]; the page adds little to them


@dataclass(frozen=True, eq=False)
class Explorer:
    """A network and the images to show it.

    Args:
        model: in eval mode, on the CPU, with ``class_names``.
        images: test images to pick from.
        spec: what drawings of the data set look like.
        epoch: epochs of training that made the weights.
        about: as in ``RoutingTrace``.
        classes: (N, K) int64, all classes of each image where it shows K objects; default: its label.
    """

    model: CapsNet
    images: Images
    spec: DatasetSpec
    epoch: int
    about: dict
    classes: torch.Tensor | None = None

    @classmethod
    def of(cls, run: Run, data: Path | None = None) -> Explorer:
        """Load a run's best weights and its test images: the data set's where its files are, else the trace's.

        Raises:
            GraphcapsError: no sound checkpoint, or neither test images nor a trace.
        """
        config, path, classes = run.config, run.checkpoint("best"), None
        model = load_routing(run)
        if not model.reconstructs:
            raise GraphcapsError(f"{run}: expected a network that reconstructs, got {config.model}, without a decoder")
        try:
            images = load_images(config.dataset, data or config.data, download=False).test
        except GraphcapsError:
            trace = run.trace()
            if data is not None or trace.labels is None:
                raise
            images = Images(torch.from_numpy(trace.images), torch.from_numpy(trace.labels))
        if isinstance(images, Pairs):
            layers, classes = Batches(images, 1).at(torch.arange(len(images)))
            images = Images(torch.from_numpy(to_bytes(overlaid(layers))), images.labels)
        about = {"run": run.path.name, "dataset": config.dataset, "model": config.model}
        epoch = checkpoint.read(path)[1]["state"]["epoch"]
        return cls(model, images, DATASETS[config.dataset], epoch, about, classes)

    def start(self) -> dict:
        """What the page needs once: the image's shape, what drawings look like, images to pick, a first answer.

        And ``limited``: whether the network knows limits of its answers; without, blank images alone are doubted.
        """
        few = one_of_each_class(self.images.labels, len(self.model.class_names)).tolist()
        return {
            "shape": list(self.model.image_shape),
            "ink": self.spec.ink,
            "detail": self.spec.detail,
            "stroke": stroke_width(self.images.pixels[:500].numpy()),
            "count": len(self.images),
            "limited": self.model.limits is not None and self.model.limits.answer is not None,
            "examples": [self._shown(k) for k in few],
            "answer": explain_image(self.model, self.images.pixels[few[0]].numpy(), self.epoch, self.about),
        }

    def explain(self, asked: object) -> dict:
        """Answer {"pixels": C x H x W numbers from 0 to 255} as ``explain_image`` does; raise ``InputError``."""
        (pixels,) = _fields(asked, "pixels")
        values = _numbers("pixels", pixels, self.model.image_shape, "C H W", 0, 255)
        return explain_image(self.model, values.round().astype(np.uint8), self.epoch, self.about)

    def decode(self, asked: object) -> dict:
        """Answer {"parent": j, "capsule": D numbers} with {"picture": uint8 (C, H, W)}; raise ``InputError``."""
        parent, capsule = _fields(asked, "parent", "capsule")
        _index("parent", parent, self.model.capsules.num_parents)
        dim = self.model.capsules.weight.shape[-1]
        values = _numbers("capsule", capsule, (dim,), "D", -FARTHEST, FARTHEST)
        return {"picture": decode(self.model, parent, torch.from_numpy(values).float())}

    def image(self, asked: object) -> dict:
        """Answer {"image": k} with the test image's ``name``, true ``classes`` and ``pixels``; raise ``InputError``."""
        (k,) = _fields(asked, "image")
        _index("image", k, len(self.images))
        return self._shown(k)

    def _shown(self, k: int) -> dict:
        classes = (self.images.labels if self.classes is None else self.classes)[k].reshape(-1).tolist()
        name = " + ".join(self.model.class_names[label] for label in classes)
        return {"name": name, "classes": classes, "pixels": packed(self.images.pixels[k].numpy())}


def stroke_width(images: np.ndarray) -> float:
    """How wide strokes are in pictures (N, C, H, W) of them, in pixels: twice the area over the border's length.

    >>> line = np.zeros((1, 1, 28, 28), np.uint8)
    >>> line[..., 4:24, 10:13] = 255
    >>> round(stroke_width(line), 1)
    2.6
    """
    light = images.mean(axis=1) / 255  # (N, H, W)
    down, right = np.diff(light, axis=1)[:, :, :-1], np.diff(light, axis=2)[:, :-1]
    width = 2 * light.sum() / max(np.hypot(down, right).sum(), 1e-9)
    return float(np.clip(width, 1, min(images.shape[2:]) / 3))


def _fields(asked: object, *names: str) -> list[Any]:
    wanted = "an object with " + " and ".join(f'"{name}"' for name in names)
    got = repr(sorted(asked))[:60] if isinstance(asked, dict) else type(asked).__name__
    if not isinstance(asked, dict) or asked.keys() != set(names):
        raise InputError(f"body: expected {wanted}, got {got}")
    return [asked[name] for name in names]


def _index(name: str, index: object, count: int) -> None:
    inside = isinstance(index, int) and not isinstance(index, bool) and 0 <= index < count
    expect(inside, name, f"an integer from 0 to {count - 1}", repr(index)[:40])


def _numbers(name: str, values: object, shape: tuple[int, ...], dims: str, low: float, high: float) -> np.ndarray:
    """Nested lists as float64, of this shape and within these bounds."""
    wanted = "(" + ", ".join(f"{dim}={size}" for dim, size in zip(dims.split(), shape, strict=True)) + ") numbers"
    try:
        array = np.array(values)
    except ValueError:
        raise InputError(f"{name}: expected {wanted}, got lists of different lengths") from None
    expect(array.dtype.kind in "iuf", name, wanted, f"other things: {repr(values)[:40]}")
    expect(array.shape == tuple(shape), name, wanted, array.shape)
    array = array.astype(np.float64)
    expect(bool(np.isfinite(array).all()), name, "finite numbers", "NaN or infinity")
    expect(array.min() >= low and array.max() <= high, name, f"numbers from {low} to {high}", "others")
    return array
