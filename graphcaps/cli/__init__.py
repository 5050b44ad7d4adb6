"""The command line: it parses arguments, calls functions and prints results. ``graphcaps --help`` lists the commands.

The modules of the commands import torch only when a command needs it, so that help and error messages appear at once.
This module imports little, so that Ctrl-C prints one line instead of a traceback even during start-up.
"""

import os
import signal
import sys
from types import FrameType

from ..errors import GraphcapsError, InputError
from ..names import ALLOW_CODE, escaped
from .threads import set_waiting


def main(argv: list[str] | None = None) -> int:
    """Run the command line. Return the exit status: 0: success, 1: error, 2: wrong usage, 128 + n: signal n."""
    if argv is None:
        argv = sys.argv[1:]
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(signum, _stop)
    end = argv.index("--") if "--" in argv else len(argv)  # what follows are names, even if they look like flags
    flags, names = argv[:end], argv[end:]
    debug = "--debug" in flags
    try:
        try:
            words = [word for word in flags if word not in ("--debug", "--allow-code")]
            _call(words, names, "--allow-code" in flags)
        finally:
            print(end="", flush=True)  # also of what tyro printed before SystemExit
    except SystemExit as error:  # tyro raises it after help or wrong usage
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except (GraphcapsError, OSError) as error:
        if debug:
            raise
        if isinstance(error, GraphcapsError):
            print(f"graphcaps: {escaped(str(error))}", file=sys.stderr)
            stopped = getattr(error, "signum", 0)
            return 128 + stopped if stopped else 2 if isinstance(error, InputError) else 1
        if error.filename is None:  # the output is closed or full: Python would fail again when it flushes it at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            print(escaped(f"graphcaps: {error.filename or 'output'}: {error.strerror or error}"), file=sys.stderr)
        return 1
    return 0


def _call(words: list[str], names: list[str], allow_code: bool) -> None:
    import logging

    ALLOW_CODE.set(allow_code)
    set_waiting()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # print \u2022 if the encoding lacks a character
    handler = logging.StreamHandler(sys.stderr)
    handler.format = lambda record: escaped(record.getMessage())  # type: ignore[method-assign]
    logging.basicConfig(handlers=[handler])
    logging.getLogger("graphcaps").setLevel(logging.INFO)
    if words[:1] in (["--version"], ["-V"]):
        from importlib.metadata import version

        print(f"graphcaps {version('graphcaps')}")
    else:
        from .commands import call

        call(words if words or names else ["--help"], names)


def _stop(signum: int, frame: FrameType | None) -> None:
    """End with one line and the signal's status; during an import, which could hide an exception, at once."""
    os.write(2, b"graphcaps: stopped\n")
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + signum)
        frame = frame.f_back
    sys.exit(128 + signum)
