"""What the explorer's page of a run is made of: its trace up to the weights it carries, the network, images to try.

run --best weights--> network, its routing of the trace's images --> trace whose last epoch is the network's
    --test images--> those it is least sure of, and three that are no digit of the set --> shelf
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from ..atomic import write_text
from ..data import DATASETS, Batches, DatasetSpec, load_images, to_float
from ..data.pairs import Pairs
from ..errors import GraphcapsError
from ..models import CapsNet, routing_network
from ..models.answers import longest, overlaid
from ..progress import bar
from ..trace import RoutingTrace
from ..trace.recording import pictures, routing_of, to_bytes
from ..training import checkpoint
from ..training.run_folder import Run, load
from ..viz.drawing import writable
from ..viz.explorer.data import packed
from ..viz.explorer.html import explorer_page
from .network import learned, network_data

HARD = 10  # test images with the lowest margins
BATCH = 256
LETTER = ((0.24, 0.8), (0.5, 0.18), (0.76, 0.8), (0.66, 0.56), (0.34, 0.56))  # an A, x and y in [0, 1]
FINE = 4  # points per pixel and side that it is drawn with
PEN = 2.32 / 20
"""Width of MNIST's strokes, as a share of its digits' longer side: twice the area over the border's length, of 500
test images. 28, 36 and 40 pixels have the same pen, since their digits are as large."""
INK = 20 / 28  # where a data set has no measure of its drawings, they are taken to be as large as MNIST's


def carried(run: Run, data: Path | None = None) -> tuple[RoutingTrace, dict | None, str]:
    """The trace, the network and why there is none, as ``explorer_page`` takes them.

    Args:
        run: a run with a trace.
        data: folder with its data set; default: the one used in training. Where it isn't there, the images of the trace
            stand for the test images.

    Returns:
        The trace up to the epoch of the best weights, the network or None, and "" or a sentence.

    Raises:
        GraphcapsError: no trace, damaged weights, or ``data`` doesn't hold the data set.
    """
    trace = run.trace()
    best = run.checkpoint("best")
    if not best.exists():
        return trace, None, f"Nothing can be drawn here: the run has no weights at {best}."
    model = routing_network(load(run), str(run))
    epoch = checkpoint.read(best)[1]["state"]["epoch"]
    try:
        found = network_data(model, epoch) | {"early": _early(run, trace.epochs[trace.epochs < epoch].tolist())}
    except GraphcapsError as error:
        return trace, None, f"Nothing can be drawn here: {error}."
    found = with_shelf(found, model, *_test_images(run, trace, data), DATASETS.get(run.config.dataset))
    return with_routing_of(model, trace, epoch), found, ""


def _early(run: Run, epochs: list[int]) -> list[dict]:
    """What the network had learned by these epochs, of those that the run has weights of."""
    model, found = routing_network(load(run), str(run)), []
    for epoch in epochs:
        path = run.checkpoint(f"epoch-{epoch}")
        if path.exists():
            model.load_state_dict(model.state_dict() | checkpoint.read(path)[0])  # the decoder stays
            found.append(learned(network_data(model, epoch)))
    return found


def with_routing_of(model: CapsNet, trace: RoutingTrace, epoch: int) -> RoutingTrace:
    """The trace, which holds images, up to this epoch, which is what the network's weights make of them."""
    assert trace.images is not None
    images = to_float(torch.from_numpy(trace.images))
    return trace.with_epoch(epoch, routing_of(model, images), **pictures(model, images))


def with_shelf(
    network: dict, model: CapsNet, pixels: torch.Tensor, labels: torch.Tensor, spec: DatasetSpec | None
) -> dict:
    """The network's data and what the page offers to try it on: what drawings look like, and the shelf.

    Args:
        network: what ``network_data`` gives of the model.
        pixels, labels: test images uint8 (N, C, H, W) and their classes (N,) or (N, K).
        spec: of their data set; None: images of a person's own.
    """
    labels = labels.reshape(len(labels), -1)
    ink = spec and spec.ink
    stroke = max(1.0, PEN * (ink or INK) * min(model.image_shape[1:]))
    desk = {"ink": ink, "detail": spec and spec.detail, "stroke": stroke}
    shelf = [*_hardest(model, pixels, labels), *_foreign(model, pixels[0], labels[0], stroke)]
    return {**network, "desk": desk, "shelf": shelf}


def write_explorer(run: Run, folder: Path, image: int = 0, data: Path | None = None) -> Path:
    """Write the run's explorer.html into the folder, which is made where it is missing.

    Args:
        image: which image of the trace is shown first, from 0.
        data: as in ``carried``.

    Raises:
        GraphcapsError: as ``carried`` and ``explorer_page`` do; a folder that can't be written.
    """
    path = folder / "explorer.html"
    with writable(folder), bar(path.name):
        trace, network, without = carried(run, data)
        page = explorer_page(trace, image, network, without)
        write_text(path, page)
    return path


def _test_images(run: Run, trace: RoutingTrace, data: Path | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The run's test images as the network sees them, uint8 (N, C, H, W), and their classes (N,) or (N, K)."""
    try:
        test = load_images(run.config.dataset, data or run.config.data, False, **run.config.of_images).test
    except GraphcapsError:
        if data is None and run.pretrained:
            tensors, _ = checkpoint.read(run.checkpoint("best"))
            return tensors["images"], tensors["labels"]
        if data is not None or trace.labels is None:
            raise
        return torch.from_numpy(trace.images), torch.from_numpy(trace.labels)
    if isinstance(test, Pairs):
        layers, labels = Batches(test, 1).at(torch.arange(len(test)))
        return torch.from_numpy(to_bytes(overlaid(layers))), labels
    return test.cut().pixels, test.labels


@torch.no_grad()
def _hardest(model: CapsNet, pixels: torch.Tensor, labels: torch.Tensor) -> list[dict]:
    """The test images by whose true classes (N, K) the network wins least, or loses most, the hardest first."""
    margins, answers = [], []
    for images, classes in zip(pixels.split(BATCH), labels.split(BATCH), strict=True):
        lengths = model(to_float(images)).lengths
        true = torch.zeros_like(lengths, dtype=torch.bool).scatter_(1, classes, True)
        least = lengths.masked_fill(~true, torch.inf).amin(dim=1)
        margins.append(least - lengths.masked_fill(true, -torch.inf).amax(dim=1))
        answers.append(longest(lengths, model.objects).reshape(len(classes), -1))
    answer, found = torch.cat(answers), []
    for n in torch.cat(margins).argsort()[:HARD].tolist():
        classes, named = labels[n].tolist(), answer[n].tolist()
        wrong = "" if sorted(classes) == sorted(named) else _names(model, named)
        group = "Hardest for this network"
        found.append(_shelved(_names(model, classes), pixels[n].numpy(), group, classes, wrong))
    return found


def _foreign(model: CapsNet, image: torch.Tensor, classes: torch.Tensor, stroke: float) -> list[dict]:
    """Images that show no class: an image of these classes upside down, a letter, noise."""
    channels, height, width = model.image_shape
    letter = Image.new("L", (FINE * width, FINE * height))
    line = [(FINE * width * x, FINE * height * y) for x, y in LETTER]
    ImageDraw.Draw(letter).line(line, 255, round(FINE * stroke), "curve")
    small = np.asarray(letter.resize((width, height), Image.Resampling.BOX))
    noise = np.random.default_rng(0).integers(0, 256, (channels, height, width), np.uint8)
    digits = all(name.isdecimal() for name in model.class_names)
    group = "No digit at all" if digits else "Of none of the classes"
    return [
        _shelved(f"{_names(model, classes.tolist())} turned", image.flip(1, 2).numpy(), group),
        _shelved("letter A", np.repeat(small[None], channels, axis=0), group),
        _shelved("noise", noise, group),
    ]


def _shelved(name: str, pixels: np.ndarray, group: str, classes: Sequence[int] = (), wrong: str = "") -> dict:
    return {"name": name, "classes": list(classes), "pixels": packed(pixels), "wrong": wrong, "group": group}


def _names(model: CapsNet, classes: list[int]) -> str:
    return " + ".join(model.class_names[label] for label in classes)
