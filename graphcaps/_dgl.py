"""The only module that imports DGL. It imports DGL on first use, and makes it work with any version of torch.

``import dgl`` also imports ``dgl.graphbolt``, a data loader for huge graphs that graphcaps doesn't use. GraphBolt needs
a library compiled for the exact version of torch, and a part of ``torchdata`` that newer releases dropped. So ``import
graphcaps`` calls `install`, and every later ``import dgl`` in the process loads DGL without GraphBolt.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
import types
from typing import TYPE_CHECKING, Any

from .errors import GraphcapsError

if TYPE_CHECKING:
    import dgl
    from dgl import DGLGraph

__all__ = ["DGLGraph", "dgl", "has_cuda", "install", "install_command", "is_installed"]

NEWEST_PYTHON = (3, 12)  # DGL has no wheels for newer versions


def __getattr__(name: str) -> Any:
    """Import DGL when one of its names is first used."""
    if name not in ("DGLGraph", "dgl"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        import dgl
        import dgl.nn.functional
    except ModuleNotFoundError as error:
        if error.name != "dgl":
            raise
        if name == "DGLGraph":  # for annotations and isinstance, which PyG's layers need no DGL for
            return NO_GRAPH
        raise GraphcapsError(f"dgl: expected it to be installed, got none. Run: {install_command()}") from error
    globals().update(dgl=dgl, DGLGraph=dgl.DGLGraph)
    return globals()[name]


NO_GRAPH = type("DGLGraph", (), {})  # takes the place of DGLGraph where DGL isn't installed; it has no objects


@functools.cache
def is_installed() -> bool:
    """Whether DGL can be imported."""
    return importlib.util.find_spec("dgl") is not None


@functools.cache
def has_cuda() -> bool:
    """Whether DGL can use a CUDA device. The wheels on the Python package index are built without CUDA."""
    if not is_installed():
        return False
    dgl = __getattr__("dgl")
    try:
        dgl.graph(([0], [0])).to("cuda")
    except (dgl.DGLError, RuntimeError, AssertionError):  # DGL without CUDA, no device, torch without CUDA
        return False
    return True


def install_command() -> str:
    """Return the shell command that installs DGL for this Python.

    DGL's wheel for Python 3.12 also works with newer versions: DGL then uses ctypes instead of its compiled module
    ``dgl/_ffi/_cy3``. But on newer versions, pip installs this wheel only with ``--target``.
    """
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return "pip install dgl"
    has_pip = importlib.util.find_spec("pip") is not None  # environments made by uv have no pip
    pip = f'"{sys.executable}" -m pip' if has_pip else "uv pip"
    only = f"--python-version {'.'.join(map(str, NEWEST_PYTHON))} --only-binary=:all:"
    return f'{pip} install --no-deps --target "{sysconfig.get_path("platlib")}" {only} "dgl>=2.1"'


def install() -> None:
    """Put an empty module in the place of ``dgl.graphbolt``, unless DGL is already imported."""
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt", "Empty, because graphcaps came first."))
    # Without this, DGL prints a message about backends and writes a file into the home folder.
    os.environ.setdefault("DGLBACKEND", "pytorch")
