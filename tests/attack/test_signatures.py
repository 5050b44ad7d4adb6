"""Wrong calls from signatures: each argument of each public function gets values of other kinds, shapes and devices.

An answer is clear if it is a ``GraphcapsError`` that begins with the argument's name.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import graphcaps
from graphcaps import GraphcapsError, dgl, nn
from graphcaps.images.models import CapsNet, capsnet_loss
from graphcaps.routing import MatrixVotes

COMPLETE, VOTES = graphcaps.complete_graph(3, 2), torch.rand(6, 4, 5)
RING, X = dgl.add_self_loop(dgl.graph(([0, 1, 2], [1, 2, 0]))), torch.rand(3, 4)
BOTH, CLASSES, DIMS = dgl.graph(([0, 1, 1, 2], [1, 0, 2, 1])), torch.tensor([0, 1]), dict(num_children=6, num_parents=2)
IMAGES, NETWORK = torch.rand(2, 1, 12, 12), CapsNet.from_preset("compact", (1, 12, 12), 3)
# Each function with arguments that fit. They are called with them, but for one.
FUNCTIONS: dict[Callable, dict[str, Any]] = {
    graphcaps.bipartite_graph: dict(src=[0, 1], dst=[0, 1], **DIMS),
    graphcaps.coupling_entropy: dict(graph=COMPLETE, c=torch.rand(6, 2)),
    graphcaps.route: dict(graph=COMPLETE, votes=VOTES, activation=torch.rand(3, 4), prior=torch.rand(6)),
    MatrixVotes: dict(u=torch.rand(3, 4, 16), weight=torch.rand(2, 4, 4), index=torch.tensor([0, 1, 0, 1, 0, 1])),
    graphcaps.margin_loss: dict(lengths=torch.rand(2, 3), labels=CLASSES),
    capsnet_loss: dict(output=NETWORK(IMAGES), images=IMAGES, labels=CLASSES),
    **dict.fromkeys((graphcaps.complete_graph, nn.CapsuleLayer), DIMS),
    **dict.fromkeys((nn.CapsuleConv, nn.BeliefConv), dict(in_feats=4, out_feats=3, num_caps=2)),
    nn.CapsuleLayer(6, 2).forward: dict(u=torch.rand(6, 2, 8)),
    nn.CapsuleConv(4, 3, 2).forward: dict(graph=RING, feat=X, edge_weight=torch.rand(6)),
    nn.BeliefConv(4, 3, 2).forward: dict(graph=BOTH, feat=X, edge_weight=torch.rand(4)),
    CapsNet.from_preset: dict(name="compact", image_shape=(1, 20, 20), num_classes=3),
    NETWORK.forward: dict(images=IMAGES),
    graphcaps.load: dict(run="mnist"),
    graphcaps.explore_graph: dict(conv=nn.CapsuleConv(4, 3, 2), graph=RING, feat=X, path="/nowhere/graph.html"),
    graphcaps.train: dict(config=graphcaps.TrainConfig(dataset="nonsense")),
}  # fmt: skip
# Other names that begin the text about an argument, and values that look wrong but fit.
OTHERS = {"votes": ("u_hat",), "routed": ("graph",), "name": ("engine", "preset")}
ALLOWED = {("prior", "one dim"), ("prior", "no dims")}
ALLOWED |= {("bias", "negative"), ("coupling", "text"), ("coupling", "a dict"), ("coupling", "an object")}


def wrong_values(annotation: str, fits: Any) -> Iterator[tuple[str, Any]]:
    """Values of another kind than the annotation, and tensors of another shape than one that fits."""
    tensor = "Tensor" in annotation or "Adj" in annotation
    whole = any(word in annotation for word in ("int", "Size", "Pair", "Whole"))
    yield "an object", object()
    if "None" not in annotation and "Opt" not in annotation:
        yield "None", None
    if "Path" not in annotation:
        yield "another name" if "str" in annotation else "text", "nonsense"
    if "Mapping" not in annotation:
        yield "a dict", {}
    if not tensor and "Array" not in annotation and "Callable" not in annotation:
        yield "a tensor", torch.rand(2, 2)
    if (whole or "float" in annotation) and not tensor:
        yield from (("negative", -3), ("NaN", math.nan), ("infinite", -math.inf))
        if "bool" not in annotation:
            yield "True", True
        if "float" not in annotation:
            yield "a fraction", 1.5
    if isinstance(fits, Tensor):
        yield from (("complex", fits + 0j), ("one dim", fits.flatten()[:1]))
        yield from (("no dims", torch.tensor(1.0)), ("of text", [["x"]]), ("nested", torch.nested.nested_tensor([X])))


def calls() -> Iterator[tuple[Callable, str, str, dict[str, Any]]]:
    """The function, the wrong argument, the kind of its value, and all arguments."""
    for function, given in FUNCTIONS.items():
        for key, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                for kind, value in wrong_values(str(parameter.annotation), given.get(key)):
                    if (key, kind) not in ALLOWED:
                        yield function, key, kind, {**given, key: value}


@pytest.mark.filterwarnings("ignore")
def test_99_of_100_wrong_calls_name_the_wrong_argument():
    unclear, wrong_calls = [], [*calls()]
    for function, key, kind, arguments in wrong_calls:
        answer, subjects = "accepted", ""
        try:
            result = function(**arguments)
            if isinstance(result, MatrixVotes):
                graphcaps.route(COMPLETE, result)
        except GraphcapsError as error:
            answer, subjects = str(error), str(error).partition(":")[0]
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        if not any(word in subjects for word in (key, *OTHERS.get(key, ()))):
            unclear.append(f"{function}({key}: {kind})  {' '.join(answer.split())[:110]}")
    assert len(wrong_calls) > 400 and len(unclear) <= 0.01 * len(wrong_calls), "\n".join(unclear)
