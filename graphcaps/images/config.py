"""Every setting of a training run: one line each with name, type, default and help.

The command line's flags, their help texts and a run's config.json are generated from this dataclass. The module
``names`` lists the possible values of a setting.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
import typing
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import GraphcapsError, InputError, check_name, expect, read_json, reading
from ..names import AUGMENTS, DATASETS, ENGINES, NETWORKS, OWN_KINDS, Preset, own_images, short_name
from ..typed import AtLeastZero, Positive, Size, kind_of, refuse

FORMAT_VERSION = 2
MACHINE_SETTINGS = ("data", "device", "capture")  # settings that may differ when a run is resumed
OWN_SETTINGS = ("size", "channels", "skip_bad", "label_column", "group_by")  # of the user's own images
FOLDER_SETTINGS = ("out", "name")  # settings that don't affect weights
MAX_ITERATIONS = 1_000
REMOVED = {"protocol": "paper", "coupling_weight": 0.0, "tensorboard": False, "separator": None, "balance": False}
"""Settings of 0.1.0 and their defaults."""
OTHER_VERSION = "Another version of graphcaps, such as 0.1.0, wrote this run: open it there, or train it again"

if TYPE_CHECKING:
    Model = str
    Engine = str
    Augment = str
else:
    Model, Engine, Augment = (Literal[tuple(names)] for names in (NETWORKS, ENGINES, AUGMENTS))


def without_removed(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out the settings that were removed, where they have their defaults."""
    return {key: value for key, value in settings.items() if key not in REMOVED or value != REMOVED[key]}


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training. If a default is None, the setting's text says what is used instead."""

    dataset: str = "mnist"
    """Images to train on. digits: comes with scikit-learn, so nothing is downloaded. multimnist: two of MNIST's digits
    overlap in an image of 36 x 36; in training, 15 % of the images show only one digit, and 5 % none. mnist40: MNIST's
    images of 28 x 28, each moved by up to 6 pixels in a black frame of 40 x 40. Your own images: folder:PATH, one
    folder per class in PATH, or in PATH/train, PATH/val and PATH/test. idx:PATH, files in MNIST's format. npz:PATH,
    arrays named as in Keras or MedMNIST. csv:PATH, one row per image: its label and pixels, as on Kaggle, or its file
    and label."""
    size: Annotated[int, 8, 1024] | None = None
    """Longer side of your own images, in pixels, after scaling; default: their own, but at least 28 and at most 64."""
    channels: Literal[1, 3] | None = None
    """Convert your own images to grey (1) or RGB (3); default: grey if none has colour, else RGB."""
    skip_bad: bool = False
    """Skip files of your own images that can't be read, instead of stopping with an error."""
    label_column: str = ""
    """Column with the classes in a table of your own: its name, or first or last; default: found by its name."""
    group_by: str = ""
    """Keep images of one group, such as a patient or a writer, in one part of the split. The group is a column of a
    table of files, or the part of a file's name that matches a regular expression: patient[0-9]+."""
    train_images: Size | None = None
    """Train on this many images only: the same ones for every seed, each class in proportion; default: all images."""
    augment: Augment = "shift"
    """Random changes of the training images. shift: move each image by up to 2 pixels (mnist40: 6), and each of
    multimnist's digits by up to 4. affine: also turn it by up to 15 degrees, and shear and scale it by up to 15 %.
    anywhere: for mnist40, move each digit to any place in the frame where it fits, in training and validation images.
    none: no change."""
    data: Path = Path("data")
    """Folder with the data set. A data set that is missing there is downloaded into it."""
    model: Model = "compact"
    """Network. compact: 16 child capsules, few enough to show the whole graph; each comes to prefer one parent; trains
    in minutes on a CPU. small: 16 child capsules too, with a ninth of the multiplications, for images of at least 29 x
    29, such as multimnist's. parts: 512 child capsules that see 13 x 13 pixels each, which shows what part of an image
    votes for a class; its couplings stay nearly equal. paper: 1152 child capsules, as in Sabour, Frosst & Hinton 2017.
    deep: two layers of convolutional capsules before the last layer. cnn: no capsules, the 2017 paper's baseline (35.4
    M parameters). cnn-small: compact with linear layers instead of capsules, and as many parameters. matrix and
    matrix-small: 4 x 4 poses routed by em, as in Hinton, Sabour & Frosst 2018 (319 K and 69 K parameters)."""
    routing: str = "auto"
    """Routing algorithm. auto: em for matrix and matrix-small, which allow no other; dynamic for the other networks.
    dynamic: Procedure 1 of Sabour, Frosst & Hinton 2017. uniform: no routing, all couplings equal. attention:
    self-attention, Mazzia et al. 2021. spherical: a mixture of directions, Banerjee et al. 2005, with a learned
    concentration. inverted: dot-product attention, Tsai et al. 2020. em: Hinton, Sabour & Frosst 2018. uniform and
    attention always take one pass, without iterations. module:Class: your own routing, which Python must be able to
    import (PYTHONPATH=.)."""
    iterations: Annotated[int, 1, MAX_ITERATIONS] | None = None
    """Routing iterations; default: 4 for compact and 12 for small, whose children need them to choose a parent, and 3
    for the other networks, as in the 2017 paper."""
    rising: bool = False
    """Train with fewer routing iterations at first: with 1, so with equal couplings, in the first third of the steps,
    with a third of --iterations in the next sixth, with two thirds in the next fifth, and with all in the rest.
    Validation uses all. At each change, the votes become weaker, so that lengths stay. With 8 iterations or more from
    the start, a network learns slowly. Only for routing dynamic."""
    prior: Literal["none", "learned"] = "none"
    """Start of the last layer's routing. none: equal couplings. learned: a learned logit for each edge, which Sabour et
    al. 2017 call log prior and Mazzia et al. 2021 call B. Not for matrix, matrix-small and networks without
    capsules."""
    engine: Engine = "auto"
    """Code that computes the routing. auto: fused on a CPU if it supports the routing, else torch or dgl, depending on
    the graph. fused: one pass over the votes per iteration; only for dynamic, uniform, spherical and, on a CPU,
    attention. torch: batched matrix products, or scatter operations. dgl: DGL's kernels."""
    from_run: str | None = None
    """Start from the weights of this run, or of mnist or multimnist, which come with graphcaps: all layers but the last
    are taken, so the classes may differ. Unless they are given, the network's settings, and the size and the channels
    of your own images, are those of that run."""
    epochs: Annotated[int, 1, 1_000_000] = 10
    """Passes over the training images."""
    batch_size: Size = 128
    """Images per training step; by default a quarter of fewer than 128 training images."""
    learning_rate: Positive | None = None
    """Peak of Adam's one-cycle learning rate; default: 0.001 for paper and cnn, 0.01 for matrix, 0.02 for matrix-small,
    0.0035 for small, 0.005 for the others."""
    reconstruction_weight: AtLeastZero = 0.0005
    """Weight of the decoder's loss, the sum of squared errors over pixels; 0: the decoder is not trained."""
    seed: Annotated[int, 0, 2**63 - 1] = 0
    """Seed of the initial weights, the order of the images and their augmentation."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto: a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the convolutions and the decoder; auto: bfloat16 if the hardware supports it, else float32. Routing
    adds in float32. On a GPU, float32 allows tf32 in convolutions, except with --deterministic."""
    deterministic: bool = False
    """Use only deterministic kernels, which are slower on a GPU."""
    capture: bool = True
    """With CUDA, launch the kernels of a training step together, as a CUDA graph; results are the same. --no-capture
    launches them one by one, to find errors. Routings that wait for the GPU always do so."""
    out: Path = Path("runs")
    """Folder in which the run folder is made."""
    name: str = ""
    """Name of the run folder; default: dataset, model and a number, such as mnist-compact-1."""

    def __post_init__(self) -> None:
        for key in ("data", "out"):
            if isinstance(getattr(self, key), (str, Path)):
                object.__setattr__(self, key, Path(os.path.expanduser(getattr(self, key))))
        if self.routing == "auto":
            object.__setattr__(self, "routing", self._default_routing())

    def _default_routing(self) -> str:
        preset = NETWORKS.get(self.model) if isinstance(self.model, str) else None  # check() validates it later
        return preset.routings[0] if preset and preset.routings else "dynamic"

    def check(self) -> None:
        """Raise ``InputError`` if a value is invalid."""
        for key, hint in typing.get_type_hints(type(self), include_extras=True).items():
            if not kind_of(hint).fits(value := getattr(self, key)):
                refuse(key, kind_of(hint), value)
        self._check_dataset()
        self._check_model()
        plain = self.name == Path(self.name).name and self.name not in (".", "..")
        expect(plain, "name", "a folder name without slashes", repr(self.name), "Use --out for the folder above it")
        expect("\0" not in str(self.data), "data", "a folder", repr(str(self.data)))
        for key in ("name", "out"):
            text = str(getattr(self, key))
            hidden = {"Cc", "Cs", "Zl", "Zp"} & {unicodedata.category(sign) for sign in text}
            expect(not hidden, key, "a path in UTF-8 without line breaks and other control characters", repr(text))

    def _check_model(self) -> None:
        preset, routings, fix = self.preset, self.preset.routings or ("dynamic",), ""
        if not preset.routings:
            fix = "It has no capsules: leave --routing out"
        elif len(routings) == 1:
            fix = "Its poses can only be routed by EM"
        if ":" not in self.routing or len(routings) == 1:  # the user's own routing is checked when it is imported
            wanted = f"{' or '.join(routings)} for model {self.model}"
            expect(self.routing in routings, "routing", wanted, self.routing, fix)
        fits = "prior" in preset.settings or self.prior == "none"
        expect(fits, "prior", f"none for model {self.model}", self.prior)
        fits = "routing" in preset.settings and self.routing == "dynamic" or not self.rising
        expect(fits, "rising", f"False for model {self.model} and routing {self.routing}", self.rising)

    def _check_dataset(self) -> None:
        if own_images(self.dataset) is None:
            names = [*DATASETS, *(f"{kind}:PATH" for kind in OWN_KINDS)]
            is_folder = self.dataset not in names and Path(self.dataset).is_dir()
            fix = f"Try --dataset folder:{self.dataset}"
            expect(not is_folder, "dataset", "a name, or KIND:PATH", self.dataset, fix)
            check_name("dataset", self.dataset, names)
            for key in OWN_SETTINGS:
                value = getattr(self, key)
                expect(not value, key, f"none for {self.dataset}", value, "It is for your own images")
        shifted = self.dataset != "multimnist" or self.augment == "shift"
        expect(shifted, "augment", "shift for multimnist, whose digits are shifted by up to 4 pixels", self.augment)
        framed = self.augment != "anywhere" or self.dataset == "mnist40"
        expect(framed, "augment", f"shift, affine or none for {self.dataset}", self.augment, "anywhere is for mnist40")

    @property
    def of_images(self) -> dict[str, Any]:
        """Additional arguments of ``load_images`` for the user's own images; empty for a named data set."""
        if own_images(self.dataset) is None:
            return {}
        settings = {key: getattr(self, key) for key in (*OWN_SETTINGS, "seed")}
        return {**settings, "recorded": self.out / self.name / "images.csv" if self.name else None}

    @property
    def dataset_name(self) -> str:
        """The name of the data set that is used in pictures, tables and file names."""
        return short_name(self.dataset)

    @property
    def preset(self) -> Preset:
        """The network's row in the table of networks."""
        return NETWORKS[self.model]

    @property
    def peak_rate(self) -> float:
        """The peak of the learning rate."""
        return self.preset.learning_rate if self.learning_rate is None else self.learning_rate

    @property
    def num_iterations(self) -> int:
        """The number of routing iterations, which ``rising`` approaches."""
        return self.preset.iterations if self.iterations is None else self.iterations

    def changed(self) -> list[str]:
        """Names of the settings that differ from their defaults."""
        usual = {field.name: field.default for field in dataclasses.fields(self)} | {"routing": self._default_routing()}
        return [key for key, default in usual.items() if getattr(self, key) != default]

    def command(self, here: bool = False) -> str:
        """The command that trains with these settings on any machine. It omits defaults and folders.

        With ``here``, it repeats a run on this machine: it has the folder of the data, and of a routing's module.

        >>> TrainConfig(dataset="digits", epochs=3).command()
        'graphcaps train --dataset digits --epochs 3'
        """
        words, module = ["graphcaps train"], sys.modules.get(self.routing.partition(":")[0])
        if here and module is not None and (file := getattr(module, "__file__", None)):
            folder = Path(file).absolute().parents[module.__name__.count(".") + (Path(file).stem == "__init__")]
            words.insert(0, f"PYTHONPATH={shlex.quote(str(folder))}")
        for key in self.changed():
            if key not in ("data", "out", "name", "capture"):
                value = getattr(self, key)
                words.append(f"--{key.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}"))
        if here and self.dataset != "digits":
            words.append(f"--data {shlex.quote(str(self.data.absolute()))}")
        return " ".join(words)

    def to_json(self, **about) -> str:
        """The settings as JSON text, with ``about`` beside them."""
        return json.dumps({"format_version": FORMAT_VERSION, "settings": self.as_dict(), **about}, indent=2) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain data for JSON."""
        return {key: str(v) if isinstance(v, Path) else v for key, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, text: str, source: str = "config.json", **place: Any) -> TrainConfig:
        """Read what ``to_json`` wrote; ``place`` has ``out`` and ``name`` of a run folder that may have been moved.

        Raises:
            GraphcapsError: the text is another one. The message names ``source``.
        """
        with reading(source, "settings of a run as JSON", kind=GraphcapsError):
            stored = read_json(text, format_version=int, settings=dict)
        version, settings = stored["format_version"], without_removed(stored["settings"])
        if version != FORMAT_VERSION:
            raise GraphcapsError(f"{source}: expected format {FORMAT_VERSION}, got {version!r}. {OTHER_VERSION}")
        if unknown := sorted(settings.keys() - {field.name for field in dataclasses.fields(cls)}):
            got = f"unknown {', '.join(unknown)}. {OTHER_VERSION}"
            raise GraphcapsError(f"{source}: expected the settings of train, got {got}")
        try:
            config = cls(**settings | place)
            config.check()
        except (InputError, TypeError) as error:
            raise GraphcapsError(f"{source}: {error}") from None
        return config
