"""Routing between two capsule layers.

`api` has the functions. Each algorithm is a subclass of `Routing`, each engine one of `engines.edges.Edges`. A `Rule`
describes a routing to engines that run whole iterations in kernels.
"""

from .api import choose_engine, dynamic_routing, route
from .attention import Attention
from .base import Parents, Routing, squashed
from .dynamic import Dynamic
from .em import EM
from .engines import engine
from .inverted import Inverted
from .rule import Rule
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
    "Routing",
    "Rule",
    "Spherical",
    "Uniform",
    "choose_engine",
    "dynamic_routing",
    "engine",
    "route",
    "squashed",
]
