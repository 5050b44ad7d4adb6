"""Export of a trained network to an ONNX file for other programs.

    images (batch, C, H, W) in [0, 1] --the file--> lengths (batch, J), capsules (batch, J, D), couplings (batch, I, J)

Outputs are named like the fields of the network's output; the first contains the scores. The couplings are those of the
last layer, after its last iteration. The routing is that of the engine ``torch``, with unrolled iterations, and with
the edges as constants. ``metadata_of`` describes the network in the file.
"""

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from packaging.version import Version
from torch import nn

from .. import __version__
from ..algorithms.by_name import name_of
from ..errors import GraphcapsError, MissingError, required
from ..files import replacing
from ..nn.routed import route_layer
from ..routing import engine
from .config import short_name
from .data import DATASETS
from .models import ImageNetwork, MatrixCapsNet

TOLERANCE = 1e-4  # largest accepted difference of scores
TESTED_ON = 32  # number of random images for which scores are compared
OLDEST_TORCH = (2, 9)  # oldest tested torch that exports all networks to ONNX; 2.6 fails for some


class ExportedFile(NamedTuple):
    """Result of ``export``."""

    path: Path
    outputs: dict[str, tuple[int, ...]]  # shapes for one image, by name
    difference: float  # largest difference of scores from graphcaps


class Exportable(nn.Module):
    """The module that is exported: a network without its decoder, which also returns the last layer's couplings."""

    def __init__(self, network: ImageNetwork):
        super().__init__()
        self.network: Any = copy.deepcopy(network)
        self.network.decoder = None  # it would be most of the file

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Map images (B, C, H, W) in [0, 1] to named outputs, whose first dimension is the batch."""
        if not self.network.routes:
            return {"scores": self.network(images).scores}
        layer = self.network.capsules
        parents = route_layer(layer, self.network.children_of(images), coupling=True)
        coupling = required(parents.coupling, "routing", "one that returns its couplings")
        couplings = coupling.unflatten(0, (layer.num_children, -1)).movedim(-1, 0)  # (B, I, J)
        if isinstance(self.network, MatrixCapsNet):
            poses = parents.pose.transpose(0, 1)  # (B, J, 16)
            return {"scores": parents.activation.transpose(0, 1), "poses": poses, "couplings": couplings}
        capsules = parents.v.transpose(0, 1)  # (B, J, D)
        lengths = torch.linalg.vector_norm(capsules, dim=-1)  # (B, J)
        return {"lengths": lengths, "capsules": capsules, "couplings": couplings}


def metadata_of(network: ImageNetwork, dataset: str | None) -> dict[str, Any]:
    """Describe a network trained on ``dataset``, as plain data. Entries that aren't known are left out.

    ``input`` says how images must be prepared: their shape, the range of their values and their channels. If all
    drawings of the data set have the same size, ``ink`` is their longer side, divided by that of the image.
    """
    routing: Any = getattr(getattr(network, "capsules", None), "routing", None)
    images: dict[str, Any] = {"shape": ["batch", *network.image_shape], "range": [0, 1]}
    images |= {1: {"channels": "grey"}, 3: {"channels": "RGB"}}.get(network.image_shape[0], {})
    if dataset in DATASETS and (ink := DATASETS[dataset].ink) is not None:
        images["ink"] = round(ink, 4)
    metadata = {
        "graphcaps": __version__,
        "preset": (network.preset or {}).get("name"),
        "dataset": dataset and short_name(dataset),
        "routing": routing and name_of(routing),
        "iterations": routing and routing.iterations,
        "class_names": list(network.class_names) or None,
        "objects": "any" if network.objects is None else network.objects,
        "input": images,
    }
    return {key: value for key, value in metadata.items() if value is not None}


def export(network: ImageNetwork, path: str | Path, dataset: str | None = None) -> ExportedFile:
    """Write a network to an ONNX file. An existing file is replaced only by a complete new one.

    The file's scores for 32 images of random pixels are compared with those of graphcaps.

    Args:
        network: a network as returned by ``graphcaps.load``, on the CPU in float32. It is exported in eval mode.
        path: the file to write.
        dataset: the data set of the training, for the description in the file.

    Raises:
        MissingError: onnx, onnxscript or onnxruntime isn't installed, or torch is too old.
        GraphcapsError: scores differ by more than 1e-4, or the file can't be written. No partial file remains.
    """
    check_installed()
    path, training = Path(path), network.training
    network.eval()
    try:
        with replacing(path) as temporary:
            outputs = _write_onnx(network, temporary, metadata_of(network, dataset))
            images = torch.rand(TESTED_ON, *network.image_shape, generator=torch.Generator().manual_seed(0))
            with torch.no_grad():
                scores = network(images).scores
            difference = float((_scores(temporary, images) - scores).abs().max())
            if not difference <= TOLERANCE:
                wanted = f"scores within {TOLERANCE:g} of graphcaps' own"
                raise GraphcapsError(f"{path}: expected {wanted}, got {difference:.1e} off. It was not written")
    finally:
        network.train(training)
    return ExportedFile(path, outputs, difference)


def _scores(path: Path, images: torch.Tensor) -> torch.Tensor:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # with more, sums of ScatterND lose terms now and then
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def check_installed() -> None:
    """Raise ``MissingError`` if a required library is missing or too old."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        advice = 'Run: pip install -e ".[export]"'
        raise MissingError(f"{' and '.join(missing)}: expected to be installed, to write ONNX, got none. {advice}")
    if Version(torch.__version__).release < OLDEST_TORCH:
        wanted = f"{'.'.join(map(str, OLDEST_TORCH))} or newer, to write ONNX"
        raise MissingError(f"torch: expected {wanted}, got {torch.__version__}. Update it")


def _write_onnx(network: ImageNetwork, path: Path, metadata: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Trace the network for one or more images, and write the file. Return each output's shape for one image."""
    model, images = Exportable(network).eval(), torch.zeros(2, *network.image_shape)
    batch = {"images": {0: torch.export.Dim("batch", max=2**20)}}
    options: dict[str, Any] = {"input_names": ["images"], "dynamic_shapes": batch, "verbose": False}
    with engine("torch"), torch.no_grad():
        outputs = model(images)  # DGL makes its graphs here, because torch can't trace DGL
        written: Any = torch.onnx.export(model, (images,), dynamo=True, output_names=[*outputs], **options)
    for part in (written.model.graph, *written.model.graph.all_nodes()):
        part.metadata_props.clear()  # torch's notes about tracing contain paths on this machine
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    written.model.metadata_props.update(texts)
    written.save(str(path), external_data=False)
    return {name: tuple(values.shape[1:]) for name, values in outputs.items()}
