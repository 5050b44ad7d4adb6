"""Compilation of kernels with Numba, cached in the user's cache, in a folder whose name contains a hash of the sources.

Numba itself checks only the kernel's own file for changes, not `rule.py` and the other files compiled into the kernel.
The folder isn't in site-packages, because pip would leave the compiled files behind.
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
from numba.misc.appdirs import user_cache_dir

config: Any = numba.config  # Any, because Numba's types don't declare its settings


def hash_of(*sources: Path) -> str:
    """Return a hash of the files and of the compilers' versions, as 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


KERNELS = f"kernels-{hash_of(Path(__file__).parents[2] / 'rule.py', *Path(__file__).parent.glob('*.py'))}"


def cache_folder() -> Path | None:
    """Make a folder in ``NUMBA_CACHE_DIR`` if set, else in the user's cache. Return None if it isn't writable."""
    of_user = Path(user_cache_dir("graphcaps", appauthor=False, opinion=False))
    try:
        folder = (Path(config.CACHE_DIR).absolute() if config.CACHE_DIR else of_user) / KERNELS
        if not folder.is_absolute():  # the user has no home folder
            return None
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def compiled(function: Callable) -> Callable:
    """Compile a kernel when it is called, and cache it on disk; if that is impossible, each process compiles it again.

    LLVM optimises at level 1 at most, because the kernels use vectors explicitly (`simd`): higher levels make none of
    them faster, and those in `kernels_by_node` two to four times as slow (Numba 0.68).
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
        _ = cpu_target.target_context  # create it before the level is lowered, because the whole process shares it
        with global_compiler_lock:
            level, collects = config.OPT, gc.isenabled()
            try:
                config.OPT = type(level)(min(level, 1))
                gc.disable()  # compiling makes many objects, and each collection would scan torch's objects too
                return compile_at_user_level(signature)
            finally:
                config.OPT = level
                if collects:
                    gc.enable()

    kernel.compile = compile_at_level_1
    return kernel
