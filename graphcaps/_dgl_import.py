"""Lets ``import dgl`` work with a torch that DGL's wheels weren't built for, whoever imports it; costs nothing before.

DGL's wheels load a compiled library of ``dgl.graphbolt`` (its data loading for huge graphs) that is named after the
exact torch version it was built for, and a part of ``torchdata`` that newer releases dropped: with any other torch,
``import dgl`` fails although nothing here uses GraphBolt. Where GraphBolt fails, and only there, an empty module takes
its place.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

GRAPHBOLT = "dgl.graphbolt"


class Finder:
    """Finds ``dgl.graphbolt`` as everybody does, and has it loaded by `Loader`. Knows nothing of other modules."""

    def __init__(self):
        self.looking = False

    def find_spec(self, name: str, path=None, target=None):
        """As ``importlib.abc.MetaPathFinder`` has it."""
        if name == "dgl":
            import os

            # DGL asks for a backend and writes a file into the home folder unless this says which.
            os.environ.setdefault("DGLBACKEND", "pytorch")
        if name != GRAPHBOLT or self.looking:
            return None
        import importlib.util

        self.looking = True  # the other finders are asked, not this one again
        try:
            spec: Any = importlib.util.find_spec(name)
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


class Loader:
    """Another loader, and an empty module where that fails."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def exec_module(self, module) -> None:
        """As ``importlib.abc.Loader`` has it."""
        import contextlib
        import io

        module.__spec__.loader = module.__loader__ = self.loader
        fresh = dict(vars(module))
        # A half-imported GraphBolt prints its own warnings before it fails; they would be about what isn't used.
        printed = io.StringIO()
        try:
            with contextlib.redirect_stderr(printed):
                self.loader.exec_module(module)
        except (ImportError, OSError):
            for name in [name for name in sys.modules if name.startswith(f"{GRAPHBOLT}.")]:
                del sys.modules[name]
            vars(module).clear()
            vars(module).update(fresh, __doc__="Empty: the installed one doesn't load.")
        else:
            sys.stderr.write(printed.getvalue())


def install() -> None:
    """From now on ``import dgl`` goes this way."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
