"""graphcaps: capsule routing as message passing on DGL graphs.

Names are imported on first use, so that ``import graphcaps`` and ``graphcaps --help`` don't wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._dgl import install

__version__ = "0.1.0"

install()

__all__ = ["__version__", "dgl", "nn", "routing", "viz"]
__all__ += ["bipartite_graph", "complete_graph", "coupling_entropy", "local_graph", "local_index", "read_graph"]
__all__ += ["to_networkx"]
__all__ += ["LinearVotes", "MatrixVotes", "Parents", "choose_engine", "dynamic_routing", "engine", "route"]
__all__ += ["CapsNet", "margin_loss", "spread_loss", "squash"]
__all__ += ["RoutingTrace", "TrainConfig", "explore_graph", "load", "show", "smooth", "train", "watch"]
__all__ += ["GraphcapsError", "InputError"]

if TYPE_CHECKING:
    from . import nn, routing, viz
    from ._dgl import dgl
    from .beliefs import smooth
    from .errors import GraphcapsError, InputError
    from .explore.graph_page import explore_graph
    from .explore.notebook import show
    from .functional import margin_loss, spread_loss, squash
    from .graph import (
        bipartite_graph,
        complete_graph,
        coupling_entropy,
        local_graph,
        local_index,
        read_graph,
        to_networkx,
    )
    from .images.config import TrainConfig
    from .images.models import CapsNet
    from .images.training.run_folder import load
    from .images.training.train import train
    from .routing import LinearVotes, MatrixVotes, Parents, choose_engine, dynamic_routing, engine, route
    from .trace import watch
    from .viz.routing_trace import RoutingTrace


if not TYPE_CHECKING:  # hidden from type checkers, so that they report misspelt names
    _MODULES = {
        "": "nn routing viz",
        "_dgl": "dgl",
        "beliefs": "smooth",
        "images.config": "TrainConfig",
        "errors": "GraphcapsError InputError",
        "explore.graph_page": "explore_graph",
        "explore.notebook": "show",
        "functional": "margin_loss spread_loss squash",
        "graph": "bipartite_graph complete_graph coupling_entropy local_graph local_index read_graph to_networkx",
        "images.models": "CapsNet",
        "routing": "LinearVotes MatrixVotes Parents choose_engine dynamic_routing engine route",
        "trace": "watch",
        "images.training.run_folder": "load",
        "images.training.train": "train",
        "viz.routing_trace": "RoutingTrace",
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

    def __getattr__(name: str):
        if name not in _MODULE_OF:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        module = importlib.import_module(f"{__name__}.{_MODULE_OF[name] or name}")
        return getattr(module, name) if _MODULE_OF[name] else module

    def __dir__() -> list[str]:
        return sorted(__all__)
