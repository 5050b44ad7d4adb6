"""Tables of data sets, networks, routings, engines and augmentations by name. Reading them needs no torch."""

import contextlib
import os
import sys
import unicodedata
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .errors import GraphcapsError

ROUTINGS = {
    "dynamic": "Dynamic",
    "uniform": "Uniform",
    "attention": "Attention",
    "spherical": "Spherical",
    "inverted": "Inverted",
    "em": "EM",
}
"""Name of a routing -> its class in the module of the same name in ``graphcaps.algorithms``."""

ENGINES = ("auto", "fused", "torch", "dgl")
AUGMENTS = ("none", "shift", "affine", "anywhere")
OWN_KINDS = ("folder", "idx", "npz", "csv")  # formats of your own images; their data set is called KIND:PATH


@dataclass(frozen=True)
class Preset:
    """A network for images and its default settings."""

    network: Literal["CapsNet", "CNN", "MatrixCapsNet"]  # the class in ``graphcaps.images.models`` that builds it
    learning_rate: float  # default peak of Adam's one-cycle rate
    routings: tuple[str, ...] = ()  # names of its routings, the default first; empty without capsules
    settings: tuple[str, ...] = ()  # the fields of ``TrainConfig`` that its ``from_preset`` takes
    iterations: int = 3  # default number of routing iterations


_ANY, _ROUTED = tuple(ROUTINGS), ("routing", "reconstruction_weight", "prior")

NETWORKS = {
    "compact": Preset("CapsNet", 0.005, _ANY, _ROUTED, iterations=4),
    "small": Preset("CapsNet", 0.0035, _ANY, _ROUTED, iterations=12),
    "parts": Preset("CapsNet", 0.005, _ANY, _ROUTED),
    "paper": Preset("CapsNet", 0.001, _ANY, _ROUTED),
    "deep": Preset("CapsNet", 0.005, _ANY, _ROUTED),
    "cnn": Preset("CNN", 0.001),
    "cnn-small": Preset("CNN", 0.005),
    "matrix": Preset("MatrixCapsNet", 0.01, ("em",)),
    "matrix-small": Preset("MatrixCapsNet", 0.02, ("em",)),
}


@dataclass(frozen=True)
class DatasetSpec:
    """The expected contents of a named data set, and how it is split."""

    source: str  # "digits", or the class in ``torchvision.datasets``
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    train: int  # images in the training files
    test: int  # images in the test files
    val: int = 5000  # training images held out for the choice of the model
    ink: float | None = None  # a drawing's longer side as a share of the image's side, if it is always the same
    pairs: bool = False  # whether an image is made of two images from the files
    border: int | None = None  # width in pixels of the black border; images are shifted by up to this
    detail: int | None = None  # pixels per side before the images were enlarged, if they were


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_LETTERS = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MNIST = DatasetSpec("MNIST", _GREY, _DIGITS, train=60_000, test=10_000, ink=20 / 28)

DATASETS = {
    "mnist": _MNIST,
    "fashion-mnist": DatasetSpec("FashionMNIST", _GREY, _CLOTHES, train=60_000, test=10_000),
    "kmnist": DatasetSpec("KMNIST", _GREY, _LETTERS, train=60_000, test=10_000),
    "svhn": DatasetSpec("SVHN", _COLOUR, _DIGITS, train=73_257, test=26_032),
    "cifar10": DatasetSpec("CIFAR10", _COLOUR, _THINGS, train=50_000, test=10_000),
    "digits": DatasetSpec("digits", _GREY, _DIGITS, train=1547, test=250, val=250, ink=1.0, detail=8),
    "multimnist": replace(_MNIST, pairs=True, ink=20 / 36),
    "mnist40": replace(_MNIST, border=6, ink=20 / 40),
}


def own_images(dataset: str) -> tuple[str, Path] | None:
    """Return the format and the path of your own images, or None for a named data set."""
    kind, colon, path = dataset.partition(":")
    return (kind, Path(os.path.expanduser(path))) if colon and kind in OWN_KINDS else None


def clean(name: str) -> str:
    """A file's name as text that can be printed on a line and compared: escaped, and composed (NFC)."""
    return unicodedata.normalize("NFC", escaped(name)).replace("\n", "\\n")


def escaped(text: str) -> str:
    """Escape bytes that aren't UTF-8, and control characters, which could change a terminal, but not line breaks."""
    with contextlib.suppress(UnicodeEncodeError):  # of a surrogate alone, which is escaped below
        text = os.fsencode(text).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


def short_name(dataset: str) -> str:
    """The data set's name in pictures, tables and file names. For a file, it is the file's name without suffixes.

    >>> short_name("folder:photos/pets"), short_name("csv:/data/letters.csv.gz"), short_name("mnist")
    ('pets', 'letters', 'mnist')
    """
    kind, path = own_images(dataset) or ("", Path(dataset))
    name = clean(path.absolute().name)
    return name if kind in ("", "folder", "idx") else name.removesuffix(".gz").removesuffix(f".{kind}")


ALLOW_CODE: ContextVar[bool] = ContextVar("ALLOW_CODE", default=False)
"""Whether loading a run may import the module of the routing that the run names."""


def check_allowed(name: str) -> None:
    """Raise ``GraphcapsError`` if a file names a routing whose module would have to be imported, without permission."""
    module, colon, _ = name.partition(":")
    known = name in ROUTINGS or (colon and module in sys.modules)
    if not known and not ALLOW_CODE.get():
        fix = f"If you trust the file, import {module} first; on the command line, add --allow-code"
        raise GraphcapsError(f"routing: expected one of graphcaps in a file, got {name}, whose code would run. {fix}")
