"""The files of your own images: which are read, and what their folders mean.

Each image belongs to the class that its folder is called; the folders of classes may be in folders for training,
validation and testing. The layout is decided from the whole tree. Where it can be read in two ways, it is refused.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import expect
from ...files import MADE_HERE
from ...names import clean
from .tables import HEADERS, NUMBERS_OF_IMAGES, Table
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

Omitted = dict[str, list[str]]  # why something isn't read -> its names

log = logging.getLogger(__name__)


def list_folder(path: Path) -> pandas.DataFrame:
    """List the images in each class's folder: file, label and split. Log in one line what was taken for what."""
    import pandas

    expect(path.is_dir(), str(path), "a folder", "a file")
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
    got = f"no folder of images, but {len(files)} images{_in_words(omitted)}"
    expect(len(inner) > 0, str(path), "a folder per class, with its images", got)
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


def list_csv(path: Path, label_column: str = "", group_by: str = "") -> pandas.DataFrame | None:
    """List the images of a table with columns of files, which are beside it, labels and perhaps parts.

    Columns are called as in ``HEADERS``. The classes may also be columns of 0 and 1. Without a header, the columns are
    files and labels. Files may be named without their folders and endings. Returns None if no column names files: it is
    a table of pixels.
    """
    import pandas

    table, top = Table.open(path), path.parent
    places = [k for k, cell in enumerate(table.cells(0)) if _at(top, cell)]
    table.header = not places
    names = table.names
    file, label, part = (table.named(kind) for kind in HEADERS)
    if places:
        file = places[0]
    elif file is None and len(table.lines) > 1 and not any("pixel" in name for name in names):
        ids = [k for k, name in enumerate(names) if name in NUMBERS_OF_IMAGES]
        images = _find(top, [table.cells(1)[k] for k in ids])
        file = next((k for k, image in zip(ids, images, strict=True) if image), None)
        wanted, got = "names of images, or pixels", f"{table.cells(1)}, where no image, or several, are called so"
        fits = file is not None or len(names) > len(ids) + 1
        expect(fits, str(path), wanted, got, "Write their paths, relative to the table, into a column file")
    if file is None:
        return None
    if label_column:
        label = table.chosen(label_column)
    frame = table.values(range(len(names)))
    others = [k for k, name in enumerate(names) if k not in (file, part) and name not in ("", group_by.lower())]
    if label is None and len(others) == 1:
        label = others[0]
    if label is not None:
        labels = frame[label]
    else:
        wanted = f"a column of labels, called {' or '.join(HEADERS['label'])}, or a column of 0 and 1 for each class"
        ones = frame[others] == "1"
        fits = table.header and len(others) > 1 and bool((ones | (frame[others] == "0")).all(axis=None))
        expect(fits, str(path), wanted, ", ".join(table.cells(0)), "Name it with --label-column")
        counts, advice = ones.sum(axis=1), "Save images of several classes as arrays: npz:PATH"
        got = f"{counts[(counts == 1).idxmin()]} of them"
        table.check(counts == 1, others[0], "a 1 for one class", got, advice)
        labels = ones.set_axis([table.cells(0)[k] for k in others], axis=1).idxmax(axis=1)
    table.check(~labels.isin(["", "-1", "-1.0"]), label or 0, "a label for each image")
    table.warn_of_unknown(labels)
    advice = "Save images of several classes as arrays: npz:PATH. If it is one class, rename it"
    table.check(~labels.str.contains("|", regex=False), label or 0, "one class for each image", "", advice)
    parts = pandas.Series("train", frame.index) if part is None else frame[part].str.lower()
    table.check(parts.isin(list(PART_OF)), part or 0, ", ".join(PART_OF))
    files = [image or top / name for image, name in zip(_find(top, [*frame[file]]), frame[file], strict=True)]
    listed = pandas.DataFrame({"file": files, "label": labels.map(clean), "split": parts.map(PART_OF)})
    if group_by and group_by.lower() in names:
        listed["group"] = frame[names.index(group_by.lower())]
    several = listed.groupby("file")["label"].transform("nunique") > 1
    if several.any():
        rows = listed[listed["file"] == listed["file"][several].iloc[0]]
        classes = [f"{of_row} (row {table.numbers[k + table.header]})" for k, of_row in rows["label"].items()]
        got = f"{rows['file'].iloc[0]} in {', '.join(classes)}"
        table.check(listed.index.to_series() != rows.index[-1], file, "each image in one class", got)
    return listed.drop_duplicates("file").reset_index(drop=True)


def _at(folder: Path, name: str) -> Path | None:
    """The file of this path, perhaps one of Windows, in the folder; None if there is none."""
    places = (folder / text for text in (name, name.replace("\\", "/")) if text and os.path.isfile(folder / text))
    return next(places, None)


def _find(folder: Path, names: list[str]) -> list[Path | None]:
    """Find images by their paths in the folder, or by names, with or without an ending, that only one of them has."""
    found = [_at(folder, name) for name in names]
    if None in found:
        places = defaultdict[str, list[Path]](list)
        for file in find_images(folder)[0]:
            for name in {file.name, file.stem}:
                places[name].append(file)
        unique = {name: files[0] for name, files in places.items() if len(files) == 1}
        found = [file or unique.get(name) for file, name in zip(found, names, strict=True)]
    return found


def _parts(path: str, inner: dict[str, set[str]]) -> dict[str, str]:
    """The part of each folder for training, validation or testing; empty if the folders are classes."""
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
