"""The interface of a network for images."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from .limits import Limits


class ImageNetwork(Protocol):
    """A ``torch.nn.Module`` for images; training, evaluation and pictures ask no more of a network than this.

    Called on images (B, C, H, W) in [0, 1] it gives an output with ``scores`` (B, J) in [0, 1]. The largest of them are
    its answer. A network that ``routes`` also has ``capsules``, the layer whose routing is recorded and drawn,
    ``between``, the routed layers below it, ``children_of(images)``, which gives its input, and ``receptive_fields()``.
    One that ``reconstructs`` also has ``decoder``.
    """

    routes: bool
    """Whether it has capsules that are routed."""
    reconstructs: bool
    """Whether it draws the image again from its capsules."""
    image_shape: tuple[int, int, int]
    """(C, H, W)."""
    objects: int
    """K, how many classes an image shows."""
    class_names: tuple[str, ...]
    """One per class, where known."""
    limits: Limits
    """What right answers keep to, where known."""
    preset: dict[str, Any] | None
    """The name and the arguments of ``from_preset`` that made it, for checkpoints."""

    def __call__(self, images: Tensor, labels: Tensor | None = None) -> Any:
        """The output for images (B, C, H, W)."""

    def loss(self, output: Any, images: Tensor, labels: Tensor, progress: float = 1.0) -> Tensor:
        """What training makes small; ``progress`` is the share of training that is done, in [0, 1]."""
