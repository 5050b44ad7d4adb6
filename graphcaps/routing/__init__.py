"""Routing between two capsule layers.

The functions are in `api`. Each algorithm is a subclass of `Routing`, and each engine is `engines.edges.Edges` or a
subclass of it. Engines that run whole iterations in kernels know a routing only by its `Rule`.
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

__all__ = ["choose_engine", "dynamic_routing", "engine", "route"]
__all__ += ["EM", "Attention", "Dynamic", "Inverted", "Spherical", "Uniform"]
__all__ += ["LinearVotes", "MatrixVotes", "Parents", "Routing", "Rule", "squashed"]
