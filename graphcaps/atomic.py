"""Atomic writes: a crash or a full disk leaves the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import GraphcapsError

UNFINISHED = ".unfinished-"  # prefix of files and folders that are being made


@contextlib.contextmanager
def replacing(path: str | os.PathLike, before: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; when the block ends well, it is synced and renamed to ``path``.

    With ``before``, an old file at ``path`` is renamed to it first; between the two renamings there is no ``path``.

    Raises:
        GraphcapsError: the folder can't be made or written, or the disk is full; nothing is left behind.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{UNFINISHED}{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, permitted(0o666))  # mkstemp makes files only their owner can read
        if before is not None and path.exists():
            os.replace(path, before)
        os.replace(temporary, path)
    except OSError as error:
        raise GraphcapsError(f"{path}: expected to be able to write it, got: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def permitted(mode: int) -> int:
    """The permissions of a new file or folder under the process's umask."""
    umask = os.umask(0)
    os.umask(umask)
    return mode & ~umask


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder for the block; if the block fails, remove the folders that were made unless they hold files.

    Raises:
        OSError: it can't be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove the files that killed writers left in ``folder``; nobody may be writing there."""
    for leftover in folder.glob(f"{UNFINISHED}*"):
        leftover.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write ``text`` as UTF-8, all of it or none."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
