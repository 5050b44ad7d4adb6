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


def names_run(word: Path) -> bool:
    """Whether the first of several words is a run's: its folder, or what isn't there and has no file's ending."""
    return (word / "config.json").is_file() or not (word.exists() or word.suffix or word == Path("-"))
