"""The command line: it parses arguments, calls functions and prints results. ``graphcaps --help`` lists the commands.

The modules of the commands import torch only when a command needs it, so that help and error messages appear at once.
This module imports little, so that Ctrl-C prints one line instead of a traceback even during start-up.
"""

import os
import shutil
import signal
import sys

from ..errors import GraphcapsError, InputError
from ..images.training.signals import StopAtOnce
from ..names import ALLOW_CODE, clean
from .threads import set_waiting

MIN_COLUMNS = 40  # tyro's help hangs on a terminal of two columns


def main(argv: list[str] | None = None) -> int:
    """Run the command line. Return the exit status: 0: success, 1: error, 2: wrong usage, 128 + n: signal n."""
    stop = StopAtOnce()
    with stop:
        try:
            code = _exit_status(list(sys.argv[1:] if argv is None else argv))
        except (Exception, KeyboardInterrupt) as error:
            # A library may turn the KeyboardInterrupt of the signal into another error.
            if not (isinstance(error, KeyboardInterrupt) or stop.signum):
                raise
            print("graphcaps: stopped", file=sys.stderr)
            code = 128 + (stop.signum or signal.SIGINT)
        if argv is None:
            stop.ignore_later()
    return code


def _exit_status(argv: list[str]) -> int:
    import logging

    debug = "--debug" in argv
    ALLOW_CODE.set("--allow-code" in argv)
    argv = [word for word in argv if word not in ("--debug", "--allow-code")]
    set_waiting()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # print \u2022 if the encoding lacks a character
    if shutil.get_terminal_size().columns < MIN_COLUMNS:
        os.environ["COLUMNS"] = str(MIN_COLUMNS)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("graphcaps").setLevel(logging.INFO)
    try:
        try:
            if argv[:1] in (["--version"], ["-V"]):
                from importlib.metadata import version

                print(f"graphcaps {version('graphcaps')}")
            else:
                from .commands import call

                call(argv or ["--help"])
        finally:
            if sys.stdout is not None:  # None if the caller closed it
                sys.stdout.flush()
    except SystemExit as error:  # tyro raises it after help or wrong usage
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except GraphcapsError as error:
        if debug:
            raise
        print(f"graphcaps: {clean(str(error))}", file=sys.stderr)
        signum = getattr(error, "signum", 0)
        return 128 + signum if signum else 2 if isinstance(error, InputError) else 1
    except OSError as error:
        if debug:
            raise
        if error.filename is None and sys.stdout is not None:
            # Otherwise Python would fail again at exit, when it flushes the output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"graphcaps: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0
