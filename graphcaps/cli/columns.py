"""Rows of text as aligned columns."""

from collections.abc import Sequence


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
