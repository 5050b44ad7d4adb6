"""Ctrl-C and SIGTERM: a training notes them until it can save; other commands stop at once."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, ``signum``."""

    def __init__(self, signum: int):
        super().__init__()
        self.signum = signum


class StopSignals:
    """Notes Ctrl-C and SIGTERM in ``signum`` while the block runs; a second Ctrl-C works as before the block."""

    signum = 0  # no signal has come

    def __enter__(self) -> StopSignals:
        self.before: dict[signal.Signals, Any] = {}
        for signum in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[signum] = signal.signal(signum, self._note)
            except ValueError:  # Python catches signals in the main thread only
                break
        return self

    def __exit__(self, *error) -> None:
        self.end()

    def end(self) -> None:
        """Give the signals back before the block ends."""
        while self.before:
            signal.signal(*self.before.popitem())

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum and signum == signal.SIGINT:
            before = self.before[signal.SIGINT]
            if callable(before):
                before(signum, frame)
            raise KeyboardInterrupt
        self.signum = signum


class StopAtOnce(StopSignals):
    """Ctrl-C and SIGTERM raise ``Stopped`` while the block runs.

    While a module is imported, and at a second signal, the process ends immediately instead, with a line and the
    signal's exit status: an exception could leave a half-imported module, which later code would fail on.
    """

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum or _is_import(frame):
            os.write(2, b"graphcaps: stopped\n")
            os._exit(128 + signum)
        self.signum = signum
        raise Stopped(signum)

    def ignore_later(self) -> None:
        """Ignore both signals after the block, while Python ends: there is nothing left to stop."""
        self.before = dict.fromkeys(self.before, signal.SIG_IGN)


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
