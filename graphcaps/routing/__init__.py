"""Routing between two capsule layers: one door (`api`), one class per algorithm in a file of its own.

`routing.Routing` is what they have in common, `edges` the operations they are written in, `engines` what runs them.
"""

from .api import Routed, dynamic_routing, route
from .attention import Attention
from .dynamic import Dynamic
from .em import EM
from .engines import choose_engine, engine
from .inverted import Inverted
from .routing import Parents, Routing
from .spherical import Spherical
from .uniform import Uniform
from .votes import LinearVotes, MatrixVotes

__all__ = [
    "EM",
    "Attention",
    "Dynamic",
    "Inverted",
    "LinearVotes",
    "MatrixVotes",
    "Parents",
    "Routed",
    "Routing",
    "Spherical",
    "Uniform",
    "choose_engine",
    "dynamic_routing",
    "engine",
    "route",
]
