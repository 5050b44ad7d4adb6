"""Exported networks: their answers, and the description in the file."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from packaging.version import Version

import graphcaps
from graphcaps.errors import GraphcapsError
from graphcaps.images import export
from graphcaps.images.models import from_preset
from graphcaps.names import NETWORKS

CAN_WRITE_ONNX = Version(torch.__version__).release >= export.OLDEST_TORCH and importlib.util.find_spec("onnxruntime")
onnx_only = pytest.mark.skipif(not CAN_WRITE_ONNX, reason="needs onnx, onnxscript, onnxruntime and torch 2.9")
SIDES = {"cnn-small": 12, "compact": 12, "parts": 15, "deep": 23, "small": 29}  # default: 17


def small(model: str = "compact", routing: str = "dynamic", classes: int = 4, **asked) -> torch.nn.Module:
    """A network in eval mode whose biases, priors and running statistics don't have their initial values."""
    torch.manual_seed(0)
    asked |= {"routing": routing} if "routing" in NETWORKS[model].settings else {}
    network = from_preset(model, image_shape=(1, *[SIDES.get(model, 17)] * 2), num_classes=classes, **asked)
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.is_floating_point() and tensor.dim() == 1:
            tensor.data += torch.rand_like(tensor) / 4
    network.class_names = tuple("abcdefgh"[:classes])
    return network.eval()


def images(network: torch.nn.Module, count: int) -> torch.Tensor:
    return torch.rand(count, *network.image_shape, generator=torch.Generator().manual_seed(count))


@onnx_only
@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "routing"),
    [
        ("compact", "dynamic"),
        ("cnn-small", "none"),
        ("parts", "spherical"),
        ("deep", "inverted"),
        ("matrix-small", "em"),
    ],
)
def test_a_file_answers_as_the_network_does_for_any_number_of_images(tmp_path, model, routing):
    network = small(model, routing)
    written = export.export(network, tmp_path / "network.onnx")
    assert written.difference <= 1e-5  # float32
    run = program(written.path)
    for count in (1, 17):
        with torch.no_grad():
            output = network(images(network, count))
            wanted = {**output._asdict(), **export.Exportable(network)(images(network, count))}
            found = run(images(network, count))
        assert list(found) == list(written.outputs) and {"lengths", "scores"} & set(list(found)[:1])
        for name, values in found.items():
            assert values.shape == (count, *written.outputs[name]) == wanted[name].shape
            # EM's logits are sums over all children of exponentials, which increase rounding errors.
            assert (values - wanted[name]).abs().max() <= (1e-4 if routing == "em" else 1e-5), name


def program(path: Path):
    """A file as a function from images to outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # see graphcaps.images.export
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda x: dict(zip(names, map(torch.from_numpy, session.run(names, {"images": x.numpy()})), strict=True))


def test_couplings_are_the_last_iterations_and_each_childs_sum_to_one():
    network, seen = small(), []
    found = export.Exportable(network)(images(network, 3))
    layer, u = network.capsules, network.children_of(images(network, 3))
    with graphcaps.engine("torch"):
        graphcaps.route(layer.graph(), layer.votes(u), on_iteration=lambda *state: seen.append(state[2]))
    wanted = seen[-1].view(layer.num_children, layer.num_parents, 3).permute(2, 0, 1)
    assert torch.allclose(found["couplings"], wanted, atol=1e-6) and not torch.allclose(seen[0], seen[-1], atol=1e-6)
    assert torch.allclose(found["couplings"].sum(-1), torch.ones(3, layer.num_children))


@onnx_only
def test_the_network_is_left_as_it_was_and_the_file_describes_it_and_has_no_decoder(tmp_path):
    import onnx

    network, file = small(objects=None).train(), tmp_path / "network.onnx"
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    export.export(network, file, "mnist")
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    weights = sum(tensor.numel() for name, tensor in before.items() if not name.startswith("decoder"))
    assert 4 * weights < file.stat().st_size < 4 * weights + 200_000
    for folder in (Path(graphcaps.__file__).parent, Path(torch.__file__).parent, tmp_path):
        assert str(folder).encode() not in file.read_bytes()
    said = {
        "graphcaps": graphcaps.__version__,
        "preset": "compact",
        "dataset": "mnist",
        "routing": "dynamic",
        "iterations": 3,
        "class_names": ["a", "b", "c", "d"],
        "objects": "any",
        "input": {"shape": ["batch", 1, 12, 12], "range": [0, 1], "channels": "grey", "ink": 0.7143},
    }
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    written = {item.key: item.value for item in model.metadata_props}
    assert written == {key: value if isinstance(value, str) else json.dumps(value) for key, value in said.items()}
    sizes = model.graph.input[0].type.tensor_type.shape.dim
    assert [size.dim_param or size.dim_value for size in sizes] == ["batch", 1, 12, 12]


@onnx_only
def test_a_file_that_answers_otherwise_is_not_written(tmp_path, monkeypatch):
    network, path = small(), tmp_path / "network.onnx"
    path.write_text("the old one")
    monkeypatch.setattr(export, "_write_onnx", lambda network, path, about: path.write_text("a new one"))
    monkeypatch.setattr(export, "_scores", lambda path, images: network(images).scores * 1.01)
    with pytest.raises(GraphcapsError, match=r"within 0.0001 of graphcaps' own, got .* off. It was not"):
        export.export(network, path)
    assert path.read_text() == "the old one" and list(tmp_path.iterdir()) == [path]
