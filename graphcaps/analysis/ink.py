"""Which pixels belong to which of several overlapping objects: the arguments of ``viz.segmentation``."""

import numpy as np
import torch
from torch import Tensor

from ..data import Batches
from ..models import CapsNet
from ..models.answers import overlaid
from .accuracy import Evaluation
from .capsule_usage import routed_batch


def sees_parts(model: CapsNet) -> bool:
    """Whether children have different receptive fields."""
    return len(model.receptive_fields().unique(dim=0)) > 1


@torch.no_grad()
def owners(model: CapsNet, images: Tensor, classes: Tensor) -> Tensor:
    """Share of each class in each pixel: the couplings of the nearest children, weighted by the children's length.

    Images are (N, C, H, W) in [0, 1] and classes (N, K). Shares (N, K, H, W) are in [0, 1] and sum to 1 over classes.
    """
    lengths, couplings, _ = routed_batch(model.capsules, model.children_of(images))
    c = couplings.unflatten(0, (model.capsules.num_children, -1))  # (I, J, N)
    c = c.gather(1, classes.t().unsqueeze(0).expand(len(c), -1, -1))  # (I, K, N)
    rows, columns = (each.unique() for each in model.centres())  # ascending, (h,) and (w,)
    given = (lengths.unsqueeze(1) * c).unflatten(0, (-1, len(rows), len(columns)))  # (types, h, w, K, N)
    given = given.sum(dim=0).permute(3, 2, 0, 1)  # (N, K, h, w)
    shares = given / given.sum(dim=1, keepdim=True).clamp_min(1e-12)
    down, across = (
        (torch.arange(size).unsqueeze(1) - at).abs().argmin(dim=1)
        for size, at in zip(images.shape[2:], (rows, columns), strict=True)
    )
    return shares[:, :, down][:, :, :, across]


@torch.no_grad()
def examples(model: CapsNet, batches: Batches, result: Evaluation, most: int = 5) -> dict[str, np.ndarray]:
    """Arguments of ``viz.segmentation`` for the first ``most`` images with right and with wrong answers.

    The model is in eval mode. ``result`` is its evaluation on the same batches, whose images are layers.
    """
    places = torch.cat([chosen.nonzero().flatten()[:most] for chosen in (result.right, ~result.right)])
    layers, labels = batches.at(places)
    images = overlaid(layers)
    shown = {"images": images, "reconstructions": model(images).reconstruction}
    if sees_parts(model):
        shown["owners"] = owners(model, images, result.predicted[places].to(images.device))
    pictures = {name: (values * 255).round().byte().cpu().numpy() for name, values in shown.items()}
    return {**pictures, "labels": labels.cpu().numpy(), "predicted": result.predicted[places].numpy()}
