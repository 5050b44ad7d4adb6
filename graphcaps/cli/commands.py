"""The commands, one function each: its arguments and docstring are what ``--help`` shows."""

from .measurements import bench, compare, example
from .networks import evaluate, predict, prune, runs, train
from .pictures import explain, explore, viz

COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "runs": runs,
    "viz": viz,
    "explain": explain,
    "prune": prune,
    "explore": explore,
    "compare": compare,
    "bench": bench,
    "example": example,
}
