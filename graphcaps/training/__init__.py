"""Training: the loop, the run folder that a crash can't break, and the weights in it.

Names are imported when first used, so that help texts and ``graphcaps runs`` don't wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {
    "train": "start",
    "Diverged": "loop",
    "Interrupted": "loop",
    "Run": "run_folder",
    "load": "run_folder",
}

__all__ = ["Diverged", "Interrupted", "Run", "load", "train"]

if TYPE_CHECKING:
    from .loop import Diverged, Interrupted
    from .run_folder import Run, load
    from .start import train


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
