"""Compilation of kernels with Numba, cached in the user's cache, in a folder whose name contains a hash of the sources.

Numba itself checks only the kernel's own file for changes, not `algorithms/rule.py` and the other files compiled into
the kernel.
The folder isn't in site-packages, because pip would leave the compiled files behind.

The files contain pickles and machine code. So only the user may write to the folder, and each file ends with a
checksum. A cache that can't be read or written costs a compilation.
"""

import contextlib
import gc
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
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


RULE = Path(__file__).parents[2] / "algorithms" / "rule.py"
KERNELS = f"kernels-{hash_of(RULE, *Path(__file__).parent.glob('*.py'))}"


def cache_folder() -> Path | None:
    """Make a folder in ``NUMBA_CACHE_DIR`` if set, else in the user's cache.

    Return None if the user can't write to it, or if others can.
    """
    of_user = Path(user_cache_dir("graphcaps", appauthor=False, opinion=False))
    try:
        folder = (Path(config.CACHE_DIR).absolute() if config.CACHE_DIR else of_user) / KERNELS
        if not folder.is_absolute():  # the user has no home folder
            return None
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        of_others = os.name == "posix" and (folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) and not of_others else None


class CheckedFiles(IndexDataCacheFile):
    """Numba's two files of a kernel, an index and the machine code, each with a checksum behind its pickle."""

    def save(self, key: Any, data: Any) -> None:
        """Save code in a file named by its key.

        Numba numbers the files, so two processes that save at once can write to the same file. Then the index leads to
        the code of another signature.
        """
        overloads = self._load_index()
        name = self._data_name(int(hashlib.sha256(pickle.dumps(key)).hexdigest()[:16], 16))
        self._save_data(name, data)
        self._save_index(overloads | {key: name})

    def _dump(self, content: Any) -> bytes:
        pickled = super()._dump(content)
        return pickled + hashlib.sha256(pickled).digest()

    def _load_index(self) -> dict:
        version = pickle.dumps(self._version, protocol=-1)  # Numba writes it in front of the pickle
        with contextlib.suppress(FileNotFoundError):
            check(Path(self._index_path).read_bytes().removeprefix(version))
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        check(Path(self._data_path(name)).read_bytes())
        return super()._load_data(name)


def check(content: bytes) -> None:
    """Raise ``ValueError`` unless the last 32 bytes are the checksum of the bytes before them."""
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise ValueError("a damaged file")


class KernelCache(FunctionCache):
    """Numba's cache of a kernel. A damaged file is replaced, and a full disk only means that nothing is kept."""

    def __init__(self, function: Callable):
        super().__init__(function)
        files = self._cache_file
        self._cache_file = CheckedFiles(files._cache_path, self._impl.filename_base, files._source_stamp)

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception:  # reading a damaged or foreign file can raise anything
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().save_overload(signature, result)


def compiled(function: Callable) -> Callable:
    """Compile a kernel when it is called, and cache it on disk; if that is impossible, each process compiles it again.

    LLVM optimises at level 1 at most, because the kernels use vectors explicitly (`simd`): higher levels make none of
    them faster, and those in `kernels_by_node` two to four times as slow (Numba 0.68).
    """
    user_folder, folder = config.CACHE_DIR, cache_folder()
    try:
        config.CACHE_DIR = str(folder or "")  # Numba reads this only when a function is decorated
        options: Any = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
        kernel: Any = numba.njit(function, **options)
        if folder is not None:
            kernel._cache = KernelCache(function)
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
