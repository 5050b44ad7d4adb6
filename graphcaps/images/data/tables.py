"""Tables in text files: of pixels and labels, or of image files and labels.

Cells are separated by commas, tabs or semicolons, in UTF-8, UTF-16 or Windows' cp1252, plain or gzipped, whatever the
file is called. Blank lines and lines that start with # are left out. An error names the file, its row and the column.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...atomic import MOST_COLUMNS, MOST_TEXT, contents, reading
from ...errors import did_you_mean, expect

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


@dataclass(frozen=True)
class Table:
    """The rows of a file, without blank lines and comments."""

    path: Path
    lines: list[str]
    numbers: list[int]  # the number of each line in the file, from 1
    separator: str

    @classmethod
    def open(cls, path: Path) -> Table:
        with reading(path, "rows of a label and pixels, or of a file and its label"):
            data = contents(path)
            first = data[:100]
            encoding = "utf-16" if first[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            if encoding == "utf-8-sig" and b"\0" in first:
                encoding = "utf-16-le" if first[1:2] == b"\0" else "utf-16-be"
            try:
                text = data.decode(encoding)
            except UnicodeDecodeError:
                log.warning("%s: read as cp1252, because it isn't UTF-8", path)
                text = data.decode("cp1252")
            lines = text.splitlines()
            if any(len(line) > MOST_TEXT for line in lines):
                raise ValueError(f"a line of {MOST_TEXT:,} characters or more")
        numbered = [(n, line) for n, line in enumerate(lines, start=1) if line.strip(",;\t ") and line[0] != "#"]
        expect(len(numbered) > 0, str(path), "a row for each image", "none")
        head = numbered[0][1]
        few = head.count(";") < max(1, head.count(",") - 1)  # a cell may have a decimal comma
        separator = "\t" if "\t" in head else "," if few else ";"
        columns = head.count(separator) + 1
        expect(columns <= MOST_COLUMNS, str(path), f"at most {MOST_COLUMNS:,} columns", columns)
        table = cls(path, [line for _, line in numbered], [n for n, _ in numbered], separator)
        width = len(table.cells(0))
        for number, line in numbered:
            cells = len(table.split(line)) if '"' in line else line.count(separator) + 1
            expect(cells == width, f"{path}, row {number}", f"{width} cells, as in row {numbered[0][0]}", cells)
        return table

    def split(self, line: str) -> list[str]:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=self.separator))]

    def cells(self, row: int) -> list[str]:
        return self.split(self.lines[row])

    def values(self, header: bool, text: list[int] | None = None) -> pandas.DataFrame:
        """All rows below the header. Without ``text``, cells are text; else numbers, except in the columns ``text``."""
        import pandas

        options: dict[str, Any] = {"dtype": str if text is None else dict.fromkeys(text, str)}
        options |= {"sep": self.separator, "decimal": "," if self.separator != "," else "."}
        file = io.StringIO("\n".join(self.lines[header:]) + "\n")
        expect(len(self.lines) > header, str(self.path), "a row for each image", "none")
        with reading(self.path, "rows of cells"):
            frame = pandas.read_csv(file, header=None, keep_default_na=False, low_memory=False, **options)
        if text is not None:
            for column in (k for k, dtype in enumerate(frame.dtypes) if k not in text and dtype.kind not in "iuf"):
                cells = frame[column].astype(str).str.strip()
                parsed = pandas.to_numeric(cells.str.replace(",", "."), errors="coerce")
                if parsed.isna().any():
                    row = int(parsed.isna().to_numpy().argmax())
                    self.refuse(row + header, column, "a number", repr(cells[row]))
                frame[column] = parsed
        return frame

    def refuse(self, row: int, column: int, wanted: str, got: str, advice: str = "") -> None:
        """Raise ``InputError`` about a cell; rows and columns count from 0 here, and from 1 in the message."""
        name = self.cells(0)[column] if not NUMBER.fullmatch(self.cells(0)[column]) else ""
        where = f"{self.path}, row {self.numbers[row]}, column {column + 1}" + f" ({name})" * (bool(name) and row > 0)
        expect(False, where, wanted, got, advice)

    def column(self, name: str, setting: str) -> int:
        """The place of a column that the user named: as in the header, or "first" or "last"."""
        head = [cell.lower() for cell in self.cells(0)]
        places = {"first": 0, "last": len(head) - 1} | {cell: k for k, cell in enumerate(head)}
        near = did_you_mean(name, head)
        wanted = f"first, last, or a column of {self.path}: {', '.join(head[:8])}{' ...' * (len(head) > 8)}"
        expect(name.lower() in places, setting, wanted, name, near)
        return places[name.lower()]


def named(head: list[str], kind: str) -> int | None:
    """The first column whose name, in lower case, is one of ``HEADERS[kind]``."""
    return next((k for k, cell in enumerate(head) if cell in HEADERS[kind]), None)


def label_of_pixels(table: Table, label_column: str) -> tuple[int | None, bool]:
    """The column of labels in a table of pixels, None if it has none, and whether the table has a header."""
    head = [cell.lower() for cell in table.cells(0)]
    label = table.column(label_column, "label_column") if label_column else named(head, "label")
    others = [cell for k, cell in enumerate(head) if k != label]
    starts = [[str(k + start) for k in range(len(others))] for start in (0, 1)]
    numbers = [NUMBER.fullmatch(cell) is not None for cell in others]
    header = (label is not None and others in starts) or not any(numbers)
    if label is not None:
        return label, header
    if header:
        kinds = [re.sub(r"\d+", "", cell) for cell in head]
        usual = Counter(kinds).most_common(1)[0][0]
        unusual = [k for k, kind in enumerate(kinds) if kind != usual and head[k] not in NUMBERS_OF_IMAGES]
        if len(unusual) == 1 or not unusual:
            return (unusual[0] if unusual else None), True
    rows = [table.cells(row) for row in range(int(header), len(table.lines))]
    ends = {name: [row[k] for row in rows] for name, k in (("first", 0), ("last", -1))}
    texts = [name for name, cells in ends.items() if not all(map(NUMBER.fullmatch, cells))]
    whole = [
        name for name, cells in ends.items() if len({*cells}) > 1 and all(re.fullmatch(r"-?\d+", c) for c in cells)
    ]
    likely = texts or whole
    if len(likely) != 1:
        shown = "; ".join(f"the {name} has {', '.join(sorted({*cells})[:8])}" for name, cells in ends.items())
        fix = "Name it: --label-column first or last"
        expect(False, str(table.path), "one column that may contain labels", f"two readings: {shown}", fix)
    return (0 if likely == ["first"] else len(head) - 1), header
