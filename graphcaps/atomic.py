"""Atomic writes: a crash or a full disk leaves the old file or the new one, never half a file. Reads that may fail."""

import contextlib
import gzip
import os
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path

from .errors import GraphcapsError, InputError, expect

UNFINISHED = ".unfinished-"  # prefix of files and folders until they are complete
MOST_BYTES = 2**30  # a file may unpack to this many bytes, or to 100 times its size; deflate reaches 1,000 times
MOST_TEXT = 2**26  # bytes of JSON, or of a line of CSV
MADE_HERE = ".graphcaps"  # an empty file in folders that graphcaps made, so that it never reads them as a user's images


def unfinished(path: Path) -> Path:
    """Return a new path, with the folder and suffix of ``path``, for a file or folder that is not complete yet."""
    return path.with_name(f"{UNFINISHED}{path.stem}-{secrets.token_hex(4)}{path.suffix}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike, before: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path beside ``path``. If the block succeeds, the file there is synced and renamed to ``path``.

    If ``before`` is given, an old file at ``path`` is first renamed to it; between the two renames ``path`` is missing.

    Raises:
        GraphcapsError: the folder can't be made or written, the disk is full, or ``path`` is a pipe or a device. The
            temporary file is removed.
    """
    named = os.fspath(path)
    expect(Path(named).name != "" and "\0" not in named, "path", "the name of a file", repr(named))
    path = Path(os.path.realpath(named))  # a link stays, and the file that it names is replaced
    temporary = unfinished(path)
    try:
        if path.exists() and not path.is_file():
            raise OSError("a folder, a pipe or a device")
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".npz" and not any((folder / MADE_HERE).exists() for folder in path.parents):
                (path.parent / MADE_HERE).touch()
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if before is not None and path.exists():
            os.replace(path, before)
        os.replace(temporary, path)
    except OSError as error:
        raise GraphcapsError(f"{named}: expected to be able to write it, got: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write ``text`` as UTF-8. If that fails, the old file stays."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def checked(path: str | os.PathLike) -> Path:
    """Return the path. Raise ``ValueError`` for a pipe or a device, which may never end, and for sizes of an attack."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError("a folder, a pipe or a device")
    size = path.stat().st_size
    if size < 1000 and path.read_bytes().startswith(b"version https://git-lfs"):
        raise ValueError("a pointer of Git LFS, without its file. Run: git lfs pull")
    if path.suffix == ".npz" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            check_unpacked(sum(part.file_size for part in packed.infolist()), size)
    if path.suffix == ".json" and size > MOST_TEXT:
        raise ValueError(f"{size:,} bytes")
    return path


def contents(path: Path) -> bytes:
    """Read a file, and unpack it if it is gzipped, whatever it is called. Raise ``ValueError`` as ``checked`` does."""
    with open(checked(path), "rb") as packed:
        if packed.read(2) != b"\x1f\x8b":
            return path.read_bytes()
    size = path.stat().st_size
    with gzip.open(path) as file:
        data = file.read(max(MOST_BYTES, 100 * size) + 1)
    check_unpacked(len(data), size)
    return data


def check_unpacked(unpacked: int, size: int) -> None:
    """Raise ``ValueError`` if a compressed file of ``size`` bytes is meant to fill the memory."""
    if unpacked > max(MOST_BYTES, 100 * size):
        raise ValueError(f"{size:,} bytes that unpack to {unpacked:,} or more")


@contextlib.contextmanager
def reading(path: Path | str, wanted: str, advice: str = "", kind: type[GraphcapsError] = InputError) -> Iterator[None]:
    """Turn an error in the block into one of this kind: ``path: expected wanted, got: error. advice``.

    Libraries raise exceptions of any type on damaged files.
    """
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise kind(f"{path}: expected {wanted}, got: {reason}{advice and f'. {advice}'}") from error
