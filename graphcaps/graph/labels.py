"""Reading of class labels in any of their forms. Unknown are -1, NaN, None and masked values."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from ..errors import expect, min_max, reading

NO_CLASS = ("", "-1", "?", "na", "n/a", "nan", "none", "null", "<na>", "unknown")
"""Texts, in lower case, that may be names of classes or mean that there is none."""


class Labels(NamedTuple):
    """Labels of N nodes in K columns."""

    classes: torch.Tensor
    """(N, K) int64 from 0, or -1 if unknown. Each column's texts are numbered in sorted order."""
    names: list[list[str]]
    """The names of each column's classes; none if they are numbers."""


def read_labels(name: str, values: Any, count: int) -> Labels:
    """Read labels (N,) or (N, K): numbers or texts in a tensor, an array, a masked array or lists.

    Raises:
        InputError: the shape doesn't fit, classes aren't whole numbers from 0, their type can't hold -1, or the columns
            look like one column of classes in one-hot form.
    """
    device = values.device if isinstance(values, torch.Tensor) else None
    with reading(name, f"labels (N={count}, K)"):
        if isinstance(values, torch.Tensor):
            values = values.detach().cpu()
            values = (values.double() if values.is_floating_point() else values).numpy()
        values = values.to_numpy() if hasattr(values, "to_numpy") else values
        table = np.ma.asarray(values if isinstance(values, np.ndarray) else _rows(values))
    expect(table.shape[:1] == (count,) and table.ndim < 3, name, f"labels (N={count}, K)", table.shape)
    table = table[:, None] if table.ndim == 1 else table
    plain = f"Pass {name} as int64, with -1 where a label is unknown"
    expect(table.dtype.kind in "bifOU", name, "a type that can hold -1", table.dtype, plain)
    names: list[list[str]] = [[] for _ in range(table.shape[1])]
    if table.dtype.kind in "OU":
        cells = np.ma.filled(table.astype(object), None)
        unknown = np.array([[is_unknown(label) for label in row] for row in cells], dtype=bool).reshape(cells.shape)
        for k, (column, known) in enumerate(zip(cells.T, ~unknown.T, strict=True)):
            kinds = {isinstance(label, str) for label in column[known]}
            expect(len(kinds) < 2, name, "either texts or numbers in a column", "both")
            if kinds == {True}:
                sorted_names, column[known] = np.unique(column[known].astype(str), return_inverse=True)
                names[k] = sorted_names.tolist()
        doubts = (text for texts in names for text in texts if text.lower() in NO_CLASS or text != text.strip())
        doubt = next(doubts, None)
        advice = "If it means unknown, pass None there; if it is a class, rename it, without blanks at its ends"
        expect(doubt is None, name, "texts that are classes", repr(doubt), advice)
        cells[unknown] = -1
        with reading(name, "classes as whole numbers or texts"):
            table = np.ma.asarray(cells.astype(float))
    classes = whole_numbers(name, torch.from_numpy(np.ma.filled(table.astype(float), -1)))
    least = int(classes.min()) if classes.numel() else 0
    expect(least >= -1, name, "classes from 0, or -1 if unknown", least)
    ones = bool(((classes == 0) | (classes == 1)).all() and (classes.sum(1) <= 1).all())
    one_hot = ones and classes.shape[1] > 1 and not any(names)
    fix = f"pass {name}.argmax(1), with -1 where unknown; if each is yes or no, {name} as bool"
    fits = table.dtype == bool or not one_hot
    expect(
        fits, name, "a column of classes for each capsule", "at most a 1 in each row", f"If columns are classes, {fix}"
    )
    return Labels(classes.to(device), names)


def whole_numbers(name: str, labels: torch.Tensor) -> torch.Tensor:
    """Return labels as int64, with -1 in place of NaN; ``InputError`` if some aren't whole numbers."""
    if labels.is_floating_point():
        labels = labels.nan_to_num(-1.0, math.inf)
        _, others = min_max(labels != labels.long()) or (0, 0)
        expect(not others, name, "whole numbers, or NaN", "fractions or infinity")
    return labels.long()


def read_classes(name: str, values: Any, count: int) -> Labels:
    """Read labels as ``read_labels`` does, for layers, but refuse a mask, and numbers in texts, whose order differs."""
    labels = read_labels(name, values, count)
    cells = values.tolist() if hasattr(values, "tolist") else values
    mask = count > 0 and all(getattr(cell, "dtype", type(cell)) in (bool, torch.bool) for cell in cells)
    advice = f"Pass {name}.where(mask, -1). If True and False are classes, pass 1 and 0"
    expect(not mask, name, "class numbers", "a mask", advice)
    for texts in labels.names:
        in_order = not all(text.isdecimal() for text in texts) or texts == [*map(str, range(len(texts)))]
        got, advice = f"texts, whose order is {', '.join(texts[:3])}", "Pass them as numbers, or as texts with letters"
        expect(in_order, name, "class numbers", got, advice)
    return labels


def is_unknown(label: Any) -> bool:
    """Whether a label is None, NaN, masked, pandas' NA or -1."""
    if label is None or label is np.ma.masked or type(label).__name__ == "NAType":
        return True
    return not isinstance(label, (str, list)) and bool(label != label or label == -1)


def _rows(values: Any) -> np.ndarray:
    """An array of objects, (N,) or (N, K). An unknown row stands for K unknown labels."""
    rows = [row if row is np.ma.masked or isinstance(row, str) or np.ndim(row) == 0 else [*row] for row in values]
    width = next((len(row) for row in rows if isinstance(row, list)), 0)
    return np.array([[row] * width if width and is_unknown(row) else row for row in rows], dtype=object)
