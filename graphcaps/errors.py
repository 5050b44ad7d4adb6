"""Exceptions and argument checks. A message gives the argument's name, the expected and actual values, and a fix."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import numbers
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
MOST_NAMES = 40  # names that a message lists
ROUNDING = 0.01  # half precision, or resizing an image, may move numbers out of [0, 1] by this much


class GraphcapsError(Exception):
    """An error whose message is written for the user. The command line prints it and exits with status 1."""


class InputError(GraphcapsError, ValueError):
    """An argument that doesn't fit: ``u_hat: expected (E=11520, *, D), got (2, 6, 3)``."""


class MissingError(GraphcapsError, ImportError):
    """An optional library that isn't installed."""


def expect(holds: bool, name: str, wanted: str, got: object, advice: str = "") -> None:
    """Raise ``InputError("name: expected wanted, got got. advice")`` unless ``holds``.

    >>> expect(False, "iterations", "an integer >= 1", 0)
    Traceback (most recent call last):
    graphcaps.errors.InputError: iterations: expected an integer >= 1, got 0
    """
    if not holds:
        advice = f". {advice}" if advice else ""
        raise InputError(f"{name}: expected {wanted}, got {got}{advice}")


@contextlib.contextmanager
def reading(name: object, wanted: str, advice: str = "", kind: type[GraphcapsError] = InputError) -> Iterator[None]:
    """Turn an error in the block into one of this kind: ``name: expected wanted, got: error. advice``."""
    try:
        yield
    except Exception as error:  # libraries raise any on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise kind(f"{name}: expected {wanted}, got: {reason}{advice and f'. {advice}'}") from error


def check_whole(name: str, value: object, least: int = 1, most: float = math.inf, wanted: str = "") -> None:
    """Raise ``InputError`` unless ``value`` is an integer of Python or NumPy, no bool, from ``least`` to ``most``."""
    fits = isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= int(value) <= most
    expect(fits, name, wanted or f"an integer >= {least}", repr(value)[:40])


def check_tensor(name: str, value: object, floating: bool = True, sparse: bool = False) -> Tensor:
    """Return ``value``. Raise ``InputError`` unless it is a tensor of real numbers, by default dense floating point."""
    import torch

    if not isinstance(value, torch.Tensor):
        values = name + ".to_numpy()" * hasattr(value, "iloc")  # a table of pandas
        advice = f"Convert it: torch.as_tensor({values})" if hasattr(value, "__len__") else ""
        array = value.to_numpy() if hasattr(value, "to_numpy") else value
        if getattr(getattr(array, "dtype", None), "kind", None) in ("U", "S", "O"):
            advice = f"Number its words: numpy.unique({name}, return_inverse=True)[1]"
            advice += f", or of labels of nodes graphcaps.read_graph(graph).labels({name})"
        raise InputError(f"{name}: expected a tensor, got {type(value).__name__}" + (advice and f". {advice}"))
    expect(not value.is_nested, name, "a dense tensor", "a nested tensor")
    layouts = (torch.strided, torch.sparse_coo, torch.sparse_csr)[: 3 if sparse else 1]
    expect(value.layout in layouts, name, "a dense tensor", value.layout, f"Convert it: {name}.to_dense()")
    expect(not value.is_complex(), name, "real numbers", value.dtype)
    fits = not floating or value.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    expect(fits, name, "floating point", value.dtype, f"Convert it: {name}.float()")
    return value


def check_unit(name: str, values: Tensor, advice: str = "") -> None:
    """Raise ``InputError`` if numbers that ``min_max`` can read are outside [0, 1] by more than ``ROUNDING``."""
    low, high = min_max(values) or (0, 1)
    outside = low < -ROUNDING or high > 1 + ROUNDING
    expect(not outside, name, "numbers in [0, 1]", f"{low:g} to {high:g}", advice)


def check_labels(labels: Tensor, num_classes: int) -> None:
    """Raise ``InputError`` unless all labels that ``min_max`` can read are classes from 0 to J - 1.

    On CUDA, torch's own kernels check labels without a wait: a wrong one ends with "device-side assert triggered".
    """
    low, high = min_max(labels) or (0, -1)
    fits = low >= 0 and high < num_classes
    expect(fits, "labels", f"classes from 0 to J - 1 = {num_classes - 1}", f"{low:.0f} to {high:.0f}")


def min_max(values: Tensor) -> tuple[float, float] | None:
    """Return a tensor's smallest and largest number, or None if they can't be read. If any number is NaN, both are.

    Numbers are read only on the CPU, because reading waits for other devices, and not inside ``torch.func.vmap`` and
    ``torch.compile``, where there are none.
    """
    from torch.compiler import is_compiling

    if values.device.type != "cpu" or not values.numel() or is_compiling():
        return None
    try:
        low, high = values.detach().aminmax()
        return float(low), float(high)
    except RuntimeError:  # inside vmap
        return None


def warn_of_nan(result: Tensor, **given: Tensor | None) -> None:
    """Warn if numbers of ``result`` that ``min_max`` can read are NaN, and name the arguments that contain NaN."""
    from torch.jit import is_tracing

    if is_tracing() or (ends := min_max(result)) is None or not math.isnan(ends[0]):
        return
    dense = {name: x.detach().to_dense() for name, x in given.items() if x is not None and x.numel()}
    names = [name for name, x in dense.items() if bool(x.isnan().any())]
    causes = f"NaN in {' and '.join(names)}"
    if not names:
        sizes = ", ".join(f"{name} is up to {float(x.abs().max()):g}" for name, x in dense.items())
        causes = f"weights that are NaN, or numbers whose squares overflow: {sizes}"
    warn(f"the result is NaN in places, because of {causes}")


def warn(text: str) -> None:
    """Warn at the line that called graphcaps, directly or through torch."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("graphcaps", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def required(value: T | None, name: str, wanted: str, got: str = "none", advice: str = "") -> T:
    """Return ``value``. If it is None, raise ``InputError`` as ``expect`` does."""
    expect(value is not None, name, wanted, got, advice)
    return cast(T, value)


def check_name(kind: str, name: str, known: Sequence[str]) -> None:
    """Raise ``InputError`` unless ``name`` is one of ``known``. The message suggests the nearest one."""
    if name not in known:
        shown = ", ".join([*known[:MOST_NAMES], *["..."] * (len(known) > MOST_NAMES)])
        expect(False, kind, f"one of {shown}", repr(name), did_you_mean(str(name), known).strip())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question about the nearest known name, with a space behind it, or ""."""
    return "".join(f"Did you mean '{near}'? " for near in difflib.get_close_matches(name, [*known], n=1))


def read_json(text: str, **wanted: type | tuple[float, float]) -> dict:
    """Parse a JSON object. ``wanted`` gives the required type of an entry, or its (smallest, largest) number.

    Raises:
        ValueError: the text isn't a JSON object, or an entry is missing or doesn't fit.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"JSON that isn't an object: {content!r:.40}")
    check_json(content, **wanted)
    return content


def check_json(content: dict, **wanted: type | tuple[float, float]) -> None:
    """Raise ``ValueError`` unless ``content`` has the entries ``wanted``, as in ``read_json``."""
    for name, kind in wanted.items():
        value = content.get(name)
        if isinstance(kind, type):
            fits, called = type(value) is kind, f"of type {kind.__name__}"
        else:
            fits = type(value) in (int, float) and kind[0] <= value <= kind[1]  # type: ignore[operator]
            called = f"a number from {kind[0]} to {kind[1]}"
        if not fits:
            raise ValueError(f"{name}: expected {called}, got {repr(value)[:40]}")
