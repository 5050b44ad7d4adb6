"""The data sets by name, their expected contents, and how each is split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..config import own_images
from ..errors import check_name, expect
from .augment import in_fixed_places, in_frame
from .images import Images
from .pairs import REACH, Pairs
from .smallnorb import last_toys, read_smallnorb
from .splits import ImageSplits, stratified_split
from .torchvision_sets import read_torchvision
from .user_datasets import read_user_dataset


@dataclass(frozen=True)
class DatasetSpec:
    """How to read and split a named data set, and its expected contents."""

    read: Callable[[Path, bool], tuple[Images, Images]]  # folder, whether to download -> training images, test images
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    train: int  # images in the training files
    test: int  # images in the test files
    val: int = 5000  # training images held out for the choice of the model
    split: Callable[[Tensor, int], tuple[Tensor, Tensor]] = stratified_split  # labels, val -> rows kept, rows held out
    ink: float | None = None  # share of the image that a drawing's longer side fills, if it is the same for all images
    pairs: bool = False  # whether an image is made of two images from the files
    border: int | None = None  # black pixels on each side of an image; it is shifted by up to this many
    detail: int | None = None  # pixels per side before the images were enlarged, if they were


def _read_digits(root: Path, download: bool) -> tuple[Images, Images]:
    """Read scikit-learn's 1797 handwritten digits, 8 x 8 with values 0 to 16, and enlarge them to 28 x 28."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = torch.from_numpy(digits.images)[:, None] * (255 / 16)
    pixels = interpolate(small, size=(28, 28), mode="bilinear").round().to(torch.uint8)
    images = Images(pixels, torch.from_numpy(digits.target).to(torch.int64))
    train, test = stratified_split(images.labels, 250)
    return images.take(train), images.take(test)


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_LETTERS = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TOYS = ("animal", "human", "airplane", "truck", "car")
_MNIST = DatasetSpec(partial(read_torchvision, "MNIST"), _GREY, _DIGITS, train=60_000, test=10_000, ink=20 / 28)

DATASETS: dict[str, DatasetSpec] = {
    "digits": DatasetSpec(_read_digits, _GREY, _DIGITS, train=1547, test=250, val=250, ink=1.0, detail=8),
    "mnist": _MNIST,
    "mnist40": replace(_MNIST, border=6, ink=20 / 40),
    "multimnist": replace(_MNIST, pairs=True, ink=20 / (28 + 2 * REACH)),
    "fashion-mnist": DatasetSpec(partial(read_torchvision, "FashionMNIST"), _GREY, _CLOTHES, train=60_000, test=10_000),
    "kmnist": DatasetSpec(partial(read_torchvision, "KMNIST"), _GREY, _LETTERS, train=60_000, test=10_000),
    "svhn": DatasetSpec(partial(read_torchvision, "SVHN"), _COLOUR, _DIGITS, train=73_257, test=26_032),
    "cifar10": DatasetSpec(partial(read_torchvision, "CIFAR10"), _COLOUR, _THINGS, train=50_000, test=10_000),
    "smallnorb": DatasetSpec(read_smallnorb, (1, 32, 32), _TOYS, train=24_300, test=24_300, val=4860, split=last_toys),
}


def load_images(
    name: str,
    root: Path | str = Path("data"),
    download: bool = True,
    *,
    size: int | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    seed: int = 0,
) -> ImageSplits:
    """Read a data set and split it; every command that takes images calls this.

    Validation images are held out of the training files, stratified by class, with a fixed seed, so the split is the
    same on every machine. Of smallnorb, one toy of each class is held out instead. All test images are kept.

    Args:
        name: one of ``DATASETS``, or ``KIND:PATH`` for your own images, as in ``TrainConfig.dataset``.
        root: the folder with the files in torchvision's layout, such as ``MNIST/raw``. ``digits`` needs none.
        download: whether to download missing files.
        size, channels, skip_bad, seed: for your own images, as in ``TrainConfig``; the seed determines their split.

    Raises:
        InputError: the name is unknown, or a file of your own doesn't fit (the message names the file and the reason).
        GraphcapsError: files are missing or damaged and can't be downloaded, or torchvision can't be imported.
    """
    root = Path(root).expanduser()
    if own_images(name):
        return read_user_dataset(name, root, size, channels, skip_bad, seed)
    check_name("dataset", name, list(DATASETS))
    spec = DATASETS[name]
    train, test = spec.read(root, download)
    for part, images, count in (("training", train, spec.train), ("test", test, spec.test)):
        wanted, got = (count, *spec.image_shape), (len(images), *images.image_shape)
        expect(got == wanted, f"{name} {part} images", f"{wanted}", f"{got}", f"Delete its files in {root}")
    kept, held_out = spec.split(train.labels, spec.val)
    parts = {"train": train.take(kept), "val": train.take(held_out).cut(), "test": test}
    if spec.pairs:
        return ImageSplits(name, spec.class_names, **{part: Pairs(images) for part, images in parts.items()})
    if spec.border:
        place = {"train": in_frame, "val": in_fixed_places, "test": in_fixed_places}
        parts = {part: place[part](images, spec.border) for part, images in parts.items()}
    return ImageSplits(name, spec.class_names, **parts)
