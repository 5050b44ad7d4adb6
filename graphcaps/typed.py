"""``typed``: public functions check their arguments by annotations. Bodies check shapes, and what depends on others."""

import functools
import inspect
import math
import numbers
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar

from .errors import did_you_mean, expect

P = ParamSpec("P")
T = TypeVar("T")

# The metadata are the bounds: the smallest and, if there is one, the largest number.
ABOVE_ZERO = math.ulp(0)
Count = Annotated[int, 0]
Size = Annotated[int, 1]
AtLeastZero = Annotated[float, 0]
Share = Annotated[float, 0, 1]
Positive = Annotated[float, ABOVE_ZERO]

IN_BODIES = {"Tensor", "DGLGraph", "Routing", "Votes", "CapsuleConv"}
"""For these classes, ``typed`` refuses only numbers and texts. The function itself checks the rest."""


class Kind(NamedTuple):
    """The values that an annotation allows, and how a message calls them."""

    fits: Callable[[Any], bool]
    wanted: str
    known: tuple = ()  # the values of a Literal


def is_device(value: Any) -> bool:
    """Whether torch can hold numbers on a device of this name."""
    import torch

    try:
        return value is not None and not torch.empty(0, device=value).is_meta
    except (AssertionError, RuntimeError, TypeError):  # the first comes from a torch without CUDA
        return False


def is_logit(value: Any) -> bool:
    """Whether a value is a number, perhaps infinite, that a tensor can hold."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and (not abs(value) > sys.float_info.max or value in (math.inf, -math.inf))


Logit = Annotated[float, Kind(is_logit, "a number")]
Device = Annotated[Any, Kind(is_device, "a device that torch finds, such as 'cpu'")]


def typed(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function, or the ``__init__`` of a class, check its arguments: ``InputError`` names one that doesn't fit.

    >>> @typed
    ... def repeat(text: str, times: Size = 1): ...
    >>> repeat("a", times=0)
    Traceback (most recent call last):
    graphcaps.errors.InputError: times: expected an integer >= 1, got 0
    """
    space, kinds, parameters = function.__globals__, {}, inspect.signature(function).parameters
    takes_others = any(each.kind == each.VAR_KEYWORD for each in parameters.values())
    for name, each in parameters.items():
        kinds[name] = kind_of(eval(each.annotation, space) if isinstance(each.annotation, str) else each.annotation)

    @functools.wraps(function)
    def checked(*arguments: P.args, **named: P.kwargs) -> T:
        for name, value in (*zip(kinds, arguments), *named.items()):  # noqa: B905 (named arguments have their own names)
            if name not in kinds and not takes_others:
                names = [known for known in kinds if known != "self"]
                capsules = "num_caps is the number of capsules" if name == "heads" and "num_caps" in names else ""
                near = capsules or did_you_mean(name, names).strip()
                expect(False, name, f"one of {', '.join(names)}", f"'{name}'", near)
            if name in kinds and not kinds[name].fits(value):
                refuse(name, kinds[name], value)
        return function(*arguments, **named)

    return checked


def refuse(name: str, kind: Kind, value: object) -> None:
    """Raise the ``InputError`` about a value that isn't of this kind."""
    plain = value is None or isinstance(value, (str, numbers.Number, list, tuple))
    near = did_you_mean(value, map(str, kind.known)).strip() if isinstance(value, str) else ""
    expect(False, name, kind.wanted, repr(value)[:40] if plain else type(value).__name__, near)


@functools.cache
def kind_of(hint: Any) -> Kind:
    """Read an annotation. Any and a missing one allow anything."""
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return given[1] if isinstance(given[1], Kind) else numbers_of(*given)
    if hint in (int, float):
        return numbers_of(hint, -math.inf)
    if origin in (typing.Union, types.UnionType):
        kinds = [kind_of(each) for each in given]
        known = sum((kind.known for kind in kinds), ())
        wanted = " or ".join(kind.wanted for kind in kinds)
        return Kind(lambda value: any(kind.fits(value) for kind in kinds), wanted, known)
    if origin is typing.Literal:
        allowed = [(type(value), value) for value in given]
        return Kind(lambda value: (type(value), value) in allowed, f"one of {', '.join(map(str, given))}", given)
    if origin is tuple and ... not in given:
        parts = [kind_of(each) for each in given]

        def fit(value: Any) -> bool:
            several = isinstance(value, (tuple, list)) and len(value) == len(parts)
            return several and all(part.fits(x) for part, x in zip(parts, value, strict=True))

        return Kind(fit, f"({', '.join(part.wanted for part in parts)})")
    kind = origin or hint
    if kind in (Any, inspect.Parameter.empty) or not isinstance(kind, type):
        return Kind(lambda value: True, "anything")
    if IN_BODIES & {each.__name__ for each in kind.__mro__}:
        return Kind(lambda value: not isinstance(value, (numbers.Number, str)), f"a {kind.__name__}")
    name = {bool: "True or False", str: "text", types.NoneType: "None", Callable: "a function"}.get(kind)
    text = kind in (str, object)  # a text is a Sequence, too, but never meant as one
    return Kind(
        lambda value: isinstance(value, kind) and (text or not isinstance(value, str)), name or f"a {kind.__name__}"
    )


def numbers_of(kind: type, least: float, most: float = math.inf) -> Kind:
    """Integers, or finite numbers, of Python or NumPy, from ``least`` to ``most``. A bool is no number here."""
    noun, abstract = ("an integer", numbers.Integral) if kind is int else ("a finite number", numbers.Real)
    bounds = " > 0" if least == ABOVE_ZERO else f" >= {least}" if most == math.inf else f" from {least} to {most}"
    largest = sys.float_info.max if kind is float else 2**63 - 1

    def fit(value: Any) -> bool:
        real = isinstance(value, abstract) and not isinstance(value, bool)
        return real and max(least, -largest) <= value <= min(most, largest)

    return Kind(fit, noun + bounds * (least > -math.inf))
