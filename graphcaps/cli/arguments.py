"""Arguments that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from .threads import set_number

if TYPE_CHECKING:
    from ..training import run_folder

# Hide tyro's hint "(default: None)": the help texts describe the default.
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
_RUN = (
    "Run folder; default: the newest one. mnist and multimnist come with graphcaps; mnist is the default without runs."
)
Run = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="", help=_RUN)]
_DATA = "Folder with the data set; default: the one used in training."
Data = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="", help=_DATA)]
Out = Annotated[Path, tyro.conf.arg(help="Folder that holds the run folders.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], tyro.conf.arg(help="Where to compute; auto takes a GPU if there is one.")
]

FLAGS: ContextVar[Sequence[str]] = ContextVar("FLAGS", default=())
"""Flags given on the command line, in order. The config can't show them: a flag may be given with its default."""


def flag_of(word: str) -> str:
    """
    >>> flag_of("--batch_size=128")
    'batch-size'
    """
    return word.removeprefix("--").partition("=")[0].replace("_", "-")


def open_run(named: Path | None, out: Path) -> run_folder.Run:
    """Open the run that a command needs. If no folder was named, print the chosen run to stderr."""
    set_number()
    from ..config import TrainConfig
    from ..training.run_folder import open_run

    run = open_run(named, out)
    if run.pretrained:
        accuracy, command = (run.result() or {})["test_accuracy"], TrainConfig(dataset=run.config.dataset).command()
        print(
            f"network: {run}, {accuracy:.2%} of the test images right; train your own with: {command}", file=sys.stderr
        )
    elif named is None:
        print(f"network: {run}, the newest run", file=sys.stderr)
    return run


def names_run(word: Path) -> bool:
    """Whether a word names a run: it is a run folder, or it has no suffix and no such file or folder exists."""
    return (word / "config.json").is_file() or not (word.exists() or word.suffix or word == Path("-"))
