"""Make routings from names, and convert them to JSON and back for checkpoints."""

import importlib
import inspect
import json
import sys
from typing import Any

from ..errors import GraphcapsError, InputError, did_you_mean, expect
from ..names import ROUTINGS as CLASSES
from ..names import check_allowed
from .base import Routing


def as_routing(routing: Routing | str, **settings: Any) -> Routing:
    """Return a routing object unchanged, or make one from its name and settings. A name "module:Class" is imported.

    Raises:
        InputError: the name is unknown, or ``routing`` is neither a name nor a ``Routing``.
        GraphcapsError: the class can't be imported.

    >>> as_routing("dynamic", iterations=2)
    Dynamic(iterations=2)
    """
    if isinstance(routing, Routing):
        return routing
    names = ", ".join(ROUTINGS)
    if not isinstance(routing, str):
        is_class = isinstance(routing, type) and issubclass(routing, Routing)
        advice = f". Call it: {routing.__name__}()" if is_class else ""
        wanted = f"a Routing such as Dynamic(3), or a name ({names})"
        raise InputError(f"routing: expected {wanted}, got {repr(routing)[:80]}{advice}")
    if ":" in routing:
        known = inspect.signature(_imported(routing)).parameters
        return _imported(routing)(**{name: settings[name] for name in settings if name in known})
    if routing not in ROUTINGS:
        advice = "Pass your own as an object of a Routing subclass, or by its name 'module:Class'"
        expect(False, "routing", f"one of {names}", repr(routing), did_you_mean(routing, ROUTINGS) + advice)
    return ROUTINGS[routing](**settings)


def name_of(routing: Routing) -> str:
    """Return the routing's name in ``ROUTINGS``, or "module:Class" for any other class."""
    kind = type(routing)
    return next((name for name in ROUTINGS if ROUTINGS[name] is kind), f"{kind.__module__}:{kind.__qualname__}")


def to_json(routing: Routing) -> dict[str, Any]:
    """Return the routing's name and settings, for ``from_json``; raise ``GraphcapsError`` if JSON can't hold one."""
    name, settings = name_of(routing), routing.settings()
    try:
        json.dumps(settings)
    except TypeError:
        wanted = "settings that JSON can hold: numbers, truth values, texts, lists"
        raise GraphcapsError(f"{name}: expected {wanted}, got {settings}") from None
    return {"name": name, "settings": settings}


def from_json(content: dict[str, Any]) -> Routing:
    """Make a routing from the result of ``to_json``.

    A file can't make Python import code: the module of your own class must have been imported, or ``ALLOW_CODE`` must
    be set.

    Raises:
        GraphcapsError: the module may not be imported, can't be, or has no such ``Routing``; or the settings don't fit.
    """
    name, settings = content["name"], content["settings"]
    check_allowed(name)
    kind = ROUTINGS.get(name) or _imported(name)
    try:
        return kind(**settings)
    except (TypeError, InputError) as error:
        raise GraphcapsError(f"routing {name}: expected settings of its constructor, got {error}") from None


def _imported(name: str) -> type[Routing]:
    module, _, path = name.partition(":")
    try:
        kind: Any = sys.modules.get(module) or importlib.import_module(module)
        for part in path.split("."):
            kind = getattr(kind, part)
    except (ImportError, AttributeError, ValueError) as error:
        advice = f"Put the file that defines it on Python's path, under the name {module}, or import it before loading"
        raise GraphcapsError(f"routing: expected to import {name}, got: {error}. {advice}") from None
    if not (isinstance(kind, type) and issubclass(kind, Routing)):
        raise GraphcapsError(f"routing: expected a subclass of graphcaps.routing.Routing at {name}, got {kind!r:.80}")
    return kind


ROUTINGS = {name: _imported(f"{__package__}.{name}:{kind}") for name, kind in CLASSES.items()}
