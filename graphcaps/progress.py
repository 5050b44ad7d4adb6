"""What a person sees of long work: a bar on a terminal, elsewhere a line every 30 seconds; both with the time left."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import GraphcapsError

if TYPE_CHECKING:
    import rich.progress
    from torch.utils.tensorboard import SummaryWriter

INTERVAL = 30.0  # seconds after which something is said where there is no terminal


class Lines:
    """Says how far a work is and how long it will take, where nothing was said for 30 seconds.

    Args:
        title: what is worked on.
        write: takes each line.
        clock: seconds that only grow.
    """

    def __init__(self, title: str, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic):
        self.title, self.write, self.clock = title, write, clock
        self.numbers = ""
        self.began = self.said = clock()
        self.first = self.share = 0.0

    def start_at(self, share: float) -> None:
        """Say that this share of the work was done before, so that the time left isn't judged from it."""
        self.first = self.share = share

    def set(self, share: float) -> None:
        """Note how much of the work is done, from 0 to 1."""
        self.share = share

    def left(self) -> float | None:
        """Seconds until the end, at the speed since the beginning; None while that isn't known."""
        done = self.share - self.first
        return (self.clock() - self.began) * (1 - self.share) / done if done > 0 else None

    def line(self) -> str:
        """How far the work is."""
        left, spent = self.left(), in_words(self.clock() - self.began)
        known = [self.title, f"{self.share:.0%}" if left is not None else f"{spent} so far", self.numbers]
        return "  ".join(filter(None, known)) + (f"  {said_left(left)}" if left is not None else "")

    def due(self) -> float:
        """Seconds until the next line."""
        return max(0.0, self.said + INTERVAL - self.clock())

    def heard(self) -> None:
        """Note that something else was said just now."""
        self.said = self.clock()

    def beat(self) -> None:
        """Say a line where one is due."""
        if self.due() <= 0:
            self.heard()
            self.write(self.line())

    def keep(self, wait: Callable[[float], bool]) -> None:
        """Say lines when they are due until ``wait``, given seconds, says that the work has ended."""
        while not wait(self.due()):
            self.beat()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """``keep`` on a thread of its own while the block runs: also where one step takes minutes."""
        ended = threading.Event()
        thread = threading.Thread(target=self.keep, args=(ended.wait,), daemon=True, name="graphcaps progress")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


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


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _to_stdout(line: str) -> None:
    print(line, flush=True)


class Progress:
    """Shows steps and epochs; ``step`` is cheap to call and looks at the numbers only a few times a second."""

    def __init__(self, epochs: int, steps: int, show: bool = True, clock: Callable[[], float] = time.monotonic):
        self.epochs, self.steps, self.show, self.clock = epochs, steps, show, clock
        self.bar: rich.progress.Progress | None = None
        self.task: rich.progress.TaskID | None = None
        self.lines: Lines | None = None
        self.next_look = 0.0
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Progress:
        if self.show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[numbers]}"))
            self.bar = self.stack.enter_context(Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True)))
        elif self.show:
            self.lines = Lines("training", _to_stdout, self.clock)
            self.stack.enter_context(self.lines.kept())
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def due(self) -> bool:
        """Whether it is time to look at the numbers again (looking waits for the device)."""
        return self.clock() >= self.next_look

    def resume(self, epoch: int, step: int) -> None:
        """Note that ``step`` steps of ``epoch`` (from 0) were done before."""
        if self.lines is not None:
            self.lines.start_at(self._share(epoch, step))

    def step(self, epoch: int, step: int, numbers: str) -> None:
        """Show that ``step`` steps of ``epoch`` (from 0) are done."""
        self.next_look = self.clock() + 0.2
        title = f"epoch {epoch + 1}/{self.epochs}"
        if self.lines is not None:
            self.lines.title, self.lines.numbers = f"{title}, step {step}/{self.steps}", numbers
            self.lines.set(self._share(epoch, step))
        if self.bar is not None:
            done, total = epoch * self.steps + step, self.epochs * self.steps  # the time left is that of all epochs
            if self.task is None:
                self.task = self.bar.add_task(title, total=total, numbers=numbers)
            self.bar.update(self.task, description=title, completed=done, numbers=numbers)

    def _share(self, epoch: int, step: int) -> float:
        return (epoch + step / self.steps) / self.epochs

    def left(self) -> str:
        """The time left, to stand behind a line; "" where a bar shows it, or where a line of it wouldn't come."""
        left = self.lines.left() if self.lines is not None else None
        return f"  {said_left(left)}" if left is not None and left >= INTERVAL else ""

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self.bar is not None:
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self.show:
            _to_stdout(text)
        if self.lines is not None:
            self.lines.heard()


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
        lines = Lines(title, _to_stderr)
        with lines.kept():
            yield lines.set


def tensorboard(folder: Path) -> SummaryWriter:
    """A writer of TensorBoard events in ``folder``; raise ``GraphcapsError`` where TensorBoard isn't installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        then = 'Run: pip install -e ".[tensorboard]"'
        raise GraphcapsError(f"tensorboard: expected it to be installed, got none. {then}") from None
    return SummaryWriter(str(folder / "tensorboard"))
