"""graphcaps: capsule routing as message passing on DGL graphs.

Names are imported when first used, so that ``import graphcaps`` and ``graphcaps --help`` don't wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._dgl_import import install
from ._lazy import attach
from ._version import __version__

install()

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
    "Parents",
    "CapsNet",
    "RoutingTrace",
    "watch",
    "explore_graph",
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
    from .explore.graph_page import explore_graph
    from .functional import coupling_entropy, margin_loss, spread_loss, squash
    from .graph import bipartite_graph, complete_graph, local_graph, local_index, to_networkx
    from .models import CapsNet
    from .routing import LinearVotes, MatrixVotes, Parents, choose_engine, dynamic_routing, engine, route
    from .trace import RoutingTrace, watch
    from .training.run_folder import load
    from .training.start import train


if not TYPE_CHECKING:  # so that a checker knows a misspelt name
    _HOMES = {
        "": "nn routing viz",
        "_dgl": "dgl",
        "_version": "__version__",
        "config": "TrainConfig",
        "errors": "GraphcapsError InputError",
        "explore.graph_page": "explore_graph",
        "functional": "coupling_entropy margin_loss spread_loss squash",
        "graph": "bipartite_graph complete_graph local_graph local_index to_networkx",
        "models": "CapsNet",
        "routing": "LinearVotes MatrixVotes Parents choose_engine dynamic_routing engine route",
        "trace": "RoutingTrace watch",
        "training.run_folder": "load",
        "training.start": "train",
    }
    __getattr__, __dir__ = attach(__name__, _HOMES)
