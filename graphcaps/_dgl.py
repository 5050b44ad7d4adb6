"""The one place that imports DGL. `graphcaps._dgl_import` sees to it that it can be imported."""

from __future__ import annotations

import functools
import importlib
import types

from ._dgl_wheel import line
from .errors import GraphcapsError


def _import_dgl() -> types.ModuleType:
    try:
        return importlib.import_module("dgl")
    except ModuleNotFoundError as error:
        if error.name != "dgl":
            raise
        raise GraphcapsError(f"dgl: expected it to be installed, got none. Run: {line()}") from error


dgl = _import_dgl()
function = importlib.import_module("dgl.function")
ops = importlib.import_module("dgl.ops")
edge_softmax = importlib.import_module("dgl.nn.functional").edge_softmax
DGLGraph = dgl.DGLGraph


@functools.cache
def has_cuda() -> bool:
    """Whether the installed DGL was built with CUDA (the wheels on the Python package index are not)."""
    try:
        dgl.graph(([0], [0])).to("cuda")
    except (dgl.DGLError, RuntimeError, AssertionError):  # DGL without CUDA, no device, torch without CUDA
        return False
    return True
