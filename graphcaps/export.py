"""A trained network as a file for other people's programs: ONNX, or torch's own format pt2.

    images (batch, C, H, W) in [0, 1] --the file--> lengths (batch, J), capsules (batch, J, D), couplings (batch, I, J)

The first output has the scores: the lengths of a ``CapsNet``, the ``scores`` of other networks. Outputs have the names
of the fields of the network's output here; couplings are those of the last layer in its last iteration. The
reconstruction is left out. What the network is stands beside it in the file; ``about`` has the keys.

The routing in the file is that of the engine ``torch``, its iterations one after the other, its edges constants. What
was written is read again and asked before it takes its place: ``Written`` says how far it is from graphcaps' answers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from packaging.version import Version
from torch import nn

from ._version import __version__
from .atomic import replacing
from .config import short_name
from .data import DATASETS
from .errors import GraphcapsError, MissingError, check_name, expect, required
from .models import CNN, ImageNetwork, MatrixCapsNet, RoutingNetwork
from .models.capsnet import check_images
from .nn import MatrixClassCaps
from .nn.dense_caps import CompleteCaps
from .nn.routed import route_layer
from .routing import engine
from .routing.names import name_of

Format = Literal["onnx", "pt2"]
FORMATS = get_args(Format)
ABOUT = "graphcaps.json"  # the text in a pt2 file that says what it is
TOLERANCE = 1e-4  # that scores may be off by
OLDEST = (2, 9)  # the oldest torch that was tried and writes every network as ONNX; 2.6 refuses some


class Written(NamedTuple):
    """A file, its outputs by name with their sizes for one image, and how far its scores are from graphcaps'.

    ``difference`` is None where the file was not asked.
    """

    path: Path
    outputs: dict[str, tuple[int, ...]]
    difference: float | None

    def shapes(self) -> list[str]:
        """The outputs as text: "lengths (batch, 10)"."""
        return [f"{name} ({', '.join(map(str, ('batch', *sizes)))})" for name, sizes in self.outputs.items()]


class Answers(nn.Module):
    """What a file answers: the output of a network without its reconstruction, and the last layer's couplings.

    >>> from graphcaps import CapsNet
    >>> found = Answers(CapsNet.from_preset("compact").eval())(torch.zeros(2, 1, 28, 28))
    >>> {name: tuple(values.shape) for name, values in found.items()}
    {'lengths': (2, 10), 'capsules': (2, 10, 16), 'couplings': (2, 16, 10)}
    """

    def __init__(self, network: ImageNetwork):
        super().__init__()
        self.image_shape, self.of_poses = network.image_shape, isinstance(network, MatrixCapsNet)
        # Of capsule networks the parts that are needed: the decoder's weights would be most of a file.
        self.layers: Any = network if isinstance(network, CNN) else None
        if isinstance(network, RoutingNetwork):
            self.front = nn.Sequential(network.stem, network.primary, network.between)
            self.capsules: Any = network.capsules

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """The outputs by name, batch first, of images (B, C, H, W) in [0, 1]."""
        if self.layers is not None:
            return {"scores": self.layers(images).scores}
        check_images(images, self.image_shape)
        parents = route_layer(self.capsules, self.front(images), coupling=True)
        coupling = required(parents.coupling, "routing", "one that returns its couplings", repr(self.capsules.routing))
        couplings = coupling.unflatten(0, (self.capsules.num_children, -1)).movedim(-1, 0)  # (B, I, J)
        if self.of_poses:
            poses = parents.pose.transpose(0, 1)  # (B, J, 16)
            return {"scores": parents.activation.transpose(0, 1), "poses": poses, "couplings": couplings}
        capsules = parents.v.transpose(0, 1)  # (B, J, D)
        lengths = torch.linalg.vector_norm(capsules, dim=-1)  # (B, J)
        return {"lengths": lengths, "capsules": capsules, "couplings": couplings}


def about(network: ImageNetwork, dataset: str | None = None) -> dict[str, Any]:
    """What a file says of itself, as plain data; what isn't known is left out.

    ``input`` says how images are made ready: their shape, the range of their numbers, their channels, and as ``ink``
    the share of the image that the longer side of a drawing fills, where all images of the data set are made so.

    Args:
        network: what is exported.
        dataset: the name of the data set that it was trained on.
    """
    layer = getattr(network, "capsules", None)
    channels, height, width = network.image_shape
    images: dict[str, Any] = {"shape": ["batch", channels, height, width], "range": [0, 1]}
    if channels in (1, 3):
        images["channels"] = "grey" if channels == 1 else "RGB"
    if dataset in DATASETS and (ink := DATASETS[dataset].ink) is not None:
        images["ink"] = round(ink, 4)
    metadata = {
        "graphcaps": __version__,
        "preset": (network.preset or {}).get("name"),
        "dataset": dataset and short_name(dataset),
        "routing": None if layer is None else name_of(layer.routing),
        "iterations": None if layer is None else layer.routing.iterations,
        "class_names": list(network.class_names) or None,
        "objects": "any" if network.objects is None else network.objects,
        "input": images,
    }
    return {key: value for key, value in metadata.items() if value is not None}


def export(
    network: ImageNetwork,
    path: str | Path,
    format: Format = "onnx",
    metadata: dict[str, Any] | None = None,
    images: torch.Tensor | None = None,
) -> Written:
    """Write a network for other people's programs; the old file, if any, stays until the new one is whole.

    Args:
        network: on the CPU, in float32; exported as it is in eval mode.
        path: the file, its suffix any but the other format's.
        format: ``"onnx"``, which needs onnx and onnxscript; or ``"pt2"``, for ``torch.export.load``.
        metadata: what the file says of itself; default: ``about(network)``.
        images: (N, C, H, W) in [0, 1], float32, N >= 1, that the file is asked, beside graphcaps. ONNX is asked by
            onnxruntime where that is installed.

    Raises:
        InputError: an unknown format, the suffix of the other one, images that the network doesn't take, or what has
            no export: no network of graphcaps', one elsewhere than on the CPU or not in float32, or one with a last
            layer of another kind.
        MissingError: a library that the format needs isn't installed, or is too old.
        GraphcapsError: scores are off by more than 1e-4, or the file can't be written; nothing is left behind.
    """
    check_installed(format)
    check_suffix(path, format)
    network = getattr(network, "_orig_mod", network)  # of what torch.compile made, the network itself
    _check(network)
    if images is not None:
        _check_images(images, network.image_shape)
    path, metadata = Path(path), metadata or about(network)
    training = network.training
    network.eval()
    try:
        exported, outputs = _program(network)
        with replacing(path) as temporary:
            if format == "onnx":
                _write_onnx(exported, temporary, metadata, list(outputs))
            else:
                with open(temporary, "wb") as file:
                    torch.export.save(exported, file, extra_files={ABOUT: json.dumps(metadata, indent=1)})
            difference = None
            if images is not None and (format == "pt2" or _installed("onnxruntime")):
                difference = _difference(network, temporary, images, format)
                wanted = f"scores within {TOLERANCE:g} of graphcaps' own"
                if not difference <= TOLERANCE:
                    raise GraphcapsError(f"{path}: expected {wanted}, got {difference:.1e} off. It was not written")
    finally:
        network.train(training)
    return Written(path, outputs, difference)


def ask(path: str | Path, images: torch.Tensor, format: Format | None = None) -> dict[str, np.ndarray]:
    """The outputs by name of an exported file for images, on the CPU.

    Args:
        path: a file that ``export`` wrote, whatever its name.
        images: (N, C, H, W) in [0, 1], float32, N >= 1: onnxruntime takes the whole process down for none.
        format: the file's; default: what its first bytes say.

    Raises:
        InputError: no such file, or images that it doesn't take.
        MissingError: an ONNX file, and onnxruntime isn't installed.
        GraphcapsError: a file that can't be read, or that ``export`` didn't write.
    """
    path, wanted = Path(path), "a file that graphcaps export wrote"
    then = "Write one: graphcaps export RUN"
    expect(path.is_file(), str(path), wanted, "a folder" if path.is_dir() else "nothing there", then)
    format = format or _format_of(path)
    if format == "onnx" and not _installed("onnxruntime"):
        instead = "Run: pip install onnxruntime"
        raise MissingError(f"onnxruntime: expected it to be installed, to ask an ONNX file, got none. {instead}")
    try:
        shape, answers = _read_pt2(path) if format == "pt2" else _read_onnx(path)
        channels, height, width = map(int, shape)
    except Exception as error:  # torch and onnxruntime have many errors for files that aren't whole
        got = f"what can't be read as {format} ({' '.join(str(error).split())[:120]})"
        raise GraphcapsError(f"{path}: expected {wanted}, got {got}. {then}") from error
    _check_images(images, (channels, height, width))
    return answers(images.detach())


Answering = Callable[[torch.Tensor], dict[str, np.ndarray]]


def _read_pt2(path: Path) -> tuple[Any, Answering]:
    """(C, H, W) of the images that the file takes, and what answers them."""
    with _quiet():
        program = torch.export.load(str(path))
        network: Any = program.module()
    name = program.graph_signature.user_inputs[0]
    shape = next(node.meta["val"].shape[1:] for node in program.graph.nodes if node.name == name)

    def answers(images: torch.Tensor) -> dict[str, np.ndarray]:
        with torch.no_grad(), _quiet():
            return {name: values.numpy() for name, values in network(images).items()}

    return shape, answers


def _read_onnx(path: Path) -> tuple[Any, Answering]:
    """(C, H, W) of the images that the file takes, and what answers them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def answers(images: torch.Tensor) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, {"images": images.numpy()}), strict=True))

    return session.get_inputs()[0].shape[1:], answers


def _format_of(path: Path) -> Format:
    with path.open("rb") as file:
        return "pt2" if file.read(4) == b"PK\3\4" else "onnx"  # a zip archive; ONNX has a byte 8 first


def _check_images(images: torch.Tensor, image_shape: tuple[int, int, int]) -> None:
    """Raise ``InputError`` unless images are one or more of that shape, in [0, 1], and float32 on the CPU."""
    check_images(images, image_shape)
    expect(len(images) > 0, "images", "one or more", f"none, {tuple(images.shape)}")
    got = f"{images.dtype} on {images.device.type}"
    expect(got == "torch.float32 on cpu", "images", "torch.float32 on cpu", got, "images.cpu().float()")


def check_suffix(path: str | Path, format: Format) -> None:
    """Raise ``InputError`` where a file of this format would have the suffix of the other."""
    path, other = Path(path), "pt2" if format == "onnx" else "onnx"
    then = f"Name it {path.with_suffix(f'.{format}').name}, or write --format {other}"
    wanted = f"a name that doesn't end in .{other}, for a file of format {format}"
    expect(path.suffix.lower() != f".{other}", "path", wanted, str(path), then)


def check_installed(format: Format) -> None:
    """Raise ``InputError`` for an unknown format, ``MissingError`` where a library it needs is missing or too old."""
    check_name("format", format, FORMATS)
    if format == "pt2":
        return
    instead = "Or write --format pt2, which needs nothing more"
    missing = [name for name in ("onnx", "onnxscript") if not _installed(name)]
    if missing:
        then = f'Run: pip install -e ".[export]". {instead}'
        raise MissingError(f"{' and '.join(missing)}: expected to be installed, to write ONNX, got none. {then}")
    if Version(torch.__version__).release < OLDEST:
        wanted = f"{'.'.join(map(str, OLDEST))} or newer, to write ONNX"
        raise MissingError(f"torch: expected {wanted}, got {torch.__version__}. Update it. {instead}")


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _program(network: ImageNetwork) -> tuple[torch.export.ExportedProgram, dict[str, tuple[int, ...]]]:
    """The network's ``Answers`` for one or more images, and the sizes of each for one."""
    answers, images = Answers(network), torch.zeros(2, *network.image_shape)
    with engine("torch"), torch.no_grad():
        found = answers(images)  # DGL makes its graphs now: torch can't look into it
        batch = {"images": {0: torch.export.Dim("batch", max=2**20)}}
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            exported = torch.export.export(answers, (images,), dynamic_shapes=batch, strict=False)
    for node in exported.graph.nodes:
        node.meta.pop("stack_trace", None)  # has folders of this machine
    return exported, {name: tuple(values.shape[1:]) for name, values in found.items()}


def _check(network: ImageNetwork) -> None:
    wanted = "a CapsNet, CNN or MatrixCapsNet"
    then = "graphcaps.load reads one from a run, graphcaps.models.from_preset makes one"
    expect(isinstance(network, ImageNetwork), "network", wanted, type(network).__name__, then)
    if not isinstance(network, CNN):
        layer: Any = network.capsules
        known = isinstance(layer, (CompleteCaps, MatrixClassCaps))
        wanted, then = "a last layer in which all children vote for all parents", "Others have no such couplings"
        expect(known, "capsules", wanted, type(layer).__name__, then)
    kinds = {(each.dtype, each.device.type) for each in network.parameters()}
    got = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
    expect(kinds == {(torch.float32, "cpu")}, "network", "torch.float32 on cpu", got, "network.cpu().float()")


def _difference(network: ImageNetwork, path: Path, images: torch.Tensor, format: Format) -> float:
    """How far the first output of a file is from the network's own scores."""
    with torch.no_grad():
        wanted = network(images).scores.numpy()
    return float(np.abs(next(iter(ask(path, images, format).values())) - wanted).max())


def _write_onnx(
    exported: torch.export.ExportedProgram, path: Path, metadata: dict[str, Any], outputs: list[str]
) -> None:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), _quiet():
        warnings.simplefilter("ignore")
        written = torch.onnx.export(exported, dynamo=True, input_names=["images"], output_names=outputs, verbose=False)
    assert written is not None
    model: Any = written.model
    model.producer_name, model.producer_version = "graphcaps", __version__
    values = [*model.graph.inputs, *model.graph.outputs]
    for part in (model, model.graph, *model.graph.all_nodes(), *values):
        part.metadata_props.clear()  # torch's notes on its tracing, with folders of this machine
    for value in values:
        value.shape = type(value.shape)(["batch", *value.shape[1:]])
    model.metadata_props.update({key: v if isinstance(v, str) else json.dumps(v) for key, v in metadata.items()})
    written.save(str(path), external_data=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's notes on its tracing from the terminal."""
    loud = logging.getLogger("torch")
    level = loud.level
    loud.setLevel(logging.ERROR)
    try:
        yield
    finally:
        loud.setLevel(level)
