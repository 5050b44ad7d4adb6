"""The commands, one function each: its arguments and docstring are what ``--help`` shows."""

from __future__ import annotations

from collections.abc import Callable

from .files import export
from .networks import evaluate, predict, runs, train
from .pictures import explain, explore, viz

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "runs": runs,
    "viz": viz,
    "explain": explain,
    "explore": explore,
    "export": export,
}
