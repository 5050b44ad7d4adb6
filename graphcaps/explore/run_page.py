"""The explorer page of a run. It shows the routing trace, and contains the network, which routes your drawings."""

from typing import Any

import torch

from ..errors import GraphcapsError
from ..images.data import DATASETS, DatasetSpec, to_float
from ..images.models import CapsNet
from ..images.recording import pictures, routing_of
from ..images.training.checkpoint import read_model
from ..images.training.run_folder import Run
from ..trace import RoutingTrace
from .network import network_data

PEN = 2.32 / 20  # stroke width / longer side of a digit in MNIST; width = 2 * area / border length
INK = 20 / 28  # longer side of a drawing / side of the image in MNIST; used for data sets where it isn't known


def page_parts(run: Run) -> tuple[RoutingTrace, dict | None, str]:
    """The trace up to the epoch of the best weights, the network or None, and the reason why it is None or "".

    Raises:
        GraphcapsError: the run has no trace, or its weights are damaged.
    """
    trace, best = run.trace(), run.checkpoint("best")
    if not best.exists():
        return trace, None, f"Nothing can be drawn here: the run has no weights at {best}."
    model: Any
    model, head = read_model(best)
    run.check_trained(head)
    epoch = head["state"]["epoch"]
    try:
        network = network_data(model.eval(), epoch)
    except GraphcapsError as error:
        return trace, None, f"Nothing can be drawn here: {error}."
    network["desk"] = desk_of(model, DATASETS.get(run.config.dataset))
    images = to_float(torch.from_numpy(trace.images))
    return trace.with_epoch(epoch, routing_of(model, images), **pictures(model, images)), network, ""


def desk_of(model: CapsNet, spec: DatasetSpec | None) -> dict:
    """Size and stroke width of drawings in a data set; without a spec (your own images), as in MNIST."""
    ink = spec and spec.ink
    stroke = max(1.0, PEN * (ink or INK) * min(model.image_shape[1:]))
    return {"ink": ink, "detail": spec and spec.detail, "stroke": stroke}
