"""NumPy archives of graphs: the arrays in them, or a sentence about what is wrong."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphcaps.errors import InputError, expect


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays ``names`` of an archive.

    Raises:
        InputError: no such file, not an archive, or one without these arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            expect(set(names) <= set(archive), str(path), f"arrays {', '.join(names)}", ", ".join(archive) or "none")
            return {name: archive[name] for name in names}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected a NumPy archive without objects, got: {error}") from error


def read_shaped(path: Path, **axes: str) -> dict[str, np.ndarray]:
    """The arrays named, each of the axes named: ``edges="2 M", kinds="M R"``. A name is one size everywhere.

    Raises:
        InputError: as ``read_arrays``, or shapes that don't fit.
    """
    arrays, sizes = read_arrays(path, [*axes]), {"2": 2, "3": 3}
    for name, wanted in axes.items():
        names, shape = wanted.split(), arrays[name].shape
        pairs = zip(names, shape, strict=False)
        fits = len(names) == len(shape) and all(sizes.setdefault(*each) == each[1] for each in pairs)
        known = {each: size for each, size in sizes.items() if not each.isdigit()}
        expect(fits, f"{path}: {name}", f"({', '.join(names)}) with {known}", shape)
    return arrays


def check_numbers(path: Path, name: str, numbers: np.ndarray, end: int) -> np.ndarray:
    """As int64, where they are whole numbers from 0 to below ``end``.

    Raises:
        InputError: others, or none.
    """
    whole = numbers.size > 0 and numbers.dtype.kind in "iu"
    got = f"{numbers.min()} to {numbers.max()}, {numbers.dtype}" if numbers.size else "none"
    inside = whole and numbers.min() >= 0 and numbers.max() < end
    expect(inside, f"{path}: {name}", f"integers from 0 to {end - 1}", got)
    return numbers.astype(np.int64)
