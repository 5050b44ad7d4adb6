"""Routings by name, and routings as the JSON that checkpoints hold."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import sys
from typing import Any

from ..errors import GraphcapsError, InputError
from .attention import Attention
from .dynamic import Dynamic
from .em import EM
from .inverted import Inverted
from .routing import Routing
from .spherical import Spherical
from .uniform import Uniform

ROUTINGS: dict[str, type[Routing]] = {
    "dynamic": Dynamic,
    "uniform": Uniform,
    "attention": Attention,
    "spherical": Spherical,
    "inverted": Inverted,
    "em": EM,
}


def as_routing(routing: Routing | str, **settings: Any) -> Routing:
    """The routing itself, or the one of that name with these settings; "module:Class" is imported.

    Raises:
        InputError: an unknown name, or something else than a name or a ``Routing``.
        GraphcapsError: a class that can't be imported.

    >>> as_routing("dynamic", iterations=2)
    Dynamic(iterations=2)
    """
    if isinstance(routing, Routing):
        return routing
    if not isinstance(routing, str):
        names = ", ".join(ROUTINGS)
        then = f". Call it: {routing.__name__}()" if isinstance(routing, type) and issubclass(routing, Routing) else ""
        wanted = f"a Routing such as Dynamic(3), or a name ({names})"
        raise InputError(f"routing: expected {wanted}, got {repr(routing)[:80]}{then}")
    if ":" in routing:
        known = inspect.signature(_imported(routing)).parameters
        return from_json({"name": routing, "settings": {name: settings[name] for name in settings if name in known}})
    if routing not in ROUTINGS:
        near = difflib.get_close_matches(routing, ROUTINGS, n=1)
        then = f"Did you mean '{near[0]}'? " if near else ""
        then += "Your own is an object of a Routing subclass, or 'module:Class'"
        raise InputError(f"routing: expected one of {', '.join(ROUTINGS)}, got {routing!r}. {then}")
    return ROUTINGS[routing](**settings)


def name_of(routing: Routing) -> str:
    """The name that stands for its class, or of another class "module:Class"."""
    for name, kind in ROUTINGS.items():
        if type(routing) is kind:
            return name
    return f"{type(routing).__module__}:{type(routing).__qualname__}"


def to_json(routing: Routing) -> dict[str, Any]:
    """Name and settings, which ``from_json`` makes the routing of.

    Raises:
        GraphcapsError: a setting that JSON can't hold.
    """
    found = {"name": name_of(routing), "settings": routing.settings()}
    try:
        json.dumps(found)
    except TypeError:
        wanted = "settings that JSON can hold: numbers, truth values, texts, lists"
        raise GraphcapsError(f"{found['name']}: expected {wanted}, got {routing.settings()}") from None
    return found


def from_json(found: dict[str, Any]) -> Routing:
    """The routing of ``to_json``'s name and settings. A class of one's own must be importable where it was.

    Raises:
        GraphcapsError: its module can't be imported, or has no such ``Routing``; settings that don't fit it.
    """
    name = found["name"]
    kind, settings = ROUTINGS.get(name) or _imported(name), found["settings"]
    if name in ROUTINGS:  # runs of before these two became arguments of CapsuleConv have them as False
        settings = {key: v for key, v in settings.items() if key not in ("unit_votes", "mutual") or v is not False}
    try:
        return kind(**settings)
    except TypeError as error:
        raise GraphcapsError(f"routing {name}: expected settings of its constructor, got {error}") from None


def _imported(name: str) -> type[Routing]:
    module, _, path = name.partition(":")
    then = f"Put the file that defines it on Python's path, under the name {module}, or import it before loading"
    try:
        kind: Any = sys.modules.get(module) or importlib.import_module(module)
        for part in path.split("."):
            kind = getattr(kind, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise GraphcapsError(f"routing: expected to import {name}, got: {error}. {then}") from None
    if not (isinstance(kind, type) and issubclass(kind, Routing)):
        raise GraphcapsError(f"routing: expected a subclass of graphcaps.routing.Routing at {name}, got {kind!r:.80}")
    return kind
