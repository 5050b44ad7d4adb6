"""The only module that imports DGL. It imports DGL on first use, and makes it work with any version of torch.

``import dgl`` also imports ``dgl.graphbolt``, which loads data for huge graphs; graphcaps doesn't use it. GraphBolt
needs a compiled library that is named after the exact torch version it was built for, and a part of ``torchdata`` that
newer releases dropped. With any other torch, ``import dgl`` fails. So ``import graphcaps`` calls `install`, which adds
an import hook: if GraphBolt fails to load, an empty module replaces it. The hook applies to every later ``import dgl``
in the process, and does nothing until then.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

from .errors import GraphcapsError

if TYPE_CHECKING:
    import dgl
    from dgl import DGLGraph, function, ops
    from dgl.nn.functional import edge_softmax

__all__ = ["DGLGraph", "dgl", "edge_softmax", "function", "has_cuda", "install", "install_command", "ops"]

GRAPHBOLT = "dgl.graphbolt"
NEWEST_PYTHON = (3, 12)  # DGL has no wheels for newer ones


def __getattr__(name: str) -> Any:
    """Import DGL when one of its names is first used."""
    if name not in ("DGLGraph", "dgl", "edge_softmax", "function", "ops"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        dgl = importlib.import_module("dgl")
    except ModuleNotFoundError as error:
        if error.name != "dgl":
            raise
        raise GraphcapsError(f"dgl: expected it to be installed, got none. Run: {install_command()}") from error
    names = {"dgl": dgl, "DGLGraph": dgl.DGLGraph, "function": importlib.import_module("dgl.function")}
    names |= {"ops": importlib.import_module("dgl.ops")}
    names |= {"edge_softmax": importlib.import_module("dgl.nn.functional").edge_softmax}
    globals().update(names)
    return names[name]


@functools.cache
def has_cuda() -> bool:
    """Whether DGL can use a CUDA device. The wheels on the Python package index are built without CUDA."""
    dgl = __getattr__("dgl")
    try:
        dgl.graph(([0], [0])).to("cuda")
    except (dgl.DGLError, RuntimeError, AssertionError):  # DGL without CUDA, no device, torch without CUDA
        return False
    return True


def install_command() -> str:
    """Return the shell command that installs DGL for this Python.

    Only one file in DGL's wheels depends on the version of Python: ``dgl/_ffi/_cy3``, which speeds up calls into
    DGL's library. Without that file DGL uses ctypes. So the wheel for 3.12 also works with a newer Python, but pip
    installs it there only with ``--target``.
    """
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return "pip install dgl"
    has_pip = importlib.util.find_spec("pip") is not None  # an environment that uv made has none
    pip = f'"{sys.executable}" -m pip' if has_pip else "uv pip"
    only = f"--python-version {'.'.join(map(str, NEWEST_PYTHON))} --only-binary=:all:"
    return f'{pip} install --no-deps --target "{sysconfig.get_path("platlib")}" {only} "dgl>=2.1"'


class GraphBoltFinder:
    """An import hook: it finds ``dgl.graphbolt`` by the other finders, and wraps the loader in `GraphBoltLoader`."""

    def __init__(self):
        self.searching = False

    def find_spec(self, name: str, path=None, target=None):
        """See ``importlib.abc.MetaPathFinder``."""
        if name == "dgl":
            import os

            # Without this, DGL prints a message about backends and writes a file into the home folder.
            os.environ.setdefault("DGLBACKEND", "pytorch")
        if name != GRAPHBOLT or self.searching:
            return None
        self.searching = True  # so that find_spec below skips this finder
        try:
            spec: Any = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = GraphBoltLoader(spec.loader)
        return spec


class GraphBoltLoader:
    """The loader of ``dgl.graphbolt``, wrapped: if it fails, the module is left empty."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def exec_module(self, module) -> None:
        """See ``importlib.abc.Loader``."""
        import contextlib
        import io

        module.__spec__.loader = module.__loader__ = self.loader
        empty = dict(vars(module))
        # GraphBolt prints warnings before it fails. They are hidden, because the module isn't used.
        printed = io.StringIO()
        try:
            with contextlib.redirect_stderr(printed):
                self.loader.exec_module(module)
        except (ImportError, OSError):
            for name in [name for name in sys.modules if name.startswith(f"{GRAPHBOLT}.")]:
                del sys.modules[name]
            vars(module).clear()
            vars(module).update(empty, __doc__="Empty: the installed GraphBolt doesn't load.")
        else:
            sys.stderr.write(printed.getvalue())


def install() -> None:
    """Add `GraphBoltFinder` to Python's import hooks, unless it is there."""
    if not any(isinstance(finder, GraphBoltFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, GraphBoltFinder())
