"""The table of commands, and the parser of the command line."""

import re
import shutil
import textwrap
from collections.abc import Callable
from typing import Any

import tyro

from .arguments import FLAGS
from .networks import evaluate, export, predict, runs, train
from .pictures import explain, explore, viz

# Each command is a function; --help shows its arguments and docstring.
COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command for command in (train, evaluate, predict, runs, viz, explain, explore, export)
}

SUMMARY = "Capsule routing as message passing on DGL graphs."
START = (
    "To start, run: graphcaps train --dataset digits. graphcaps COMMAND --help describes a command, and graphcaps "
    "--version prints the version. With any command, --debug shows the traceback of an error, and --allow-code lets a "
    "run import the module of its own routing."
)


def call(words: list[str], names: list[str]) -> None:
    """Parse the words of a command line and run the command. Raises ``SystemExit`` after help or wrong usage.

    ``names`` are "--" and what follows it, even if that looks like flags.
    """
    FLAGS.set([word[2:].partition("=")[0].replace("_", "-") for word in words if word.startswith("--")])
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
    about: dict[str, Any] = {"prog": "graphcaps", "description": SUMMARY, "config": config}
    if words[:1] == ["predict"]:
        words = _flags_first(words)
    try:
        tyro.extras.subcommand_cli_from_dict(COMMANDS, args=words + names, **about)
    except SystemExit as end:
        for paragraph in DETAILS.get(words[0], DETAILS[""]) if end.code == 0 else ():
            print(textwrap.fill(paragraph, shutil.get_terminal_size().columns, break_on_hyphens=False))
        raise


def _flags_first(words: list[str]) -> list[str]:
    """Move flags before the other words, because tyro wants a list of words, such as images, in one piece."""
    flags, others, rest = list[str](), list[str](), words[1:]
    while rest:
        word = rest.pop(0)
        (flags if word.startswith("--") else others).append(word)
        if word.startswith("--") and "=" not in word and word not in ("--json", "--no-json", "--help") and rest:
            flags.append(rest.pop(0))
    return [words[0], *flags, *others]


def _shorten(command: Callable[..., None]) -> list[str]:
    """Reduce a docstring to its summary and one line per argument, and return the other paragraphs.

    tyro would not wrap these paragraphs, and would keep the line breaks of the arguments' texts.
    """
    summary, _, rest = (command.__doc__ or "").partition("\n\n")
    details, heading, arguments = rest.partition("    Args:")
    command.__doc__ = f"{summary}\n\n{heading}" + re.sub(r"\n {12}(?=\S)", " ", arguments)
    return [" ".join(paragraph.split()) for paragraph in details.strip().split("\n\n")]


DETAILS = {"": [START]} | {name: _shorten(command) for name, command in COMMANDS.items()}
"""What the help of a command, or of all commands, says after the arguments."""
