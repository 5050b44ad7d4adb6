"""Routing between two capsule layers: one door (`api`), one table of engines (`engines`), one file per algorithm."""

from .api import Routed, dynamic_routing, route
from .em import EMParameters
from .engines import choose_engine
from .inverted import InvertedParameters
from .spherical import SphericalParameters
from .votes import LinearVotes, MatrixVotes

__all__ = [
    "EMParameters",
    "InvertedParameters",
    "LinearVotes",
    "MatrixVotes",
    "Routed",
    "SphericalParameters",
    "choose_engine",
    "dynamic_routing",
    "route",
]
