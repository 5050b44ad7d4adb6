"""Arguments that several commands take."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import tyro

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
