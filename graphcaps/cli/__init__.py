"""The command line: parses, calls and prints. ``graphcaps --help`` lists the commands.

No module with commands imports torch before a command needs it, so that help and mistakes answer at once.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable

import tyro

from .._version import __version__
from ..errors import GraphcapsError, InputError
from ..threads import before_torch
from .arguments import GIVEN, flag_of
from .files import export
from .networks import evaluate, predict, runs, train
from .pictures import explain, explore, viz

# One function each: its arguments and docstring are what --help shows.
COMMANDS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (train, evaluate, predict, runs, viz, explain, explore, export)
}

DESCRIPTION = """Capsule routing as message passing on DGL graphs: train a CapsNet, watch its routing settle.

Start with: graphcaps train --dataset digits. graphcaps COMMAND --help says more of each command.
--version prints the version; --debug shows the traceback of an error."""


def _in_a_sentence(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the first paragraph of its help alone, for the list of all."""

    @functools.wraps(command)
    def described(*arguments, **options):
        return command(*arguments, **options)

    described.__doc__ = (command.__doc__ or "").partition("\n\n")[0]
    return described


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, 1 for errors, 2 for wrong usage, 128 + number for signals."""
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    argv = [word for word in argv if word != "--debug"]
    before_torch()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    try:
        try:
            if argv[:1] in (["--version"], ["-V"]):
                print(f"graphcaps {__version__}")
            else:
                words = argv or ["--help"]
                commands = COMMANDS
                if words[0] in ("-h", "--help"):
                    commands = {name: _in_a_sentence(command) for name, command in COMMANDS.items()}
                GIVEN.set([flag_of(word) for word in words if word.startswith("--")])
                tyro.extras.subcommand_cli_from_dict(commands, prog="graphcaps", description=DESCRIPTION, args=words)
        finally:
            sys.stdout.flush()
    except SystemExit as error:  # tyro's, after help or wrong usage
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except GraphcapsError as error:
        if debug:
            raise
        print(f"graphcaps: {error}", file=sys.stderr)
        signum = getattr(error, "signum", 0)
        return 128 + signum if signum else 2 if isinstance(error, InputError) else 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python fails once more at its end
        return 1
    return 0
