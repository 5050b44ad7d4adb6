"""What the arguments of other libraries' layers are called here: an error names our word."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import InputError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Rows of words for one thing. A layer has one of them.
SAME = (
    ("num_caps", "num_heads", "heads", "n_heads", "nheads", "num_capsules", "num_classes", "n_classes"),
    ("in_feats", "in_channels", "in_features", "in_dim", "in_size", "in_node_feats"),
    ("out_feats", "out_channels", "out_features", "out_dim", "out_size", "out_node_feats"),
    ("edge_feats", "edge_dim", "in_edge_feats", "edge_channels"),
    ("vote_drop", "dropout", "attn_drop", "attention_dropout"),
    ("iterations", "num_iterations", "n_iterations", "num_routing", "routing_iterations", "num_layers"),
    ("get_coupling", "return_coupling", "get_attention", "return_attention_weights"),
    ("feat", "x", "h", "inputs", "features", "node_feats"),
    ("edge_feat", "edge_attr", "efeat", "edge_feats"),
    ("edge_weight", "edge_weights", "weight", "efeats"),
    ("graph", "g", "block"),
    ("index", "batch"),
    ("dim_size", "num_graphs", "batch_size"),
    ("normalise", "normalize"),
    ("residual", "skip", "root_weight"),
)
# Words for what no layer here has, or not every layer: what to do in their place.
OTHERWISE = {
    "feat_drop": "Drop features before the layer: dropout(x)",
    "negative_slope": "Leave it out: routing has no LeakyReLU",
    "activation": "Call it on the result",
    "concat": "Flatten the result: h.flatten(-2)",
    "fill_value": "Leave it out: a self-loop has weight 1 and the mean features of the node's in-edges",
    "allow_zero_in_degree": "Leave it out: a node without in-edges gives squash(bias)",
    "add_self_loops": "Add them to the graph: dgl.add_self_loop(graph)",
    "share_weights": "Leave it out: sources vote, and targets have weights of their own in residual=True alone",
    "norm": "normalise=True divides by the scale of features",
    "aggr": "Leave it out: routing is the aggregation",
    "aggregator_type": "Leave it out: routing is the aggregation",
    "flow": "Edges go from edge_index[0] to edge_index[1]: edge_index.flip(0) turns them",
    "gate_nn": "Leave it out: the votes' weights are the layer's own",
}


class WordError(InputError, TypeError):
    """An argument that the layer doesn't have: a ``TypeError``, as Python's own is."""


def pointing(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make an argument that ``function`` doesn't have an error that names the one it has.

    >>> pointing(lambda num_caps: None)(heads=4)
    Traceback (most recent call last):
    graphcaps.nn.words.WordError: heads: expected one of the layer's arguments, got heads=4. Its name is num_caps here
    """
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def checked(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
        for word, value in named.items():
            if word not in known:
                said = f"{word}={value!r}" if isinstance(value, (int, float, str, bool)) else word
                raise WordError(
                    f"{word}: expected one of the layer's arguments, got {said[:60]}. {_pointer(word, known)}"
                )
        return function(*args, **named)

    return checked


def _pointer(word: str, known: list[str]) -> str:
    """Where to go from a word that isn't known."""
    for row in SAME:
        ours = [name for name in row if name in known]
        if word in row and ours:
            return f"Its name is {ours[0]} here"
    if word in OTHERWISE:
        return OTHERWISE[word]
    near = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean '{near[0]}'?" if near else f"They are {', '.join(known)}"
