"""The progress of a long task: a bar on a terminal, otherwise a line every 30 seconds. Both show the time left."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from .names import escaped

INTERVAL = 30.0  # seconds between two lines, if there is no terminal
REFRESH = 0.2  # seconds between two updates of a bar


class _Lines:
    """A file in which tqdm's updates become lines on standard error."""

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Do nothing, because each line was flushed."""


@contextlib.contextmanager
def bar(title: str, show: bool = True, start: float = 0.0) -> Iterator[Callable[..., None]]:
    """Show progress while the block runs. The share ``start`` of the task, from 0 to 1, was done earlier.

    Yield a function that receives the share that is done and, if it changes, the title.
    """
    if sys.stderr.isatty():
        look: dict[str, Any] = {"mininterval": REFRESH, "dynamic_ncols": True, "bar_format": "{desc} {bar} {remaining}"}
    else:
        look = {"mininterval": INTERVAL, "delay": INTERVAL, "bar_format": "{desc}  {percentage:.0f}%  {remaining} left"}
        look["file"] = _Lines()
    with tqdm(total=1.0, initial=start, desc=title, disable=not show, leave=False, miniters=0, **look) as shown:

        def on_progress(share: float, title: str = title) -> None:
            shown.set_description_str(title, refresh=False)
            shown.update(share - shown.n)

        yield on_progress


def say(text: str) -> None:
    """Print a line that no bar overwrites."""
    with tqdm.external_write_mode():
        print(escaped(text), flush=True)
