"""Handling of Ctrl-C and SIGTERM: a training saves its state before it stops; other commands stop at once."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any


class StopSignals:
    """While the block runs, Ctrl-C or SIGTERM only sets ``signum``. A second Ctrl-C calls the earlier handler."""

    signum = 0  # no signal yet

    def __enter__(self) -> StopSignals:
        self.before: dict[signal.Signals, Any] = {}
        for signum in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[signum] = signal.signal(signum, self._note)
            except ValueError:  # Python allows signal handlers only in the main thread
                break
        return self

    def __exit__(self, *error) -> None:
        self.end()

    def end(self) -> None:
        """Restore the earlier signal handlers before the block ends."""
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
    """While the block runs, Ctrl-C and SIGTERM raise ``KeyboardInterrupt`` with the signal's number.

    If it is the second signal, or if an import is running, which an exception could leave half done, the process prints
    a line and exits with the signal's status instead.
    """

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum or _is_import(frame):
            os.write(2, b"graphcaps: stopped\n")
            os._exit(128 + signum)
        self.signum = signum
        raise KeyboardInterrupt(signum)

    def ignore_later(self) -> None:
        """Ignore both signals after the end of the block, while Python shuts down."""
        self.before = dict.fromkeys(self.before, signal.SIG_IGN)


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
