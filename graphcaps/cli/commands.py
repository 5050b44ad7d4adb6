"""The table of commands, and the parser of the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tyro

from .arguments import FLAGS, flag_of
from .networks import evaluate, export, predict, runs, train
from .pictures import explain, explore, viz

# Each command is a function; --help shows its arguments and docstring.
COMMANDS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (train, evaluate, predict, runs, viz, explain, explore, export)
}

DESCRIPTION = """Capsule routing as message passing on DGL graphs: train a CapsNet, watch its routing settle.

Start with: graphcaps train --dataset digits. graphcaps COMMAND --help says more of each command.
--version prints the version; --debug shows the traceback of an error."""


def call(words: list[str]) -> None:
    """Parse the words and run the command. Raises ``SystemExit`` after help or wrong usage."""
    commands = COMMANDS
    if words[0] in ("-h", "--help"):
        commands = {name: _summarised(command) for name, command in COMMANDS.items()}
    FLAGS.set([flag_of(word) for word in words if word.startswith("--")])
    tyro.extras.subcommand_cli_from_dict(commands, prog="graphcaps", description=DESCRIPTION, args=words)


def _summarised(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap the command with only the first paragraph of its help, for the list of all commands."""

    @functools.wraps(command)
    def described(*arguments, **options):
        return command(*arguments, **options)

    described.__doc__ = (command.__doc__ or "").partition("\n\n")[0]
    return described
