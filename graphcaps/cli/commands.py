"""The table of commands, and the parser of the command line."""

import functools
import inspect
import re
import shutil
import textwrap
import typing
from collections.abc import Callable

import tyro

from .arguments import FLAGS
from .networks import evaluate, export, predict, runs, train
from .pictures import explain, explore, viz

# Each command is a function; --help shows its arguments and docstring.
COMMANDS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (train, evaluate, predict, runs, viz, explain, explore, export)
}

DESCRIPTION = """Capsule routing as message passing on DGL graphs.

To start, run: graphcaps train --dataset digits. graphcaps COMMAND --help describes a command, graphcaps --version
prints the version. With any command, --debug shows the traceback of an error, and --allow-code lets a run import the
module of its own routing."""


def call(words: list[str]) -> None:
    """Parse the words of a command line and run the command. Raises ``SystemExit`` after help or wrong usage."""
    FLAGS.set([word[2:].partition("=")[0].replace("_", "-") for word in words if word.startswith("--")])
    commands = {name: _described(command) for name, command in COMMANDS.items()}
    columns = shutil.get_terminal_size().columns
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
    text = COMMANDS[words[0]].__doc__ if words[0] in COMMANDS else DESCRIPTION
    about, _, details = (text or "").partition("\n\n")
    try:
        tyro.extras.subcommand_cli_from_dict(commands, prog="graphcaps", description=about, args=words, config=config)
    except SystemExit as end:
        if end.code == 0:  # print the details here: tyro wouldn't wrap their lines
            for paragraph in filter(None, details.partition("    Args:")[0].strip().split("\n\n")):
                print(textwrap.fill(" ".join(paragraph.split()), columns, break_on_hyphens=False))
        raise


def _described(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command, with a docstring for tyro: the summary, and each argument's description in a single line."""

    @functools.wraps(command)
    def described(*arguments, **options):
        return command(*arguments, **options)

    summary, _, rest = (command.__doc__ or "").partition("\n\n")
    arguments = rest[rest.find("    Args:") :] if "    Args:" in rest else ""
    described.__doc__ = f"{summary}\n\n" + re.sub(r"\n {12}(?=\S)", " ", arguments)
    described.__annotations__ = typing.get_type_hints(command, include_extras=True)
    described.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    del described.__wrapped__  # tyro would read its docstring
    return described
