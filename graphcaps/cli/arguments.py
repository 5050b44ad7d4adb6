"""Arguments that several commands take."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from ..training import run_folder

# The hint is tyro's "(default: None)": the help texts say what happens without the flag.
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
Run = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")]

GIVEN: ContextVar[Sequence[str]] = ContextVar("GIVEN", default=())
"""The flags of this call, in their order: a setting may be asked for that is also the default."""


def flag_of(word: str) -> str:
    """
    >>> flag_of("--batch_size=128")
    'batch-size'
    """
    return word.removeprefix("--").partition("=")[0].replace("_", "-")


def run_of(named: Path | None, out: Path) -> run_folder.Run:
    """The run that a command is about, or the network inside graphcaps; stderr says which where no folder was named."""
    from ..training.inside import run_or_inside

    found, line = run_or_inside(named, out)
    if line:
        print(line, file=sys.stderr)
    return found


def run_and_images(first: Path | None, images: tuple[Path, ...]) -> tuple[Path | None, tuple[Path, ...]]:
    """What names a run, if anything does, and what names images: the first word is either.

    It is a run if it is a run's folder, or neither there nor named like a file.
    """
    if first is None or (first / "config.json").exists() or not (first.exists() or first.suffix):
        return first, images
    return None, (first, *images)
