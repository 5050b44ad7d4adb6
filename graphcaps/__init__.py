"""graphcaps: capsule routing as message passing on DGL graphs.

Names are imported when first used, so that ``import graphcaps`` and ``graphcaps --help`` don't wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._dgl_import import install
from ._version import __version__

install()

_HOME = {
    "complete_graph": "graph",
    "bipartite_graph": "graph",
    "local_graph": "graph",
    "local_index": "graph",
    "to_networkx": "graph",
    "squash": "functional",
    "margin_loss": "functional",
    "spread_loss": "functional",
    "coupling_entropy": "functional",
    "route": "routing",
    "dynamic_routing": "routing",
    "choose_engine": "routing",
    "engine": "routing",
    "LinearVotes": "routing",
    "MatrixVotes": "routing",
    "Routed": "routing",
    "CapsNet": "models",
    "RoutingTrace": "trace",
    "watch": "trace",
    "load": "training",
    "TrainConfig": "config",
    "train": "training",
    "GraphcapsError": "errors",
    "InputError": "errors",
    "dgl": "_dgl",
}

_SUBPACKAGES = ("nn", "routing", "viz")

__all__ = [
    "__version__",
    "nn",
    "routing",
    "viz",
    "complete_graph",
    "bipartite_graph",
    "local_graph",
    "local_index",
    "to_networkx",
    "squash",
    "margin_loss",
    "spread_loss",
    "coupling_entropy",
    "route",
    "dynamic_routing",
    "choose_engine",
    "engine",
    "LinearVotes",
    "MatrixVotes",
    "Routed",
    "CapsNet",
    "RoutingTrace",
    "watch",
    "load",
    "TrainConfig",
    "train",
    "GraphcapsError",
    "InputError",
    "dgl",
]

if TYPE_CHECKING:
    from . import nn, routing, viz
    from ._dgl import dgl
    from .config import TrainConfig
    from .errors import GraphcapsError, InputError
    from .functional import coupling_entropy, margin_loss, spread_loss, squash
    from .graph import bipartite_graph, complete_graph, local_graph, local_index, to_networkx
    from .models import CapsNet
    from .routing import LinearVotes, MatrixVotes, Routed, choose_engine, dynamic_routing, engine, route
    from .trace import RoutingTrace, watch
    from .training.run_folder import load
    from .training.start import train


if not TYPE_CHECKING:  # so that a checker knows a misspelt name

    def __getattr__(name: str):
        if name in _SUBPACKAGES:
            return importlib.import_module(f".{name}", __name__)
        if name not in _HOME:
            raise AttributeError(f"module 'graphcaps' has no attribute '{name}'")
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
