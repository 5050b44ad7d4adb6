"""Reading of named data sets or your own files, and splitting them into training, validation and test images."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn.functional import interpolate

from ..errors import check_name, expect
from ..names import DATASETS, DatasetSpec, own_images
from .augment import in_fixed_places, in_frame
from .images import Images
from .pairs import Pairs
from .smallnorb import last_toys, read_smallnorb
from .splits import ImageSplits, stratified_split
from .torchvision_sets import read_torchvision
from .user_datasets import read_user_dataset


def _read_digits() -> tuple[Images, Images]:
    """Read scikit-learn's 1797 handwritten digits, 8 x 8 with values from 0 to 16, and enlarge them to 28 x 28."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = torch.from_numpy(digits.images)[:, None] * (255 / 16)
    pixels = interpolate(small, size=(28, 28), mode="bilinear").round().to(torch.uint8)
    images = Images(pixels, torch.from_numpy(digits.target).to(torch.int64))
    train, test = stratified_split(images.labels, 250)
    return images.take(train), images.take(test)


def _read(spec: DatasetSpec, root: Path, download: bool) -> tuple[Images, Images]:
    """Read the training and test images of a named data set."""
    if spec.source == "digits":
        return _read_digits()
    if spec.source == "smallnorb":
        return read_smallnorb(root, download)
    return read_torchvision(spec.source, root, download)


def load_images(
    name: str,
    root: Path | str = Path("data"),
    download: bool = True,
    *,
    size: int | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    seed: int = 0,
    separator: str | None = None,
    recorded: Path | None = None,
) -> ImageSplits:
    """Read a data set and split it. Every command that needs a data set calls this function.

    Validation images are held out of the training files, stratified by class, with a fixed seed, so the split is the
    same on every machine. For smallnorb, one toy of each class is held out instead. All test images are kept.

    Args:
        name: one of ``DATASETS``, or ``KIND:PATH`` for your own images, as in ``TrainConfig.dataset``.
        root: the folder with the files, in torchvision's layout, such as ``MNIST/raw``. ``digits`` needs no files.
        download: whether to download missing files.
        size, channels, skip_bad, seed, separator: for your own images, as in ``TrainConfig``. The seed determines their
            split.
        recorded: the file images.csv of a run. If it exists, its images are taken.

    Raises:
        InputError: the name is unknown, or one of your own files doesn't fit; the message says which file, and why.
        GraphcapsError: files are missing or damaged and can't be downloaded, or torchvision can't be imported.
    """
    root = Path(root).expanduser()
    if own_images(name):
        return read_user_dataset(name, root, size, channels, skip_bad, seed, separator, recorded)
    check_name("dataset", name, list(DATASETS))
    spec = DATASETS[name]
    train, test = _read(spec, root, download)
    for part, images, count in (("training", train, spec.train), ("test", test, spec.test)):
        wanted, got = (count, *spec.image_shape), (len(images), *images.image_shape)
        expect(got == wanted, f"{name} {part} images", f"{wanted}", f"{got}", f"Delete its files in {root}")
    split = last_toys if name == "smallnorb" else stratified_split
    kept, held_out = split(train.labels, spec.val)
    parts: tuple[Images, ...] = train.take(kept), train.take(held_out).cut(), test
    if spec.pairs:
        return ImageSplits(name, spec.class_names, *map(Pairs, parts))
    if spec.border:
        parts = in_frame(parts[0], spec.border), *(in_fixed_places(images, spec.border) for images in parts[1:])
    return ImageSplits(name, spec.class_names, *parts)
