"""Handling of Ctrl-C and SIGTERM during a training, which saves its state before it stops."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class StopSignals:
    """While the block runs, Ctrl-C or SIGTERM only sets ``signum``. A second Ctrl-C raises ``KeyboardInterrupt``."""

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
            raise KeyboardInterrupt
        self.signum = signum
