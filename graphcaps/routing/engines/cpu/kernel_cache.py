"""Compiling kernels with Numba, and their cache: a folder in the user's cache, named by a hash of the sources.

Numba identifies a cached kernel by its own file and the processor, not by the other files that are compiled into it.
The folder isn't beside the code: what a program writes into site-packages stays there when pip removes the package.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

config: Any = numba.config  # Numba's types don't declare its settings


def hash_of(sources: Path) -> str:
    """16 hexadecimal digits of the Python files in a folder and the compilers' versions."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


KERNELS = f"kernels-{hash_of(Path(__file__).parent)}"


def user_cache() -> Path:
    """The user's folder for caches on this platform; it may not exist yet."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return xdg if xdg.is_absolute() else Path.home() / ".cache"  # the XDG specification ignores relative paths


def cache_folder() -> Path | None:
    """A folder in ``NUMBA_CACHE_DIR``, or else in the user's cache; None if it can't be written."""
    try:
        folder = (Path(config.CACHE_DIR) if config.CACHE_DIR else user_cache() / "graphcaps") / KERNELS
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return None
    return folder if os.access(folder, os.W_OK) else None


def compiled(function: Callable) -> Callable:
    """A kernel as machine code, kept on disk if possible; else each process compiles it again.

    Kernels use vectors explicitly (`simd`). LLVM's passes above level 1 don't make them faster, and make those of
    `kernels_nodes` two to four times as slow (Numba 0.68).
    """
    user_folder, folder = config.CACHE_DIR, cache_folder()
    try:
        config.CACHE_DIR = str(folder or "")  # Numba reads this only when a function is decorated
        options: Any = {"cache": folder is not None, "nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
        kernel: Any = numba.njit(function, **options)
    finally:
        config.CACHE_DIR = user_folder
    compile_at_user_level = kernel.compile

    def compile_at_level_1(signature: Any) -> Any:
        _ = cpu_target.target_context  # create it at the user's level: the process has only one
        with global_compiler_lock:
            level, collects = config.OPT, gc.isenabled()
            try:
                config.OPT = type(level)(min(level, 1))
                gc.disable()  # a compiler makes many objects, and each collection would scan all of torch's
                return compile_at_user_level(signature)
            finally:
                config.OPT = level
                if collects:
                    gc.enable()

    kernel.compile = compile_at_level_1
    return kernel
