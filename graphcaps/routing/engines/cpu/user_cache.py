"""The platform's place for what programs may make again: compiled kernels, and what was found out about a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """The user's folder for graphcaps there; it may not exist yet.

    Raises:
        RuntimeError: the user has no home folder.
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        caches = Path(local) if local else Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        caches = named if named.is_absolute() else Path.home() / ".cache"  # its specification: ignore relative paths
    return caches / "graphcaps"
