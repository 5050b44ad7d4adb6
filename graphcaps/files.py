"""Files are written whole or not at all, and read only if they can't fill the memory."""

import contextlib
import functools
import gzip
import os
import platform
import re
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from .errors import GraphcapsError, expect
from .names import clean

UNFINISHED = ".unfinished-"  # prefix of files and folders until they are complete
MACHINE = f"{UNFINISHED}{zlib.crc32(platform.node().encode()):x}-"  # the same for those of this machine
MOST_NAME = 255  # bytes in the name of a file
STORED = re.compile("[0-9a-f]{16}")  # in a name in a store of git-annex or DVC, which call files by their contents
MOST_BYTES = 2**30  # a file may unpack to this many bytes, or to 100 times its size; deflate reaches 1,000 times
MOST_TEXT = 2**26  # the most bytes of a JSON file, or of a line of a CSV
MOST_COLUMNS = 2**22  # the most columns of a CSV; an image of 1024 x 1024 in RGB needs fewer
GZIP = b"\x1f\x8b"  # the first bytes of what gzip has packed
MADE_HERE = ".graphcaps"  # an empty file in folders that graphcaps made, so that it never reads them as a user's images


def unfinished() -> str:
    """Return a new name for a file or folder that isn't complete yet. It contains the number of this process."""
    return f"{MACHINE}{os.getpid()}-{secrets.token_hex(4)}"


@functools.cache
def remove_leftovers(folder: Path) -> None:
    """Remove files and folders that killed processes of this machine left incomplete, once in each process."""
    for path in folder.glob(f"{MACHINE}*"):
        try:
            os.kill(int(path.name.removeprefix(MACHINE).partition("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        except (PermissionError, ValueError, OverflowError):  # another user's process, or another kind of file
            continue


def file_name(stem: str, ending: str) -> str:
    """Return the name of a file in one folder. The stem is cut, and its slashes and control characters are replaced.

    >>> file_name("layers/0\\n", ".png"), len(file_name("a" * 300, ".png"))
    ('layers-0\\\\n.png', 255)
    """
    stem = clean(stem).replace(os.sep, "-")
    return os.fsencode(stem)[: MOST_NAME - len(os.fsencode(ending))].decode(errors="ignore") + ending


def check_symlinks(folder: Path) -> None:
    """Raise ``GraphcapsError`` if a link in a folder leads out of it, unless it leads to a file in a store.

    The folder may come from a stranger, and a command that writes into it would write through the link.
    """
    root = os.path.realpath(folder)
    for top, folders, files in os.walk(folder):
        for path in (Path(top, name) for name in (*folders, *files) if os.path.islink(os.path.join(top, name))):
            target = Path(os.path.realpath(path))
            if not (target.is_relative_to(root) or is_stored(path)):
                advice = "If you trust it, replace it by what it leads to"
                raise GraphcapsError(f"{path}: expected no link out of its folder, got one to {target}. {advice}")


def is_stored(link: Path) -> bool:
    """Whether a path is a link to a file in a store of git-annex or DVC."""
    target = Path(os.path.realpath(link))
    return link.is_symlink() and STORED.search(target.name) is not None and not target.is_dir()


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
    # A link stays, and the file that it names is replaced. But a file in a store never changes.
    path = Path(named).absolute() if is_stored(Path(named)) else Path(os.path.realpath(named))
    suffix = Path(named).suffix  # libraries choose a format by it
    temporary = path.with_name(unfinished() + suffix * (len(suffix) < 16))
    try:
        if path.exists() and not path.is_file():
            raise OSError("a folder, a pipe or a device")
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".npz" and not any((folder / MADE_HERE).exists() for folder in path.parents):
                (path.parent / MADE_HERE).touch()
        remove_leftovers(path.parent)
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


def check_file(path: str | os.PathLike) -> Path:
    """Return the path. Raise ``ValueError`` for a pipe or a device, which may never end, and for sizes of an attack."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError("a folder, a pipe or a device")
    size = path.stat().st_size
    if size < 1000 and path.read_bytes().startswith(b"version https://git-lfs"):
        raise ValueError("a pointer of Git LFS, without its file. Run: git lfs pull")
    if zipfile.is_zipfile(path):  # zipfile looks at the content, not at the name
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as packed:  # an image may end like one
            check_unpacked(sum(part.file_size for part in packed.infolist()), size)
    if path.suffix == ".json" and size > MOST_TEXT:
        raise ValueError(f"{size:,} bytes, beyond the limit of {MOST_TEXT:,}")
    return path


def contents(path: Path) -> bytes:
    """Read a file, and unpack it if its content is gzipped. Raise ``ValueError`` as ``check_file`` does."""
    data = check_file(path).read_bytes()
    if not data.startswith(GZIP):
        return data
    with gzip.open(path) as file:
        unpacked = file.read(max(MOST_BYTES, 100 * len(data)) + 1)
    check_unpacked(len(unpacked), len(data))
    return unpacked


def check_unpacked(unpacked: int, size: int) -> None:
    """Raise ``ValueError`` if a compressed file of ``size`` bytes is meant to fill the memory."""
    limit = max(MOST_BYTES, 100 * size)
    if unpacked > limit:
        raise ValueError(f"{size:,} bytes that unpack to {unpacked:,} or more, beyond the limit of {limit:,}")
