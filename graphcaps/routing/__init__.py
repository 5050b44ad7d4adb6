"""Routing between two capsule layers: one door (`api`), one class and file per algorithm, one per engine (`engines`).

`routing.Routing` is the algorithms' base, `engines.edges.Edges` the engines' base with the operations that algorithms
are written in, and `rule.Rule` what an engine needs to know to run whole iterations in kernels.
"""

from .api import choose_engine, dynamic_routing, route
from .attention import Attention
from .dynamic import Dynamic
from .em import EM
from .engines import engine
from .inverted import Inverted
from .routing import Parents, Routing, squashed
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
