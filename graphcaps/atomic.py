"""Atomic writes: a crash or a full disk leaves the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from .errors import GraphcapsError

UNFINISHED = ".unfinished-"  # prefix of files and folders that are being made


def unfinished(path: Path) -> Path:
    """A new name beside ``path``, with its suffix, for a file or folder that is being made."""
    return path.with_name(f"{UNFINISHED}{path.stem}-{secrets.token_hex(4)}{path.suffix}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike, before: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; when the block ends well, its file is synced and renamed to ``path``.

    With ``before``, an old file at ``path`` is renamed to it first; between the two renamings there is no ``path``.

    Raises:
        GraphcapsError: the folder can't be made or written, or the disk is full; nothing is left behind.
    """
    path = Path(path)
    temporary = unfinished(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if before is not None and path.exists():
            os.replace(path, before)
        os.replace(temporary, path)
    except OSError as error:
        raise GraphcapsError(f"{path}: expected to be able to write it, got: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


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
