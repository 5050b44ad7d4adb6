"""What a person sees while a network trains: a bar on a terminal, else one line per epoch; TensorBoard on request."""

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


class Progress:
    """Shows steps and epochs; ``step`` is cheap to call and looks at the numbers only a few times a second."""

    def __init__(self, epochs: int, steps: int, show: bool = True):
        self.epochs, self.steps, self.show = epochs, steps, show
        self.bar: rich.progress.Progress | None = None
        self.task: rich.progress.TaskID | None = None
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
        return time.monotonic() >= self.next_look

    def step(self, epoch: int, step: int, numbers: str) -> None:
        """Show that ``step`` steps of ``epoch`` (from 0) are done."""
        self.next_look = time.monotonic() + 0.2
        if self.bar is not None:
            title = f"epoch {epoch + 1}/{self.epochs}"
            if self.task is None:
                self.task = self.bar.add_task(title, total=self.steps, numbers=numbers)
            self.bar.update(self.task, description=title, completed=step, numbers=numbers)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self.show:
            print(text, flush=True) if self.bar is None else self.bar.console.print(
                text, highlight=False, markup=False, soft_wrap=True
            )


@contextlib.contextmanager
def bar(title: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal while the block runs; yield what sets it, from 0 to 1."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(title, total=1.0)
        yield lambda share: shown.update(task, completed=share)


def tensorboard(folder: Path) -> SummaryWriter:
    """A writer of TensorBoard events in ``folder``; raise ``GraphcapsError`` where TensorBoard isn't installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        then = 'Run: pip install -e ".[tensorboard]"'
        raise GraphcapsError(f"tensorboard: expected it to be installed, got none. {then}") from None
    return SummaryWriter(str(folder / "tensorboard"))
