"""CapsuleConv, BeliefConv and CapsuleReadout for PyTorch Geometric; the layers for DGL are in ``graphcaps.nn``.

Both versions have the same parameter names and shapes, and the same weights give the same results. This package needs
``pip install -e ".[pyg]"``; nothing else in graphcaps imports it.
"""

from ..errors import MissingError

try:
    import torch_geometric  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingError(
        f'graphcaps.pyg: expected torch_geometric, got no {error.name}. Run: pip install -e ".[pyg]"'
    ) from error

from .beliefs import BeliefConv
from .conv import CapsuleConv
from .readout import CapsuleReadout

__all__ = ["BeliefConv", "CapsuleConv", "CapsuleReadout"]
