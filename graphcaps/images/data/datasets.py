"""Reading of named data sets or your own images, and splitting them into training, validation and test images."""

import contextlib
import fcntl
import logging
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from ...errors import GraphcapsError, check_name, did_you_mean, expect, reading
from ...files import check_file
from ...names import DATASETS, OWN_KINDS, own_images
from .array_files import as_pixels, read_arrays
from .augment import in_fixed_places, in_frame
from .images import Images, Pairs
from .listing import list_csv, list_folder
from .splits import PARTS, ImageSplits, split, stratified_split
from .user_datasets import read_files

log = logging.getLogger(__name__)


def load_images(
    name: str,
    root: Path | str = Path("data"),
    download: bool = True,
    *,
    size: int | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    seed: int = 0,
    recorded: Path | None = None,
    label_column: str = "",
    group_by: str = "",
) -> ImageSplits:
    """Read a data set and split it. Every command that needs a data set calls this function.

    Validation images are held out of the training files, stratified by class, with a fixed seed, so the split is the
    same on every machine. All test images are kept.

    Args:
        name: one of ``DATASETS``, or ``KIND:PATH`` for your own images, as in ``TrainConfig.dataset``.
        root: the folder with the files, in torchvision's layout, such as ``MNIST/raw``. ``digits`` needs no files.
        download: whether to download missing files.
        size, channels, skip_bad, seed, label_column, group_by: for your own images, as in ``TrainConfig``. The seed
            determines their split.
        recorded: the file images.csv of a run. If it exists, its images are taken.

    Raises:
        InputError: the name is unknown, or one of your own files doesn't fit; the message says which file, and why.
        GraphcapsError: files are missing or damaged and can't be downloaded, or torchvision can't be imported.
    """
    root = Path(root).expanduser()
    if (own := own_images(name)) is None:
        return _load_named(name, root, download)
    import pandas

    kind, path = own
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    near = did_you_mean(path.name, [neighbour.name for neighbour in path.absolute().parent.glob("*")])
    wanted = f"something at {path.absolute()}"
    expect(path.exists(), name, wanted, "nothing there", f"{near}It may also be in {root}")
    of_run = None
    if recorded is not None and recorded.exists():
        with reading(recorded, "the images of a run in three parts"):
            of_run = pandas.read_csv(check_file(recorded), dtype=str, keep_default_na=False)
        fits = {*of_run.get("split", ())} == {*PARTS}
        expect(fits, str(recorded), "the images of a run in three parts", f"{len(of_run)} rows that aren't")
    fits = not label_column or kind == "csv"
    expect(fits, "label_column", f"none for {kind}:PATH", repr(label_column), "It is for tables: csv:PATH")
    listed = None
    if kind == "folder":
        listed = list_folder(path)
    elif kind == "csv" and path.is_file():
        listed = list_csv(path, label_column, group_by)
    if listed is not None:
        images = read_files(path, listed, root / "cache", size, channels, skip_bad, group_by, of_run)
    else:
        expect(not group_by, "group_by", "none for arrays", repr(group_by), "It is for image files")
        images = read_arrays(kind, path, size, channels, label_column)
    return split(*images, f"{kind}:{path}", seed, of_run)


def _load_named(name: str, root: Path, download: bool) -> ImageSplits:
    check_name("dataset", name, [*DATASETS, *(f"{kind}:PATH" for kind in OWN_KINDS)])
    spec = DATASETS[name]
    if spec.source == "digits":
        train, test = _read_digits()
    else:
        train, test = _read_torchvision(spec.source, root, download)
    for part, images, count in (("training", train, spec.train), ("test", test, spec.test)):
        wanted, got = (count, *spec.image_shape), (len(images), *images.image_shape)
        expect(got == wanted, f"{name} {part} images", f"{wanted}", f"{got}", f"Delete its files in {root}")
    parts: tuple[Images, ...] = *map(train.take, stratified_split(train.labels, spec.val)), test
    if spec.pairs:
        return ImageSplits(name, spec.class_names, *(Pairs(part.pixels, part.labels) for part in parts))
    if spec.border:
        parts = in_frame(parts[0], spec.border), *(in_fixed_places(images, spec.border) for images in parts[1:])
    return ImageSplits(name, spec.class_names, *parts)


def _read_digits() -> tuple[Images, Images]:
    """Read scikit-learn's 1797 handwritten digits, 8 x 8 with values from 0 to 16, and enlarge them to 28 x 28."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = torch.from_numpy(digits.images)[:, None] * (255 / 16)
    pixels = interpolate(small, size=(28, 28), mode="bilinear").round().to(torch.uint8)
    images = Images(pixels, torch.from_numpy(digits.target).to(torch.int64))
    train, test = map(images.take, stratified_split(images.labels, 250))
    return train, test


def _read_torchvision(name: str, root: Path, download: bool) -> list[Images]:
    """Read the training and test images of ``torchvision.datasets.<name>``. Download those that ``root`` lacks."""
    advice = "Install both together (pip install --upgrade torch torchvision), or use --dataset digits without it"
    with reading("torchvision", f"one that fits torch {torch.__version__}", advice, GraphcapsError):
        from torchvision import datasets
    # Never read the pickles that old versions of torchvision wrote next to the raw files: a pickle can run code.
    own: dict[str, Any] = {"_check_legacy_exist": lambda self: False}
    # MNIST's four files may also be in the folder itself.
    for folder in (root, root / "raw"):
        if any(folder.glob("train-images-idx3-ubyte*")):
            own["raw_folder"] = str(folder)
    dataset = type(name, (getattr(datasets, name),), own)
    parts = [{"split": "train"}, {"split": "test"}] if name == "SVHN" else [{"train": True}, {"train": False}]
    advice = "Name the folder that contains them with --data DIR, or delete damaged ones to download them again. "
    advice += "--dataset digits needs no download"
    with reading(name, f"its files in {root.absolute()}", advice, GraphcapsError):
        try:
            return [_images(dataset(root, **part)) for part in parts]
        except RuntimeError:  # files are missing or damaged
            if not download:
                raise
        log.warning("%s isn't in %s: trying to download it", name, root.absolute())
        root.mkdir(parents=True, exist_ok=True)
        with open(root / ".download.lock", "w") as lock, contextlib.ExitStack() as stack:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # torchvision sets no timeout, so a firewall that drops packets would block it for minutes.
            stack.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
            socket.setdefaulttimeout(30)
            return [_images(dataset(root, download=True, **part)) for part in parts]


def _images(dataset: Any) -> Images:
    pixels = torch.from_numpy(as_pixels(np.asarray(dataset.data), "images")).permute(0, 3, 1, 2)
    labels = dataset.labels if hasattr(dataset, "labels") else dataset.targets
    return Images(pixels.contiguous(), torch.as_tensor(np.asarray(labels, np.int64)))
