"""Progress: without a terminal, a line at every interval, with the time left, and none in short or silent work."""

import re

from graphcaps import progress


def test_a_line_comes_at_every_interval_with_the_time_left(monkeypatch, capsys):
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with progress.bar("test images") as on_progress:
        on_progress(0.25)
        progress.say("epoch 1")
        on_progress(0.5, "other images")
    printed = capsys.readouterr()
    assert printed.out == "epoch 1\n"
    lines = [re.fullmatch(r"(\w+ images)  (\d+)%  \S+ left", line) for line in printed.err.splitlines()]
    assert [line.groups() for line in lines if line][-2:] == [("test images", "25"), ("other images", "50")]


def test_short_and_silent_work_prints_nothing(capsys):
    for show in (True, False):
        with progress.bar("a title", show) as on_progress:
            on_progress(0.5)
    assert capsys.readouterr() == ("", "")
