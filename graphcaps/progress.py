"""The progress of a long task: a bar on a terminal, otherwise a line every 30 seconds. Both show the time left."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import rich.progress

INTERVAL = 30.0  # seconds between two lines, if there is no terminal
REFRESH = 0.2  # seconds between two updates of a bar


class Progress:
    """Shows the progress of the task ``title`` while a ``with`` block runs. Lines go to standard error by default."""

    def __init__(
        self, title: str, show: bool = True, lines: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ):
        self.title, self.show, self.lines, self.clock = title, show, lines or sys.stderr, clock
        self.bar: rich.progress.Progress | None = None
        self.refreshed = 0.0
        self.start_at(0.0)

    def __enter__(self) -> Progress:
        if self.show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
            self.bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task(self.title, total=1.0, note="")
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def start_at(self, share: float) -> None:
        """Set the share of the task, from 0 to 1, that was done earlier. The estimate of the time left ignores it."""
        self.start = self.share = share
        self.began = self.printed = self.clock()

    def due(self) -> bool:
        """Whether an update would be shown now. Ask this first if computing the update waits for the device."""
        return self.clock() >= self.refreshed + REFRESH

    def set(self, share: float, title: str = "", note: str = "") -> None:
        """Show that this share of the task, from 0 to 1, is done. ``note`` is printed after the title."""
        self.share, self.refreshed = share, self.clock()
        title = title or self.title
        if self.bar is not None:
            self.bar.update(self.task, description=title, completed=share, note=note)
        elif self.show and self.clock() >= self.printed + INTERVAL:
            self.say("  ".join(filter(None, [title, note, f"{share:.0%}", self.time_left()])))

    def time_left(self) -> str:
        """The time left, such as ``0:02:00 left``; "" if it is unknown or below INTERVAL, or if the bar shows it."""
        done = self.share - self.start
        if self.bar is not None or done <= 0:
            return ""
        seconds = (self.clock() - self.began) * (1 - self.share) / done
        return f"{timedelta(seconds=round(seconds))} left" if seconds >= INTERVAL else ""

    def say(self, text: str) -> None:
        """Print a line that the bar doesn't overwrite."""
        self.printed = self.clock()
        if self.bar is not None:
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self.show:
            print(text, file=self.lines, flush=True)


@contextlib.contextmanager
def bar(title: str, show: bool = True) -> Iterator[Callable[[float], None]]:
    """Show progress while the block runs. Yield the function that sets the share that is done, from 0 to 1."""
    with Progress(title, show) as progress:
        yield progress.set
