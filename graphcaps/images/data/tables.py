"""Tables in text files: of pixels and labels, or of image files and labels.

Cells are separated by commas, tabs or semicolons, in UTF-8, UTF-16 or Windows' cp1252, plain or gzipped, whatever the
file is called. Blank lines, and lines above the first row that start with #, are left out. Errors name file and row.
"""

from __future__ import annotations

import csv
import io
import itertools
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, check_name, expect, reading
from ...files import MOST_COLUMNS, MOST_TEXT, contents
from ...graph.labels import NO_CLASS

if TYPE_CHECKING:
    import pandas

HEADERS = {
    "file": ("file", "filename", "file_name", "filepath", "path", "image", "img"),
    "label": ("label", "labels", "class", "classes", "target", "category"),
    "split": ("split", "part", "subset", "set"),
}
"""The names of the columns of a table, in lower case."""
NUMBERS_OF_IMAGES = ("", "id", "index", "image_id", "img_id", "image_name", "id_code")
"""Names of columns that number or name the images."""
NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)(e[-+]?\d+)?", re.IGNORECASE)

log = logging.getLogger(__name__)


@dataclass
class Table:
    """The rows of a file, without blank lines and comments."""

    path: Path
    lines: list[str]
    numbers: list[int]  # the number of each line in the file, from 1
    separator: str
    header: bool = True  # whether the first line names the columns

    @classmethod
    def open(cls, path: Path) -> Table:
        with reading(path, "rows of a label and pixels, or of a file and its label"):
            data, encoding = contents(path), "utf-8-sig"
            if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:100]:
                encoding = "utf-16-be" if data[:1] == b"\0" else "utf-16"
            try:
                text = data.decode(encoding)
            except UnicodeDecodeError:
                log.warning("%s: read as cp1252, because it isn't UTF-8", path)
                text = data.decode("cp1252")
            lines = text.splitlines()
            if any(len(line) > MOST_TEXT for line in lines):
                raise ValueError(f"a line of {MOST_TEXT:,} characters or more")
        filled = [(n, line) for n, line in enumerate(lines, start=1) if line.strip(",;\t ")]
        numbered = [*itertools.dropwhile(lambda row: row[1].startswith("#"), filled)]
        if comments := len(filled) - len(numbered):
            log.info("%s: left out %d lines at the top that start with #", path, comments)
        expect(len(numbered) > 0, str(path), "a row for each image", "none")
        first = numbered[0][1]
        few = first.count(";") < max(1, first.count(",") - 1)  # a cell may have a decimal comma
        separator = "\t" if "\t" in first else "," if few else ";"
        columns = first.count(separator) + 1
        expect(columns <= MOST_COLUMNS, str(path), f"at most {MOST_COLUMNS:,} columns", columns)
        table = cls(path, [line for _, line in numbered], [n for n, _ in numbered], separator)
        width = len(table.cells(0))
        for number, line in numbered:
            cells = len(table.split(line)) if '"' in line else line.count(separator) + 1
            expect(cells == width, f"{path}, row {number}", f"{width} cells, as in row {numbered[0][0]}", cells)
        return table

    def split(self, line: str) -> list[str]:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=self.separator, skipinitialspace=True))]

    def cells(self, row: int) -> list[str]:
        return self.split(self.lines[row])

    @property
    def names(self) -> list[str]:
        """The names of the columns in lower case; without a header, these are column 1, column 2 and so on."""
        cells = self.cells(0)
        return [cell.lower() for cell in cells] if self.header else [f"column {k + 1}" for k in range(len(cells))]

    def named(self, kind: str) -> int | None:
        """The first column whose name is one of ``HEADERS[kind]``."""
        return next((k for k, name in enumerate(self.names) if name.replace(" ", "_") in HEADERS[kind]), None)

    def chosen(self, label_column: str) -> int:
        """The place of the column that the user named: as in the header, or "first" or "last"."""
        names = self.names
        places = {"first": 0, "last": len(names) - 1} | {name: k for k, name in enumerate(names)}
        check_name("label_column", label_column.lower(), [*places])
        return places[label_column.lower()]

    def values(self, text: Sequence[int]) -> pandas.DataFrame:
        """All rows below the header: text in the columns ``text``, numbers in the others."""
        import pandas

        options: dict[str, Any] = {"dtype": dict.fromkeys(text, str), "sep": self.separator}
        options |= {"decimal": "," if self.separator != "," else ".", "skipinitialspace": True}
        file = io.StringIO("\n".join(self.lines[self.header :]) + "\n")
        expect(len(self.lines) > self.header, str(self.path), "a row for each image", "none")
        with reading(self.path, "rows of cells"):
            frame = pandas.read_csv(file, header=None, keep_default_na=False, low_memory=False, **options)
        for column, dtype in enumerate(frame.dtypes):
            if column in text:
                frame[column] = frame[column].str.strip()
            elif dtype.kind not in "iuf":
                cells = frame[column].astype(str).str.strip()
                frame[column] = pandas.to_numeric(cells.str.replace(",", "."), errors="coerce")
                self.check(frame[column].notna(), column, "a number")
        return frame

    def warn_of_unknown(self, labels: pandas.Series) -> None:
        """Say which classes have names that may mean that the label is unknown."""
        if doubtful := sorted({label for label in labels if label.lower() in NO_CLASS}):
            advice = "Leave out these rows if it means unknown"
            log.warning("%s: read as a class: %s. %s", self.path, ", ".join(doubtful), advice)

    def check(self, fits: pandas.Series, column: int, wanted: str, got: str = "", advice: str = "") -> None:
        """Raise ``InputError`` about the first row below the header that doesn't fit. By default, it shows the cell."""
        if not fits.all():
            row, first = int(fits.argmin()) + self.header, self.cells(0)[column]
            name = f" ({first})" * (self.header and not NUMBER.fullmatch(first))
            where = f"{self.path}, row {self.numbers[row]}, column {column + 1}{name}"
            expect(False, where, wanted, got or repr(self.cells(row)[column])[:40], advice)


def label_of_pixels(table: Table, label_column: str) -> int | None:
    """Find the column of labels in a table of pixels, None if it has none, and set whether the table has a header."""
    names = table.names
    label = table.chosen(label_column) if label_column else table.named("label")
    others = [name for k, name in enumerate(names) if k != label]
    counts = [[str(k + start) for k in range(len(others))] for start in (0, 1)]
    table.header = (label is not None and others in counts) or not any(map(NUMBER.fullmatch, others))
    if label is not None:
        certain = table.header or label_column.lower() in ("first", "last")
        expect(certain, "label_column", "first or last, as the table has no header", label_column)
        return label
    if table.header:
        kinds = [re.sub(r"\d+", "", name) for name in names]
        usual = Counter(kinds).most_common(1)[0][0]
        unusual = [k for k, kind in enumerate(kinds) if kind != usual and names[k] not in NUMBERS_OF_IMAGES]
        if len(unusual) < 2:
            return unusual[0] if unusual else None
    rows = [table.split(line) for line in table.lines[table.header :]]
    ends = {name: sorted({cells[place] for cells in rows})[:8] for name, place in (("first", 0), ("last", -1))}
    shown = "; ".join(f"the {name} has {', '.join(cells)}" for name, cells in ends.items())
    wanted, advice = "a name for the column of labels", "Pass --label-column first or last"
    raise InputError(f"{table.path}: expected {wanted}, got {shown}. {advice}")
