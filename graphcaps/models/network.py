"""What networks for images share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .limits import Limits


class ImageNetwork(nn.Module):
    """A network for images; training, evaluation and pictures ask no more of one than this.

    Called on images (B, C, H, W) in [0, 1] it gives an output with ``scores`` (B, J) in [0, 1]. The largest of them are
    its answer. A network that ``routes`` also has ``capsules``, the layer whose routing is recorded and drawn,
    ``between``, the routed layers below it, ``children_of(images)``, which gives its input, and ``receptive_fields()``.
    One that ``reconstructs`` also has ``decoder``.
    """

    routes = False
    """Whether it has capsules that are routed."""
    objects: int | None = 1
    """K, how many classes an image shows; None: any number."""
    class_names: tuple[str, ...] = ()
    """One per class, where known."""
    limits = Limits()
    """What right answers keep to, where known."""
    preset: dict[str, Any] | None = None
    """The name and the arguments of ``from_preset`` that made it, for checkpoints."""

    def __init__(self, image_shape: Sequence[int]):
        super().__init__()
        channels, height, width = image_shape
        self.image_shape = (channels, height, width)

    @property
    def reconstructs(self) -> bool:
        """Whether it draws the image again from its capsules: it has a ``decoder``."""
        return getattr(self, "decoder", None) is not None

    def loss(self, output: Any, images: Tensor, labels: Tensor, progress: float = 1.0) -> Tensor:
        """What training makes small; ``progress`` is the share of training that is done, in [0, 1]."""
        raise NotImplementedError
