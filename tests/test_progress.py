"""Progress: if there is no terminal, a line at least every 30 seconds, with the time left, and none in short work."""

import io

from graphcaps.progress import Progress, bar


class Clock:
    """Seconds that go by when a test adds them."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_line_comes_every_30_seconds_with_the_time_left():
    clock, lines = Clock(), io.StringIO()
    with Progress("test images", lines=lines, clock=clock) as progress:
        for second in range(1, 101):
            clock.now += 1
            progress.set(second / 120)
    assert lines.getvalue().splitlines() == [
        "test images  25%  0:01:30 left",
        "test images  50%  0:01:00 left",
        "test images  75%  0:00:30 left",
    ]


def test_short_and_silent_work_prints_nothing(capsys):
    for show in (True, False):
        with bar("pruned networks", show) as on_progress:
            on_progress(0.5)
    assert capsys.readouterr() == ("", "")
