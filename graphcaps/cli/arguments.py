"""The arguments that several commands share."""

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

# The hint is tyro's "(default: None)": the help texts say what happens without the flag.
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
"""The flags of this call, in their order: a flag may be given with its default."""


def flag_of(word: str) -> str:
    """
    >>> flag_of("--batch_size=128")
    'batch-size'
    """
    return word.removeprefix("--").partition("=")[0].replace("_", "-")


def open_run(named: Path | None, out: Path) -> run_folder.Run:
    """The run that a command is about; if no folder was named, a line on stderr names it."""
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
    """Whether the first of several words names a run: a run folder, or no file and no folder and without a suffix."""
    return (word / "config.json").is_file() or not (word.exists() or word.suffix or word == Path("-"))
