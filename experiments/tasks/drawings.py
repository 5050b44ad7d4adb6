"""How ``graphcaps predict`` answers drawings as people make them: MNIST's test digits drawn large, on any ground.

Each digit is drawn ten times as large on a sheet, at a random place, and the sheet is treated as the row's name says.
Files are written, and read as ``graphcaps predict`` reads them. Some images show no digit: letters of notMNIST, noise
and pieces of photographs. They choose nothing: the limits of doubt are chosen again on the validation images, as
training chooses them.
"""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import distance_transform_edt, gaussian_filter, maximum_filter
from sklearn.datasets import load_sample_images

from experiments.run import Place
from graphcaps.analysis.accuracy import EVALUATION_BATCH, evaluate
from graphcaps.data import DATASETS, Batches, load_images, read_image
from graphcaps.errors import expect
from graphcaps.models import doubts
from graphcaps.models.evidence import limits_of, outside
from graphcaps.progress import bar
from graphcaps.training.run_folder import Run, load

COUNT = 200
"""Images of each kind; of digits, the first test images."""
LETTERS = Path("notmnist") / "t10k-images-idx3-ubyte.gz"
LARGE, SHEET = 280, (420, 360)
"""Pixels of a side of a digit's image, and of its sheet."""
Random = np.random.Generator
Kind = Callable[[np.ndarray, Random], Image.Image | list[Image.Image]]


def on_sheet(image: np.ndarray, draw: Random) -> np.ndarray:
    """An image (28, 28) uint8 drawn with sharp edges somewhere on a sheet: its ink (H, W) in [0, 1]."""
    enlarged = Image.fromarray(image).resize((LARGE, LARGE), Image.Resampling.BICUBIC)
    ink, (top, left) = np.zeros(SHEET), (draw.integers(side - LARGE) for side in SHEET)
    ink[top : top + LARGE, left : left + LARGE] = ((np.asarray(enlarged) / 255 - 0.5) * 3 + 0.5).clip(0, 1)
    return ink


def picture(levels: np.ndarray) -> Image.Image:
    return Image.fromarray(levels.clip(0, 255).round().astype(np.uint8))


def lit(ink: np.ndarray, paper: float, dark: float) -> np.ndarray:
    return paper + (dark - paper) * ink


# Kinds of drawings: from ink and a generator to an image. Settings come after them.


def flat(ink: np.ndarray, draw: Random, paper: float, dark: float) -> Image.Image:
    return picture(lit(ink, paper, dark))


def framed(ink: np.ndarray, draw: Random, width: int, margin: int) -> Image.Image:
    sheet = np.pad(lit(ink, 255, 0)[width:-width, width:-width], width)
    return picture(np.pad(sheet, margin, constant_values=255))


def dusty(ink: np.ndarray, draw: Random) -> Image.Image:
    """Two specks of 4 to 10 pixels across."""
    sheet, (y, x) = lit(ink, 255, 0), np.indices(ink.shape)
    for _ in range(2):
        row, column, radius = *(draw.uniform(0, side) for side in SHEET), draw.uniform(2, 5)
        sheet[(y - row) ** 2 + (x - column) ** 2 < radius**2] = 0
    return picture(sheet)


def transparent(ink: np.ndarray, draw: Random, *colour: int) -> Image.Image:
    alpha = (ink * 255).round().astype(np.uint8)
    return Image.fromarray(np.dstack([*(np.full_like(alpha, each) for each in colour), alpha]))


def deep(ink: np.ndarray, draw: Random, bits: int) -> Image.Image:
    return Image.fromarray((lit(ink, 1, 0.05) * (2**bits - 1)).round().astype(np.uint16))


def thin(ink: np.ndarray, draw: Random) -> Image.Image:
    """The middle of each stroke."""
    inside = distance_transform_edt(ink > 0.5)
    return picture(lit((inside > 0) & (inside >= maximum_filter(inside, 9) - 1.5), 255, 120))


def cut(ink: np.ndarray, draw: Random) -> Image.Image:
    rows, columns = (np.flatnonzero((ink > 0.1).any(axis=axis)) for axis in (1, 0))
    return picture(lit(ink, 255, 0)[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])


def animated(ink: np.ndarray, draw: Random) -> list[Image.Image]:
    return [picture(lit(0 * ink, 255, 0)), picture(lit(ink, 255, 0))]


def shaded(sheet: np.ndarray, draw: Random, width: float) -> np.ndarray:
    """A shadow of 40 % of the light on one side of a line through the middle part."""
    (y, x), angle = np.indices(sheet.shape), draw.uniform(0, 2 * np.pi)
    row, column = (side * draw.uniform(0.3, 0.7) for side in sheet.shape)
    across = (x - column) * np.cos(angle) + (y - row) * np.sin(angle)
    return sheet * (0.7 - 0.3 * np.tanh(across / width))


def tilted(sheet: np.ndarray, draw: Random, table: int) -> np.ndarray:
    """Turned by up to 10 degrees, and seen from below: its lower side fills the width, the upper one 4/5 of it."""
    image = Image.fromarray(sheet.astype(np.float32))
    image = image.rotate(draw.uniform(-10, 10), Image.Resampling.BICUBIC, fillcolor=table)
    (height, width), more = sheet.shape, 0.12 * sheet.shape[1]
    corners = (-more, 0, 0, height, width, height, width + more, 0)
    turned = image.transform(image.size, Image.Transform.QUAD, corners, Image.Resampling.BICUBIC, fillcolor=table)
    return np.asarray(turned)


def photographed(sheet: np.ndarray, draw: Random) -> Image.Image:
    """Out of focus, with noise of 5 levels, and as a JPEG of quality 60."""
    file = io.BytesIO()
    picture(gaussian_filter(sheet, 1.5) + draw.normal(0, 5, sheet.shape)).save(file, "JPEG", quality=60)
    return Image.open(file)


PAIRS = ((240, 20), (200, 40), (180, 40), (255, 180), (255, 215), (40, 0), (0, 255), (60, 200), (175, 215), (0, 40))
DRAWINGS: dict[str, Kind] = {
    "clean: paper 255, ink 0": partial(flat, paper=255, dark=0),
    **{f"paper {paper}, ink {dark}": partial(flat, paper=paper, dark=dark) for paper, dark in PAIRS},
    "a black frame of one pixel": partial(framed, width=1, margin=0),
    "in a drawn box": partial(framed, width=3, margin=30),
    "two specks of dust": dusty,
    "a soft shadow": lambda ink, draw: picture(shaded(lit(ink, 230, 20), draw, 120)),
    "a shadow with an edge": lambda ink, draw: picture(shaded(lit(ink, 230, 20), draw, 1)),
    "tilted": lambda ink, draw: picture(tilted(lit(ink, 230, 30), draw, 230)),
    "tilted, on a darker table": lambda ink, draw: picture(tilted(lit(ink, 230, 30), draw, 110)),
    "black on transparent": lambda ink, draw: transparent(ink, draw, 0, 0, 0),
    "yellow on transparent": lambda ink, draw: transparent(ink, draw, 255, 255, 0),
    "white on transparent": lambda ink, draw: transparent(ink, draw, 255, 255, 255),
    "10 bits of 16": partial(deep, bits=10),
    "12 bits of 16": partial(deep, bits=12),
    "GIF, its first frame empty": animated,
    "cut out tightly": cut,
    "thin strokes of a pencil": thin,
    "photo: tilted, soft shadow, noise": lambda ink, draw: photographed(
        shaded(tilted(lit(ink, 210, 40), draw, 210), draw, 120), draw
    ),
    "photo of chalk: 200 on 60, soft shadow, noise": lambda ink, draw: photographed(
        shaded(lit(ink, 60, 200), draw, 120), draw
    ),
}


def photo_piece(draw: Random) -> Image.Image:
    """A piece of 140 x 140 of one of scikit-learn's two photographs."""
    photo = load_sample_images().images[draw.integers(2)]
    top, left = (draw.integers(side - 140) for side in photo.shape[:2])
    return Image.fromarray(photo[top : top + 140, left : left + 140])


def non_digits(letters: np.ndarray) -> dict[str, Callable[[int, Random], Image.Image]]:
    """Functions from a number and a generator to an image that shows no digit."""
    return {
        "letters, 28 x 28": lambda n, draw: Image.fromarray(letters[n]),
        "letters drawn large": lambda n, draw: picture(lit(on_sheet(letters[n], draw), 255, 0)),
        "noise, 28 x 28": lambda n, draw: picture(draw.integers(256, size=(28, 28))),
        "noise, 280 x 280": lambda n, draw: picture(draw.integers(256, size=(280, 280))),
        "pieces of photographs": lambda n, draw: photo_piece(draw),
    }


def answers_to(model, ink: float | None, images: Iterable[Image.Image | list[Image.Image]]) -> tuple[list, np.ndarray]:
    """The answers to image files, a class each or None, and which are doubted (N,) bool."""
    answers, doubted = [], []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for image in images:
            first, *more = image if isinstance(image, list) else [image]
            path = Path(folder) / ("image.gif" if more else "image.jpg" if first.format == "JPEG" else "image.png")
            first.save(path, **({"save_all": True, "append_images": more} if more else {}))
            pixels = read_image(path, model.image_shape, ink=ink).pixels[None]
            output = model(pixels)
            reasons = doubts(model, pixels, output)[0]
            blank = any(doubt.kind == "blank" for doubt in reasons)
            answers.append(None if blank else int(output.scores[0].argmax()))
            doubted.append(bool(reasons))
    return answers, np.array(doubted)


def of_run(run: Run, place: Place) -> dict:
    """Answers of a run on MNIST to drawings and to images without a digit: the numbers of ``table.drawings``.

    Raises:
        InputError: a run of other images, or no letters.
    """
    expect(run.config.dataset == "mnist", str(run), "a run on mnist", run.config.dataset)
    path = place.data / LETTERS
    expect(path.is_file(), "letters", f"{LETTERS} in {place.data}, of notMNIST", "none")
    letters = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16).reshape(-1, 28, 28)
    kinds = non_digits(np.random.default_rng(0).permutation(letters)[:COUNT])
    model, splits, ink = load(run), load_images("mnist", place.data), DATASETS["mnist"].ink
    found = {}
    for name in ("val", "test"):
        with bar(f"{name} images") as on_progress:
            found[name] = evaluate(model, Batches(getattr(splits, name), EVALUATION_BATCH), on_progress)
    model.limits = limits_of(found["val"].evidence, found["val"].right)
    doubted, right = outside(found["test"].evidence, model.limits).any(dim=1), found["test"].right
    digits, labels = splits.test.pixels[:COUNT, 0].numpy(), splits.test.labels[:COUNT].numpy()
    rows, answered = [], []
    with bar("drawings") as on_progress:
        for n, (name, draw) in enumerate(DRAWINGS.items()):
            sources = [np.random.default_rng([n, k]) for k in range(COUNT)]
            images = (draw(on_sheet(digit, source), source) for digit, source in zip(digits, sources, strict=True))
            answers, doubt = answers_to(model, ink, images)
            rows.append({"name": name, **_shares(np.array(answers) == labels, doubt)})
            on_progress((n + 1) / (len(DRAWINGS) + len(kinds)))
        for n, (name, kind) in enumerate(kinds.items()):
            _, doubt = answers_to(model, ink, (kind(k, np.random.default_rng([n, k])) for k in range(COUNT)))
            answered.append({"name": name, "answered": float((~doubt).mean())})
            on_progress((len(DRAWINGS) + n + 1) / (len(DRAWINGS) + len(kinds)))
    return {
        "command": "python -m experiments drawings RUN",
        "of": run.result()["command"] if run.result() else str(run),
        "count": COUNT,
        "limits": model.limits._asdict(),
        "drawings": rows,
        "no_digits": answered,
        "test": {"images": len(right), **_shares(right.numpy(), doubted.numpy())},
    }


def _shares(right: np.ndarray, doubted: np.ndarray) -> dict[str, float]:
    shares = {"right": right, "doubted": doubted, "wrong": ~right & ~doubted}
    return {name: float(share.mean()) for name, share in shares.items()}
