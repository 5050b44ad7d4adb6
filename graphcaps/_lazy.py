"""Names that a package imports when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable


def attach(package: str, homes: dict[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package, of the names in each of its modules; under "" are the modules."""
    home = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = importlib.import_module(f"{package}.{home[name] or name}")
        return getattr(module, name) if home[name] else module

    return get, lambda: sorted(home)
