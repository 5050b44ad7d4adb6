"""What a person sees of long work: a bar on a terminal, elsewhere a line every 30 seconds; both with the time left."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import GraphcapsError

if TYPE_CHECKING:
    import rich.progress
    from torch.utils.tensorboard import SummaryWriter

INTERVAL = 30.0  # seconds after which a line is printed where there is no terminal


class Lines:
    """Prints how far a work is and how long it will take, where nothing was printed for 30 seconds.

    Args:
        write: takes each line.
        clock: seconds that only grow.
        start: the share of the work that was done before; the time left isn't judged from it.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic, start: float = 0.0):
        self.write, self.clock = write, clock
        self.began = self.printed = clock()
        self.start = self.share = start

    def set(self, title: str, share: float) -> None:
        """Note how much of the work is done, from 0 to 1; print it where a line is due."""
        self.share = share
        if self.clock() >= self.printed + INTERVAL:
            self.printed = self.clock()
            left = self.left()
            self.write(f"{title}  {share:.0%}" + (f"  {said_left(left)}" if left is not None else ""))

    def left(self) -> float | None:
        """Seconds until the end, at the speed since the beginning; None while that isn't known."""
        done = self.share - self.start
        return (self.clock() - self.began) * (1 - self.share) / done if done > 0 else None


def in_words(seconds: float) -> str:
    """
    >>> [in_words(seconds) for seconds in (4, 48, 95, 400, 3540, 3600, 5400, 100_000)]
    ['4 s', '50 s', '2 min', '7 min', '59 min', '1 h', '1 h 30 min', '27 h 47 min']
    """
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds < 10 else f"{round(seconds, -1):.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join([f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0))


def said_left(seconds: float) -> str:
    """``about 3 min left``."""
    return f"about {in_words(seconds)} left"


class Progress:
    """Shows steps and epochs; ``step`` is cheap to call and looks at the numbers only a few times a second."""

    def __init__(self, epochs: int, steps: int, show: bool = True, clock: Callable[[], float] = time.monotonic):
        self.epochs, self.steps, self.show, self.clock = epochs, steps, show, clock
        self.bar: rich.progress.Progress | None = None
        self.task: rich.progress.TaskID | None = None
        self.lines = Lines(_to_stdout, clock)
        self.next_look = 0.0

    def __enter__(self) -> Progress:
        if self.show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[numbers]}"))
            self.bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def due(self) -> bool:
        """Whether it is time to look at the numbers again (looking waits for the device)."""
        return self.clock() >= self.next_look

    def resume(self, epoch: int, step: int) -> None:
        """Note that ``step`` steps of ``epoch`` (from 0) were done before."""
        self.lines = Lines(_to_stdout, self.clock, self._share(epoch, step))

    def step(self, epoch: int, step: int, numbers: str) -> None:
        """Show that ``step`` steps of ``epoch`` (from 0) are done."""
        self.next_look = self.clock() + 0.2
        title = f"epoch {epoch + 1}/{self.epochs}"
        if self.bar is not None:
            done, total = epoch * self.steps + step, self.epochs * self.steps  # the time left is that of all epochs
            if self.task is None:
                self.task = self.bar.add_task(title, total=total, numbers=numbers)
            self.bar.update(self.task, description=title, completed=done, numbers=numbers)
        elif self.show:
            self.lines.set(f"{title}, step {step}/{self.steps}  {numbers}", self._share(epoch, step))

    def _share(self, epoch: int, step: int) -> float:
        return (epoch + step / self.steps) / self.epochs

    def left(self) -> str:
        """The time left, to stand behind a line; "" where a bar shows it, or where a line of it wouldn't come."""
        left = self.lines.left() if self.show and self.bar is None else None
        return f"  {said_left(left)}" if left is not None and left >= INTERVAL else ""

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.lines.printed = self.clock()
        if self.bar is not None:
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self.show:
            _to_stdout(text)


def _to_stdout(line: str) -> None:
    print(line, flush=True)


@contextlib.contextmanager
def bar(title: str, show: bool = True) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal while the block runs, elsewhere lines; yield what sets it, from 0 to 1."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not show:
        yield lambda share: None
    elif console.is_terminal:
        with Bar(console=console, transient=True) as shown:
            task = shown.add_task(title, total=1.0)
            yield lambda share: shown.update(task, completed=share)
    else:
        lines = Lines(lambda line: print(line, file=sys.stderr, flush=True))
        yield lambda share: lines.set(title, share)


def tensorboard(folder: Path) -> SummaryWriter:
    """A writer of TensorBoard events in ``folder``; raise ``GraphcapsError`` where TensorBoard isn't installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        then = 'Run: pip install -e ".[tensorboard]"'
        raise GraphcapsError(f"tensorboard: expected it to be installed, got none. {then}") from None
    return SummaryWriter(str(folder / "tensorboard"))
