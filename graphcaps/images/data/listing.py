"""The files of your own images: which are read, and what their folders mean.

Each image belongs to the class that its folder is called; the folders of classes may be in folders for training,
validation and testing. The layout is decided from the whole tree. Where it can be read in two ways, it is refused.
"""

from __future__ import annotations

import io
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...atomic import MADE_HERE, MOST_COLUMNS, MOST_TEXT, checked, contents, reading
from ...errors import expect
from ...names import clean
from .user_images import decodable

if TYPE_CHECKING:
    import pandas

PART_OF = {"train": "train", "training": "train", "test": "test", "testing": "test"}
PART_OF |= dict.fromkeys(("val", "valid", "validation", "dev"), "val")
"""The part whose images are in a folder or file of this name, in lower case."""
JUNK = ("__MACOSX", "@eaDir", "$RECYCLE.BIN")  # folders in which other programs store thumbnails and leftovers
UNREADABLE = [".heic", ".heif", ".jxl", ".svg", ".dng", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".pdf"]
"""Endings of pictures that Pillow can't read. They count as bad images, so that none is missing without a word."""
MAX_NAMES = 8  # names that a message lists

HEADERS = {
    "file": ("file", "filename", "file_name", "filepath", "path", "image", "img"),
    "label": ("label", "labels", "class", "classes", "target", "category"),
    "split": ("split", "part", "subset", "set"),
}
"""The names of the columns in a CSV of files, in lower case."""

Omitted = dict[str, list[str]]  # why something isn't read -> its names

log = logging.getLogger(__name__)


def list_folder(path: Path) -> pandas.DataFrame:
    """List the images in each class's folder. Log in one line what was taken for what, and what wasn't.

    The table has the columns file, label and split.

    Raises:
        InputError: ``path`` isn't a folder, has no folder of a class, or can be read in two ways.
    """
    expect(path.is_dir(), str(path), "a folder", "a file")
    import pandas

    files, omitted = find_images(path)
    folders, part = [file.parts[len(path.parts) : -1] for file in files], None
    while part is None and len(tops := {names[0] for names in folders if names}) == 1 and max(map(len, folders)) > 1:
        part = PART_OF.get((top := tops.pop()).lower())
        wanted, advice = "images for training", "Put the folders of their classes into a folder train"
        expect(part in (None, "train"), str(path), wanted, f"only {top}", advice)
        folders = [names[1:] for names in folders]  # all were in the folder of an archive
    inner = dict[str, set[str]]()  # the folders at the top, and the folders with images in each
    for top, *below in filter(None, folders):
        inner.setdefault(top, set()).update(below[:1])
    expect(len(inner) > 0, str(path), "a folder per class, with its images", f"no folder of images{_in_words(omitted)}")
    parts = {} if part else _parts(str(path), inner)
    shared = [name for name, count in Counter(name for names in inner.values() for name in names).items() if count > 1]
    fits = parts or len(inner) == 1 or (len(shared) < 2 and not any(name.lower() in PART_OF for name in shared))
    got, advice = f"{short(inner)}, which hold {short(sorted(shared))}", "Or list the files in a CSV: csv:PATH"
    expect(bool(fits), str(path), "a folder per class, or train, val and test", got, advice)
    rows, counts = [], defaultdict[str, Counter](Counter)
    for file, folder in zip(files, folders, strict=True):
        top = folder[0] if parts and folder else ""
        part = parts.get(top) if parts else "train"
        depth = (len(parts) > 0) + (inner.get(top) == {top})  # in train/train, the second is meant
        label = clean("".join(folder[depth : depth + 1]))
        if part and label:
            rows.append((file, label, part))
            counts[f"{top} is {part}: " if top else ""][label] += 1
        else:
            omitted["images outside these folders"].append(str(file.relative_to(path)))
    shown = (where + short(f"{label} {n}" for label, n in of_part.items()) for where, of_part in counts.items())
    log.info("%s", clean(f"{path}: {'; '.join(shown)}{_in_words(omitted)}"))
    return pandas.DataFrame(rows, columns=[*HEADERS])


def list_csv(path: Path) -> pandas.DataFrame | None:
    """List the images of a CSV with columns of files, which are beside it, labels and perhaps parts.

    The columns are called as in ``HEADERS``; without a header, they are files and labels. Returns None if the first row
    names neither a file nor a column of files: it is a CSV of pixels.
    """
    import pandas

    if path.is_dir():
        return None
    first = [cell.strip() for cell in read_csv(path, nrows=1).iloc[0]]
    names = [cell.lower() for cell in first]
    at = {kind: next((k for k, name in enumerate(names) if name in titles), None) for kind, titles in HEADERS.items()}
    has_header = not any(cell and (path.parent / cell).is_file() for cell in first)
    if has_header and at["file"] is None:
        return None
    if len(names) == 2 and (not has_header or at["label"] is None):
        file = at["file"] or 0 if has_header else int((path.parent / first[1]).is_file())
        at |= {"file": file, "label": 1 - file}
    wanted = f"a column of labels, called {' or '.join(HEADERS['label'])}"
    expect(None not in (at["file"], at["label"]), str(path), wanted, ", ".join(first))
    table = read_csv(path, skiprows=int(has_header))
    expect(len(table) > 0, str(path), "a row for each image", "none")
    listed = pandas.DataFrame({kind: "train" if k is None else table[k].str.strip() for kind, k in at.items()})
    parts = listed["split"].str.lower()
    wrong = sorted({*parts} - {*PART_OF})
    expect(not wrong, str(path), f"{', '.join(PART_OF)} in column {at['split']}", short(wrong))
    files = [path.parent / file for file in listed["file"]]
    return listed.assign(file=files, label=listed["label"].map(clean), split=parts.map(PART_OF))


def read_csv(path: Path, **options: Any) -> pandas.DataFrame:
    """Read a CSV without a header in which every cell is text: "NA" is a name, and blank is blank."""
    import pandas

    settings = {"header": None, "dtype": str, "keep_default_na": False, "encoding": "utf-8-sig", **options}
    with (
        reading(path, "rows of a label and pixels, or of a file and its label"),
        io.BytesIO(contents(path)) if path.suffix == ".gz" else checked(path).open("rb") as file,
    ):
        line = file.readline(MOST_TEXT)
        if len(line) == MOST_TEXT or line.count(b",") > MOST_COLUMNS:
            raise ValueError(f"a line beyond the limits of {MOST_TEXT:,} bytes and {MOST_COLUMNS:,} columns")
        file.seek(0)
        return pandas.read_csv(file, **settings)


def _parts(path: str, inner: dict[str, set[str]]) -> dict[str, str]:
    """The part of each folder for training, validation or testing; empty if the folders are classes.

    ``inner`` contains the folders at the top, and the names of the folders with images in each.
    """
    named = {name: PART_OF[name.lower()] for name in inner if name.lower() in PART_OF}
    others = [name for name in inner if name not in named]
    parts = {name: part for name, part in named.items() if inner[name]}
    if not parts and set(named.values()) <= {"train"}:
        return {}  # train is a class: images for training would be in folders of their classes
    got = f"{short(named)} beside {short(others)}" if others else short(named)
    advice = "Put the folders of all classes into a folder train, even if one is called test"
    certain = "train" in parts.values() and (len(named) > 1 or not others)
    expect(certain, path, "either folders of classes, or train, val and test that contain such folders", got, advice)
    unique = len(set(parts.values())) == len(parts)
    expect(unique, path, "one folder each for training, validation and testing", short(parts), "Rename one")
    classes = set().union(*(inner[name] for name in parts))
    more = [name for name in others if name in classes or inner[name] & classes]
    advice = "Call it train, val or test, or move it away"
    expect(not more, path, f"images only in {short(parts)}", f"the same classes in {short(more)}", advice)
    return parts


def image_files(path: Path) -> list[Path]:
    """List the images in a folder and its subfolders, except hidden files. If ``path`` is a file, return only it."""
    if not path.is_dir():
        return [path]
    is_run = (path / MADE_HERE).exists()
    expect(not is_run, str(path), "images", "a run of graphcaps", "A run comes first: graphcaps predict RUN IMAGE")
    files, omitted = find_images(path)
    advice = "Their names must end in .png, .jpg, or another ending that Pillow knows"
    expect(len(files) > 0, str(path), "a folder with images", f"none{_in_words(omitted)}", advice)
    return files


def find_images(path: Path) -> tuple[list[Path], Omitted]:
    """List the images in a folder and its subfolders, and what is left out: hidden files, other formats, and so on."""
    images, omitted = list[Path](), defaultdict[str, list[str]](list)
    unopened = omitted["that can't be opened"]
    for top, folders, files in os.walk(path, followlinks=True, onerror=lambda error: unopened.append(error.filename)):
        if not folders and not files:
            omitted["empty"].append(os.path.relpath(top, path))
        for name in sorted(folders):
            folder = Path(top, name)
            is_hidden = name.startswith(".") or name in JUNK
            reason = "hidden" if is_hidden else "made by graphcaps" * os.path.exists(folder / MADE_HERE)
            if not reason and folder.is_symlink() and any(folder.samefile(above) for above in folder.parents):
                reason = "linked in a circle"
            if reason:
                folders.remove(name)
                omitted[reason].append(str(folder.relative_to(path)))
        for name in files:
            ending = os.path.splitext(name)[1].lower()
            if not name.startswith(".") and (ending in decodable() or ending in UNREADABLE):
                images.append(Path(top, name))
            else:
                reason = "hidden" if name.startswith(".") else "of other formats"
                omitted[reason].append(os.path.relpath(os.path.join(top, name), path))
    return sorted(images), omitted


def short(names: Iterable[str]) -> str:
    """Names for a message, at most ``MAX_NAMES``."""
    names = [clean(name) for name in names]
    return ", ".join(names[:MAX_NAMES]) + f" and {len(names) - MAX_NAMES} more" * (len(names) > MAX_NAMES)


def _in_words(omitted: Omitted) -> str:
    text = ", ".join(f"{len(names)} {reason} ({short(names)})" for reason, names in omitted.items() if names)
    return f". Left out: {text}" if text else ""
