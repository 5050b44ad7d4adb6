"""Arguments that several commands share, and the settings of a training as arguments."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from docstring_parser import parse_from_object

from ..errors import expect
from ..images.config import TrainConfig
from ..names import DATASETS, OWN_KINDS, ROUTINGS
from .columns import show
from .threads import set_number

if TYPE_CHECKING:
    from ..images.training.run_folder import Run as RunFolder

# Hide tyro's hint "(default: None)", because the help texts describe the default.
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
_RUN = "Run folder; default: the newest one, or mnist if there is none. mnist and multimnist come with graphcaps."
Run = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="", help=_RUN)]
_DATA = "Folder with the data set; default: the folder used in training."
Data = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="", help=_DATA)]
Out = Annotated[Path, tyro.conf.arg(metavar="DIR", help="Folder that holds the run folders.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="Device to compute on; auto: a GPU if there is one.")
]

FLAGS: ContextVar[Sequence[str]] = ContextVar("FLAGS", default=())
"""Flags given on the command line, in order. The config doesn't show whether a flag was given with its default."""

ALIASES = {"from_run": ["--from"]}
METAVARS = {
    "dataset": f"{{{','.join(DATASETS)}}}|{{{','.join(OWN_KINDS)}}}:PATH",
    "routing": f"{{auto,{','.join(ROUTINGS)}}}|MODULE:CLASS",
    "from_run": "RUN",
    "data": "DIR",
    "out": "DIR",
}


def _settings() -> Callable[..., TrainConfig]:
    """Return a function that makes a ``TrainConfig``; its signature has each setting's name, type, default and help.

    tyro would keep the line breaks of the texts below the settings, and would show "(default: None)".
    """
    hints, parameters = typing.get_type_hints(TrainConfig), []
    texts = {entry.arg_name: entry.description or "" for entry in parse_from_object(TrainConfig).params}
    for name, default in ((field.name, field.default) for field in dataclasses.fields(TrainConfig)):
        shown = "" if default in (None, "") else f"(default: {default})"
        names: dict[str, Any] = {"metavar": METAVARS.get(name), "aliases": ALIASES.get(name)}
        about = tyro.conf.arg(help=" ".join(texts[name].split()), help_behavior_hint=shown, **names)
        kind = Annotated[hints[name], about]  # type: ignore[valid-type]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default))

    def made(**settings: Any) -> TrainConfig:
        return TrainConfig(**settings)

    made.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return made


Settings = Annotated[TrainConfig, tyro.conf.arg(name="", constructor=_settings())]


def open_run(named: Path | None, out: Path) -> RunFolder:
    """Open the run that a command needs: the named run, else the newest run in ``out``, else ``mnist``.

    If the user didn't name a run, or named one that comes with graphcaps, print to stderr which run is used.
    """
    set_number()
    from ..images.training.run_folder import Run, find_runs

    newest = find_runs(out)[:1] if named is None else []
    run = newest[0] if newest else Run.open(named or "mnist", out)
    if run.pretrained:
        accuracy, command = (run.result() or {})["test_accuracy"], TrainConfig(dataset=run.config.dataset).command()
        show(
            f"network: {run}, {accuracy:.2%} of the test images right; train your own with: {command}", file=sys.stderr
        )
    elif named is None:
        show(f"network: {run}, the newest run", file=sys.stderr)
    return run


def check_data(folder: Path | None) -> None:
    """Raise ``InputError`` if a folder for ``--data`` doesn't exist, unless it is the default, which downloads make."""
    exists = folder is None or folder.expanduser().is_dir() or folder == TrainConfig.data
    expect(exists, "data", "a folder", f"none at {folder}", "Make it, to download a data set into it")


def names_run(word: Path, out: Path) -> bool:
    """Return whether a run has this name, or the word can't be a file: it has no suffix, and nothing is there."""
    from ..images.training.run_folder import pretrained_names

    exists = str(word) in pretrained_names() or any((path / "config.json").is_file() for path in (word, out / word))
    return exists or not (word.exists() or word.suffix or word == Path("-"))
