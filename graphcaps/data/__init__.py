"""Image data sets: found, checked and split; batched on the training device; and a user's own image files.

Graphs are in modules of their own, ``citation`` and ``tu``, because they need DGL.
"""

from __future__ import annotations

from .affnist import affnist_style, load_affnist
from .batches import AUGMENTS, Batches
from .datasets import DATASETS, DatasetSpec, load_images
from .files import ImageFile, read_image
from .images import Images, ImageSplits, stratified_split, to_float
from .pairs import Pairs
from .smallnorb import novel_viewpoints

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
    "novel_viewpoints",
    "read_image",
    "stratified_split",
    "to_float",
]
