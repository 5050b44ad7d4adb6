"""Stopping in good order: a signal becomes a note that a loop reads when it can save, or ends what can't be saved."""

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
    """Notes Ctrl-C and SIGTERM while the block runs, in ``signum`` (0: none came).

    A second Ctrl-C does what it would have done before the block.
    """

    signum = 0

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

    Where that isn't sure to come through, the process ends there and then, with a line and the signal's exit status:
    while a module is imported, which would be left half made for what cleans up, and at a second signal.
    """

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum or _is_import(frame):
            os.write(2, b"graphcaps: stopped\n")
            os._exit(128 + signum)
        self.signum = signum
        raise Stopped(signum)

    def ignore_later(self) -> None:
        """After the block, while Python ends, both signals are ignored: there is nothing left to stop."""
        self.before = dict.fromkeys(self.before, signal.SIG_IGN)


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
