"""Image data sets: downloaded, checked and split; batched on the training device; and your own image files."""

from ...names import AUGMENTS, DATASETS, DatasetSpec
from .batches import Batches
from .datasets import load_images
from .images import Images, Pairs, to_float
from .splits import ImageSplits, stratified_split
from .user_images import ImageFile, read_image, write_image

__all__ = ["AUGMENTS", "DATASETS", "Batches", "DatasetSpec", "ImageFile", "ImageSplits", "Images", "Pairs"]
__all__ += ["load_images", "read_image", "stratified_split", "to_float", "write_image"]
