"""Every setting of a training run: one line each with name, type, default and help.

The command line's flags, their help texts and a run's config.json are made from this dataclass. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import typing
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .errors import GraphcapsError, InputError, check_most, check_name, expect, read_json

FORMAT_VERSION = 2
OF_THE_MACHINE = ("data", "device")  # settings that may differ when a run is resumed
OF_THE_FOLDER = ("out", "name", "tensorboard")  # settings that weights don't depend on
MOST_EPOCHS, MOST_ITERATIONS = 1_000_000, 1_000  # all of them are numbers in a trace


@dataclass(frozen=True)
class Preset:
    """A network by name: what settings, the command line and the table of networks know of it.

    Args:
        network: the class in ``graphcaps.models`` that builds it.
        learning_rate: peak of Adam's one-cycle rate where none is asked for.
        routings: what it can be routed by, the default first; none: it has no capsules.
        settings: of ``TrainConfig``, those that its ``from_preset`` takes.
        iterations: of its routing where none are asked for.
    """

    network: Literal["CapsNet", "CNN", "MatrixCapsNet"]
    learning_rate: float
    routings: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    iterations: int = 3


_ANY = ("dynamic", "uniform", "attention", "spherical", "inverted", "em")
_ROUTED = ("routing", "protocol", "reconstruction_weight", "prior")

PRESETS = {
    "compact": Preset("CapsNet", 0.005, _ANY, _ROUTED, iterations=4),
    "parts": Preset("CapsNet", 0.005, _ANY, (*_ROUTED, "coupling_weight")),
    "paper": Preset("CapsNet", 0.001, _ANY, _ROUTED),
    "deep": Preset("CapsNet", 0.005, _ANY, _ROUTED),
    "cnn": Preset("CNN", 0.001),
    "cnn-small": Preset("CNN", 0.005),
    "matrix": Preset("MatrixCapsNet", 0.01, ("em",)),
    "matrix-small": Preset("MatrixCapsNet", 0.02, ("em",)),
}


Dataset = Literal["mnist", "fashion-mnist", "kmnist", "svhn", "cifar10", "smallnorb", "digits", "multimnist", "mnist40"]
OWN_KINDS = ("folder", "idx", "npz", "csv")  # of images of your own, whose data set is called KIND:PATH


def own_images(dataset: str) -> tuple[str, Path] | None:
    """Kind and path of images of your own; None of a data set that has a name."""
    kind, colon, path = dataset.partition(":")
    return (kind, Path(path).expanduser()) if colon and kind in OWN_KINDS else None


def short_name(dataset: str) -> str:
    """What a data set is called in pictures, tables and names of files: of a path its last part, without endings.

    >>> short_name("folder:photos/pets"), short_name("csv:/data/letters.csv.gz"), short_name("mnist")
    ('pets', 'letters', 'mnist')
    """
    kind, path = own_images(dataset) or ("", Path(dataset))
    name = path.absolute().name
    return name if kind in ("", "folder", "idx") else name.removesuffix(".gz").removesuffix(f".{kind}")


@dataclass(frozen=True)
class TrainConfig:
    """Train a capsule network on images, keep its routing, and report its test accuracy once."""

    dataset: Dataset | str = "mnist"
    """Images to train on; digits comes with scikit-learn and needs no download. multimnist: two of MNIST's digits that
    overlap in an image of 36 x 36. mnist40: MNIST's images of 28 x 28 in a black one of 40 x 40, each moved by up to 6
    pixels. smallnorb: toys, windows of 32 x 32; its files are not downloaded. Your own: folder:PATH, a folder per class
    in PATH or in PATH/train, PATH/val and PATH/test, a+b for images of both; idx:PATH, files of MNIST's format;
    npz:PATH, arrays as Keras and MedMNIST have them; csv:PATH, a row per image, as on Kaggle, or with the columns
    file,classes."""
    size: int | None = None
    """Your own images are made this large, on the longer side; without it they stay as they are, but from 28 to 64."""
    channels: Literal[1, 3] | None = None
    """Your own images are made grey (1) or RGB (3); without it they are grey where none has colour."""
    skip_bad: bool = False
    """Leave files of your own out that can't be read, instead of refusing them all."""
    model: Literal["compact", "parts", "paper", "deep", "cnn", "cnn-small", "matrix", "matrix-small"] = "compact"
    """compact: 16 child capsules, a graph small enough to look at whole, whose children choose; trains in minutes on a
    CPU. parts: 512 that see 13 x 13 pixels each, so that one sees which part of an image votes for what; its couplings
    stay nearly equal. paper: 1152, as in Sabour, Frosst & Hinton 2017. deep: two layers of convolutional capsules
    before the last. cnn: no capsules, the 2017 paper's baseline (35.4 M parameters). cnn-small: compact with linear
    layers for its capsules, as many parameters. matrix and matrix-small: 4 x 4 poses routed by em, as in Hinton,
    Sabour & Frosst 2018 (319 K and 69 K parameters)."""
    epochs: int = 10
    """Passes over the training images."""
    batch_size: int = 128
    """Images per step, over all processes together."""
    iterations: int | None = None
    """Routing iterations; None: 4 for compact, after which its children have chosen, 3 for the others, as in the 2017
    paper."""
    routing: str = "auto"
    """Routing algorithm. auto: em for matrix and matrix-small, which have no other, dynamic for the others. dynamic:
    Procedure 1 of Sabour, Frosst & Hinton 2017. uniform: none, equal couplings. attention: self-attention, Mazzia
    et al. 2021. spherical: a mixture of directions, Banerjee et al. 2005, as sharp as it learns to be. inverted:
    dot-product attention, Tsai et al. 2020. em: Hinton, Sabour & Frosst 2018. uniform and attention have one pass,
    whatever the iterations. module:Class: a routing of your own, which Python can import (PYTHONPATH=.)."""
    prior: Literal["none", "learned"] = "none"
    """learned: a logit for each edge of the last layer is learned, which its routing starts from: the log priors of
    Sabour et al. 2017, the B of Mazzia et al. 2021. Not for matrix, matrix-small and networks without capsules."""
    engine: Literal["auto", "dgl", "torch", "fused"] = "auto"
    """What runs the routing. auto: fused on a CPU where the routing has it, else torch or dgl, as suits the graph.
    fused: one pass over the votes per iteration, not for inverted, and em only for matrix; on a GPU experimental. dgl:
    DGL's kernels. torch: batched products or scatter."""
    protocol: Literal["paper", "official"] = "paper"
    """official: the model paper as its authors' code trains it: the margin loss over 20, primary capsules' sums times
    1/32, their biases from 0.1."""
    reconstruction_weight: float = 0.0005
    """Of the decoder's squared errors, summed over pixels, in the loss; 0: trained without reconstruction."""
    coupling_weight: float = 0.0
    """Of a term in the loss that asks each child over ink to choose the digit whose ink it is: the mean of -ln of that
    coupling. For parts, routed by dynamic or spherical; with spherical, 2 iterations and a weight of 1, children choose
    plainly."""
    balance: bool = False
    """Train on all classes equally often, however many images they have. An epoch is as long as ever: the images of a
    rare class come several times, of a frequent class some come, and in the next epochs the others. Not where an image
    shows several classes."""
    train_images: int | None = None
    """Train on that many images only, of each class in proportion, the same for every seed; None: on all."""
    learning_rate: float | None = None
    """Peak of Adam's one-cycle learning rate; None: 0.001 for paper and cnn, 0.01 for matrix, 0.02 for matrix-small,
    0.005 for the others."""
    augment: Literal["shift", "affine", "anywhere", "none"] = "shift"
    """shift: training images are moved by up to 2 pixels (mnist40: 6, smallnorb: 8), each of multimnist's digits by up
    to 4. affine: also turned and scaled. anywhere: for mnist40, each digit's ink is put anywhere it fits in the frame,
    in training and validation images. none: left alone."""
    seed: int = 0
    """Fixes the first weights, the order of the images and their augmentation."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; auto takes a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of convolutions and decoder; auto takes bfloat16 where the hardware has it. Routing is in float32.
    On a GPU float32 lets convolutions round to tf32, unless deterministic."""
    deterministic: bool = False
    """Use deterministic kernels only, slower on a GPU; on a CPU as many threads whatever other programs do."""
    data: Path = Path("data")
    """Folder where the data set is looked for, else downloaded to."""
    out: Path = Path("runs")
    """Folder that holds the run folders."""
    name: str = ""
    """Name of the run folder; empty: dataset, model and a number, such as mnist-compact-1."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard (pip install -e ".[tensorboard]")."""

    def __post_init__(self) -> None:
        for key in ("data", "out"):
            if isinstance(getattr(self, key), str):
                object.__setattr__(self, key, Path(getattr(self, key)))
        if self.routing == "auto":
            object.__setattr__(self, "routing", self._default_routing())

    def _default_routing(self) -> str:
        preset = PRESETS.get(self.model) if isinstance(self.model, str) else None  # what it is, check() asks
        return preset.routings[0] if preset and preset.routings else "dynamic"  # what runs of networks without have

    def check(self) -> None:
        """Raise ``InputError`` where a value can't work."""
        for key, kind in typing.get_type_hints(type(self)).items():
            value = getattr(self, key)
            if key == "dataset":
                self._check_dataset()
            elif typing.get_origin(kind) is Literal:
                expect(value in typing.get_args(kind), key, f"one of {', '.join(typing.get_args(kind))}", repr(value))
            elif kind is Path:
                expect(isinstance(value, Path) and "\0" not in str(value), key, "a folder", repr(value))
            elif kind in (int, bool, str):
                expect(type(value) is kind, key, f"of type {kind.__name__}", repr(value))
        for key in ("epochs", "batch_size"):
            expect(getattr(self, key) >= 1, key, "an integer >= 1", getattr(self, key))
        expect(0 <= self.seed < 2**63, "seed", "an integer from 0 to 2**63 - 1", self.seed)
        side = self.size
        expect(side is None or (type(side) is int and 8 <= side <= 1024), "size", "an integer from 8 to 1024", side)
        channels = self.channels
        fits = channels is None or (type(channels) is int and channels in (1, 3))
        expect(fits, "channels", "1 (grey) or 3 (RGB)", repr(channels))
        if own_images(self.dataset) is None:
            expect(side is None, "size", f"none for {self.dataset}", side, "Images of your own are made any size")
            then = "Images of your own are made grey or RGB"
            expect(channels is None, "channels", f"none for {self.dataset}", channels, then)
        single = not self.balance or self.dataset != "multimnist"
        expect(single, "balance", "a class per image", "multimnist, with two")
        paired = self.dataset != "multimnist" or self.augment == "shift"
        expect(paired, "augment", "shift for multimnist, whose digits are shifted by up to 4 pixels", self.augment)
        framed = self.augment != "anywhere" or self.dataset == "mnist40"
        expect(framed, "augment", f"shift, affine or none for {self.dataset}", self.augment, "anywhere is of mnist40")
        fits = self.protocol == "paper" or self.model == "paper"
        expect(fits, "protocol", f"paper for model {self.model}", self.protocol, "official is of --model paper alone")
        known, then = PRESETS[self.model].routings or ("dynamic",), ""
        if self.model.startswith("matrix"):
            then = "Its poses are routed by their spread"
        elif not PRESETS[self.model].routings:
            then = "It has no capsules: leave --routing out"
        imported = ":" in self.routing and len(known) > 1  # what it is, asks who imports it
        if not imported:
            expect(self.routing in known, "routing", f"{' or '.join(known)} for model {self.model}", self.routing, then)
        takes = self.prior == "none" or "prior" in PRESETS[self.model].settings
        expect(takes, "prior", f"none for model {self.model}", self.prior)
        for key in ("reconstruction_weight", "coupling_weight"):
            weight = getattr(self, key)
            numeric = isinstance(weight, (int, float)) and 0 <= weight < 1e30
            expect(numeric, key, "a number >= 0 and < 1e30", repr(weight))
        if self.coupling_weight:
            got = f"{self.model}, {self.routing}, {self.routing_iterations} iterations"
            asks = "coupling_weight" in PRESETS[self.model].settings and self.routing_iterations > 1
            wanted = "0, or model parts, routing dynamic or spherical, and 2 iterations or more"
            expect(asks and self.routing in ("dynamic", "spherical"), "coupling_weight", wanted, got)
        for key in ("iterations", "train_images"):
            number = getattr(self, key)
            expect(number is None or (type(number) is int and number >= 1), key, "an integer >= 1", number)
        check_most("epochs", self.epochs, MOST_EPOCHS)
        check_most("iterations", self.routing_iterations, MOST_ITERATIONS)
        rate = self.learning_rate
        numeric = rate is None or (isinstance(rate, (int, float)) and 0 < rate < 1e30)
        expect(numeric, "learning_rate", "a number > 0 and < 1e30", repr(rate))
        plain = self.name == Path(self.name).name and self.name not in (".", "..")
        expect(plain, "name", "a folder name without slashes", repr(self.name), "Use --out for the folder above it")
        for key in ("name", "out"):
            text = str(getattr(self, key))
            hidden = {"Cc", "Cs", "Zl", "Zp"} & {unicodedata.category(sign) for sign in text}
            expect(not hidden, key, "a path in UTF-8 without line breaks and other control characters", repr(text))

    def _check_dataset(self) -> None:
        if own_images(str(self.dataset)) is None:
            names = [*typing.get_args(Dataset), *(f"{kind}:PATH" for kind in OWN_KINDS)]
            there = isinstance(self.dataset, str) and self.dataset not in names and Path(self.dataset).is_dir()
            expect(not there, "dataset", "a name, or KIND:PATH", self.dataset, f"Try --dataset folder:{self.dataset}")
            check_name("dataset", self.dataset, names)

    @property
    def of_images(self) -> dict[str, Any]:
        """What ``load_images`` takes beside the name and the folder: nothing where the data set has a name."""
        if own_images(self.dataset) is None:
            return {}
        return {"size": self.size, "channels": self.channels, "skip_bad": self.skip_bad, "seed": self.seed}

    @property
    def dataset_name(self) -> str:
        """What the data set is called in pictures, tables and names of files."""
        return short_name(self.dataset)

    @property
    def peak_rate(self) -> float:
        """The learning rate's peak."""
        return PRESETS[self.model].learning_rate if self.learning_rate is None else self.learning_rate

    @property
    def routing_iterations(self) -> int:
        """R, of the routing."""
        return PRESETS[self.model].iterations if self.iterations is None else self.iterations

    def changed(self) -> list[str]:
        """Names of the settings that aren't defaults."""
        usual = {field.name: field.default for field in dataclasses.fields(self)} | {"routing": self._default_routing()}
        return [key for key, default in usual.items() if getattr(self, key) != default]

    def command(self) -> str:
        """The command that makes this run anywhere: its settings that aren't defaults, less the folders.

        >>> TrainConfig(dataset="digits", epochs=3).command()
        'graphcaps train --dataset digits --epochs 3'
        """
        words = ["graphcaps train"]
        for key in self.changed():
            if key not in ("data", "out", "name"):
                value = getattr(self, key)
                words.append(f"--{key.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}"))
        return " ".join(words)

    def to_json(self, **about) -> str:
        """The settings as JSON text, with ``about`` beside them."""
        return json.dumps({"format_version": FORMAT_VERSION, "settings": self.as_dict(), **about}, indent=2) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """The settings as they are in JSON."""
        return {key: str(v) if isinstance(v, Path) else v for key, v in dataclasses.asdict(self).items()}

    def check_trained(self, settings: dict[str, Any], source: str) -> None:
        """Raise ``GraphcapsError`` where weights were trained in other settings than these, which ``source`` has.

        Of images of a person's own, the folder may have moved.
        """
        own = self.as_dict()
        for key in settings.keys() & own.keys() - {*OF_THE_MACHINE, *OF_THE_FOLDER}:
            trained, now = (short_name(v) if key == "dataset" else v for v in (settings[key], own[key]))
            if trained != now:
                then = "Write it back, or train another run"
                raise GraphcapsError(f"{source}: {key}: expected {trained!r}, as its weights have, got {now!r}. {then}")

    @classmethod
    def from_json(cls, text: str, source: str = "config.json") -> TrainConfig:
        """Read what ``to_json`` wrote; raise ``GraphcapsError`` for anything else, naming ``source``."""
        try:
            stored = read_json(text, format_version=int, settings=dict)
            version, settings = stored["format_version"], stored["settings"]
        except ValueError as error:
            raise GraphcapsError(f"{source}: expected settings of a run as JSON, got: {error}") from None
        if version != FORMAT_VERSION:
            then = "A run of another version of graphcaps: train it again"
            raise GraphcapsError(f"{source}: expected format {FORMAT_VERSION}, got {version!r}. {then}")
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise GraphcapsError(f"{source}: expected the settings of train, got unknown {', '.join(unknown)}")
        try:
            config = cls(**settings)
            config.check()
        except (InputError, TypeError) as error:
            raise GraphcapsError(f"{source}: {error}") from None
        return config
