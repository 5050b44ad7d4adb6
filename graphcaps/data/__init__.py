"""Image data sets: found, checked and split; batched on the training device; and a user's own image files.

Graphs stand in ``graphs``, because they need DGL.
"""

from __future__ import annotations

from .affnist import affnist_style, load_affnist, within
from .batches import AUGMENTS, Batches
from .datasets import DATASETS, load_images
from .images import Images, to_float
from .pairs import Pairs
from .spec import DatasetSpec
from .splits import ImageSplits, stratified_split
from .user_images import ImageFile, read_image, write_image

__all__ = [
    "AUGMENTS",
    "DATASETS",
    "Batches",
    "DatasetSpec",
    "ImageFile",
    "ImageSplits",
    "Images",
    "Pairs",
    "affnist_style",
    "load_affnist",
    "load_images",
    "read_image",
    "stratified_split",
    "to_float",
    "within",
    "write_image",
]
