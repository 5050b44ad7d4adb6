"""Stopping in good order: a signal becomes a note that a loop reads when it can save."""

from __future__ import annotations

import signal


class StopSignals:
    """Notes Ctrl-C and SIGTERM while the block runs, in ``signum`` (0: none came); a second Ctrl-C stops at once."""

    signum = 0

    def __enter__(self) -> StopSignals:
        self.before = {}
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

    def _note(self, signum: int, frame: object) -> None:
        if self.signum and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = signum
