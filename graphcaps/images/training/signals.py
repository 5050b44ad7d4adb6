"""Handling of Ctrl-C and SIGTERM during a training, which saves its state before it stops."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Let Ctrl-C and SIGTERM stop nothing while the block runs. A second Ctrl-C raises ``KeyboardInterrupt``.

    Yield a function that returns the signal that was received, or 0.
    """
    received: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if received and signum == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signum)

    before = {}
    if threading.current_thread() is threading.main_thread():  # Python sets handlers in no other thread
        before = {signum: signal.signal(signum, note) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[-1] if received else 0
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
