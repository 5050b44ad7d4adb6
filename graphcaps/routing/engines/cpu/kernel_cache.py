"""Compiling kernels with Numba, and where they are kept: in the user's cache, in a folder named by their sources' hash.

Numba knows a kernel in its cache by its own file and the processor, not by what is compiled into it from other files.
The folder isn't beside the code: what a program writes into site-packages stays there when pip removes the package.
"""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from .user_cache import user_cache

config: Any = numba.config  # whose settings its types don't know


def hash_of(sources: Path) -> str:
    """16 hexadecimal digits of the Python files in a folder and the compilers' versions."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


KERNELS = f"kernels-{hash_of(Path(__file__).parent)}"


def cache_folder() -> Path | None:
    """A folder in ``NUMBA_CACHE_DIR``, else in the platform's place for caches; None where none can be written."""
    try:
        folder = (Path(config.CACHE_DIR) if config.CACHE_DIR else user_cache()) / KERNELS
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def compiled(function: Callable) -> Callable:
    """A kernel as machine code, kept on disk where that can be written; elsewhere each process compiles anew.

    Its vectors are written by hand (`simd`). LLVM's passes above the first level make nothing of them that is faster,
    and the kernels of `kernels_nodes` two to four times as slow (Numba 0.68).
    """
    before, folder = config.CACHE_DIR, cache_folder()
    try:
        config.CACHE_DIR = str(folder or "")  # Numba looks here when a function is decorated, and never again
        options: Any = {"cache": folder is not None, "nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
        kernel: Any = numba.njit(function, **options)
    finally:
        config.CACHE_DIR = before
    at_full = kernel.compile

    def compile_at_the_first_level(signature: Any) -> Any:
        _ = cpu_target.target_context  # made once for all of the process, at the level that the user has chosen
        with global_compiler_lock:
            level, collecting = config.OPT, gc.isenabled()
            try:
                config.OPT = type(level)(min(level, 1))
                gc.disable()  # a compiler makes many objects, and each collection looks through all that torch has
                return at_full(signature)
            finally:
                config.OPT = level
                if collecting:
                    gc.enable()

    kernel.compile = compile_at_the_first_level
    return kernel
