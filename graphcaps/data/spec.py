"""What is known of an image data set before it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from .images import Images
from .splits import stratified_split


@dataclass(frozen=True)
class DatasetSpec:
    """What is known of a data set before it is read.

    Args:
        read: from this table's entry and a folder to (training images, test images), as the files have them.
        image_shape: (C, H, W).
        class_names: J names.
        train: number of images in the training files.
        test: number of test images; all are kept.
        val: number of the training images held out to choose the model by.
        split: from the training labels and that number to the rows kept and the rows held out.
        torchvision: the class of ``torchvision.datasets`` that downloads it; None where nothing is downloaded.
        page: where a person finds the files, where nothing downloads them.
        ink: share of the frame that a drawing's longer side fills, where the set was made to one measure.
        pairs: whether an image is made of two of the files' images.
        border: black pixels on each side of an image in its frame, and how far it is moved there, where it is.
        detail: pixels per side before the images were enlarged, where they were.
        files: path below the folder -> md5 of the unpacked file, None where it isn't known.
    """

    read: Callable[[DatasetSpec, Path], tuple[Images, Images]]
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    train: int
    test: int
    val: int = 5000
    split: Callable[[Tensor, int], tuple[Tensor, Tensor]] = stratified_split
    torchvision: str | None = None
    page: str | None = None
    ink: float | None = None
    pairs: bool = False
    border: int | None = None
    detail: int | None = None
    files: Mapping[str, str | None] = field(default_factory=dict)
