"""The data sets by name: where their files stand, what they must hold, and how they are split.

The layouts are torchvision's, so a folder it filled is used as it is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..config import own_images
from ..errors import GraphcapsError, check_name, expect
from .download import DOWNLOAD_ERRORS, download_files
from .frame import in_fixed_places, in_frame
from .own import load_own
from .pairs import REACH, Pairs
from .readers import smallnorb
from .readers.arrays import IDX
from .readers.image_sets import read_cifar10, read_digits, read_idx_set, read_svhn
from .readers.verify import locate
from .spec import DatasetSpec
from .splits import ImageSplits, last_split


def _idx_spec(
    torchvision: str, class_names: tuple[str, ...], md5: tuple[str | None, ...], ink: float | None = None
) -> DatasetSpec:
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    files = {f"{torchvision}/raw/{name}": known for name, known in zip(names, md5, strict=True)}
    return DatasetSpec(
        read_idx_set, (1, 28, 28), class_names, train=60_000, test=10_000, torchvision=torchvision, ink=ink, files=files
    )


_DIGITS = tuple("0123456789")

DATASETS: dict[str, DatasetSpec] = {
    "digits": DatasetSpec(read_digits, (1, 28, 28), _DIGITS, train=1547, test=250, val=250, ink=1.0, detail=8),
    "mnist": _idx_spec(
        "MNIST",
        _DIGITS,
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        ink=20 / 28,
    ),
    "fashion-mnist": _idx_spec(
        "FashionMNIST",
        ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    "kmnist": _idx_spec("KMNIST", ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"), (None,) * 4),
    "svhn": DatasetSpec(
        read_svhn,
        (3, 32, 32),
        _DIGITS,
        train=73_257,
        test=26_032,
        torchvision="SVHN",
        files={
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
    "cifar10": DatasetSpec(
        read_cifar10,
        (3, 32, 32),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        train=50_000,
        test=10_000,
        torchvision="CIFAR10",
        files={
            "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
            "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
            "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
            "cifar-10-batches-py/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
    ),
    "smallnorb": DatasetSpec(
        smallnorb.read_smallnorb,
        (1, smallnorb.CROP, smallnorb.CROP),
        smallnorb.CLASS_NAMES,
        train=24_300,
        test=24_300,
        val=4860,
        split=last_split,
        page=smallnorb.PAGE,
        files=dict.fromkeys(smallnorb.FILES),
    ),
}

DATASETS["mnist40"] = replace(DATASETS["mnist"], border=6, ink=20 / 40)
DATASETS["multimnist"] = replace(DATASETS["mnist"], pairs=True, ink=20 / (28 + 2 * REACH))


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
    """Read a data set: found in ``root``, else downloaded there, checked, and split.

    The validation images are taken from the training files, stratified by class, with a seed of their own (of smallnorb
    one toy of each class instead): the split is the same for everybody. The test files are kept whole.

    Args:
        name: one of ``DATASETS``, or ``KIND:PATH`` for images of one's own, as ``TrainConfig.dataset`` has them.
            ``digits`` comes with scikit-learn and needs neither ``root`` nor a network.
        root: the folder that holds ``MNIST/raw`` and the like, as torchvision lays them out; IDX files may be gzipped.
        download: whether to download what isn't there.
        size, channels, skip_bad, seed: of one's own images, as ``TrainConfig`` has them; the seed fixes their split.

    Raises:
        InputError: an unknown name, or a file that isn't what it should be (the text says which, and what was wanted).
        GraphcapsError: files are missing and can't be downloaded, or a library that is needed is missing.
    """
    root = Path(root).expanduser()
    if own := own_images(name):
        return load_own(*own, root, size, channels, skip_bad, seed)
    check_name("dataset", name, list(DATASETS))
    spec = DATASETS[name]
    _provide(name, spec, root, download)
    train, test = spec.read(spec, root)
    for part, images, count in (("training", train, spec.train), ("test", test, spec.test)):
        got = (len(images), *images.image_shape)
        expect(got == (count, *spec.image_shape), f"{name} {part} images", f"{(count, *spec.image_shape)}", f"{got}")
    kept, taken = spec.split(train.labels, spec.val)
    parts = {"train": train.take(kept), "val": train.take(taken).cut(), "test": test}
    if spec.pairs:
        return ImageSplits(name, spec.class_names, **{part: Pairs(images) for part, images in parts.items()})
    if spec.border:
        place = {"train": in_frame, "val": in_fixed_places, "test": in_fixed_places}
        parts = {part: place[part](images, spec.border) for part, images in parts.items()}
    return ImageSplits(name, spec.class_names, **parts)


def _provide(name: str, spec: DatasetSpec, root: Path, download: bool) -> None:
    """Download what is missing of the data set's files, or say what was wanted, where, and what else there is."""
    missing = [file for file in spec.files if locate(root, file) is None]
    if not missing:
        return
    why, cause = f"nothing downloads them: they are at {spec.page}" if spec.page else "download=False", None
    if download and spec.torchvision:
        try:
            return download_files(spec.torchvision, spec.files, root)
        except DOWNLOAD_ERRORS as error:
            why, cause = f"the download failed ({' '.join(str(error).split())})", error
    then = ""
    if spec.read is read_idx_set and any(IDX.fullmatch(file.name) for file in root.glob("**/*ubyte*")):
        then = f"Other files of this format are there: --dataset idx:{root}. "
    raise GraphcapsError(
        f"{name}: expected {', '.join(missing)} in {root.absolute()}, got nothing there, and {why}. "
        f"Name the folder that holds them with --data DIR. {then}graphcaps train --dataset digits needs no download"
    ) from cause
