"""The one place that imports DGL.

DGL's wheels load a compiled library of ``dgl.graphbolt`` (its data loading for huge graphs) that is named after the
exact torch version it was built for, and a part of ``torchdata`` that newer releases dropped: with any other torch,
``import dgl`` fails although nothing here uses GraphBolt. Where the plain import fails in GraphBolt, and only there,
an empty module takes its place and DGL is imported again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import sys
import traceback
import types

from .errors import GraphcapsError


def _broke_in_graphbolt(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return "graphbolt" in str(error) or any("graphbolt" in frame.filename for frame in frames)


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
        del sys.modules[name]


def _import_dgl() -> types.ModuleType:
    # DGL asks for a backend and writes a file into the home folder unless this says which.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    # A half-imported DGL prints its own warnings before it fails; they would be about a library that isn't used.
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return importlib.import_module("dgl")
    except (ImportError, OSError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "dgl":
            raise GraphcapsError("dgl: expected it to be installed, got none. Run: pip install dgl") from error
        if not _broke_in_graphbolt(error):
            sys.stderr.write(said.getvalue())
            raise
    _forget("dgl")
    sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt", "Empty: graphcaps doesn't use GraphBolt.")
    return importlib.import_module("dgl")


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
