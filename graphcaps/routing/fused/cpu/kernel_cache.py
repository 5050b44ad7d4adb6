"""Compiling kernels with Numba, and where they are kept: in the user's cache folder, never beside the code.

What a program writes into site-packages stays there when pip removes the package. A folder ``graphcaps/`` that holds
such files alone hides an editable install.

A kernel's file in the cache is known by the kernels' file, the Python and the processor. Numba looks at no other
source, so each version of graphcaps has a folder of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit

from ...._version import __version__
from ..user_cache import user_cache

config: Any = numba.config  # whose settings its types don't know


def cache_folder() -> Path:
    """Where kernels are kept: ``NUMBA_CACHE_DIR`` if that is set, else a folder in the platform's place for caches.

    Raises:
        RuntimeError: the user has no home folder.
    """
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    return user_cache() / f"kernels-{__version__}-numba-{numba.__version__}"


def compiled(function: Callable) -> Callable:
    """A kernel as machine code, kept on disk where that can be written; elsewhere each process compiles anew."""
    before = config.CACHE_DIR
    try:
        folder = cache_folder()
        config.CACHE_DIR = str(folder)  # Numba looks here when a function is decorated, and never again
        kernel = njit(function, cache=True, nogil=True, error_model="numpy")
        if Path(kernel.stats.cache_path or "").is_relative_to(folder):  # else Numba could not write there
            return kernel
    except RuntimeError:  # no home, or no folder at all that can be written
        pass
    finally:
        config.CACHE_DIR = before
    return njit(function, nogil=True, error_model="numpy")
