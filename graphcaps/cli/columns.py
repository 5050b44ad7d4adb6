"""Lines for the terminal, and rows of text as aligned columns."""

from collections.abc import Sequence
from typing import TextIO

from ..names import escaped


def show(*lines: object, file: TextIO | None = None) -> None:
    """Print lines. Control characters in them, which could change the terminal, are escaped."""
    print(*(escaped(str(line)) for line in lines), sep="\n", file=file)


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Format each row as a line. The first row is the header. Columns are right-aligned, except those in ``left``.

    >>> aligned([("class", "images"), ("a", "12")])
    ['class  images', 'a          12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
