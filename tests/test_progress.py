"""Progress: where there is no terminal a line at least every 30 seconds, with the time left, and none in short work."""

from __future__ import annotations

import io
import re
import threading

import pytest

from graphcaps import progress as shown
from graphcaps import train
from graphcaps.cli import main
from graphcaps.progress import INTERVAL, Lines, Progress, bar

from . import small


class Clock:
    """Seconds that go by when told to, on a fake thread that waits."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock) -> Lines:
    found = Lines("test images", lambda line: found.heard_lines.append((clock.now - 1000, line)), clock)
    found.heard_lines = []
    return found


def work(lines: Lines, clock: Clock, seconds: float, at=lambda second: None) -> list[tuple[float, str]]:
    """What the lines say while a work takes so many seconds, of which ``at`` is told each."""
    end = clock.now + seconds

    def wait(due: float) -> bool:
        for _ in range(int(due)):
            if clock.now >= end:
                return True
            clock.now += 1
            at(clock.now - (end - seconds))
        return clock.now >= end

    lines.keep(wait)
    return lines.heard_lines


def test_a_line_comes_every_30_seconds_with_the_time_left(lines, clock):
    heard = work(lines, clock, 100, lambda second: lines.set(second / 120))
    assert heard == [
        (30, "test images  25%  about 2 min left"),
        (60, "test images  50%  about 60 s left"),
        (90, "test images  75%  about 30 s left"),
    ]


def test_short_work_says_nothing(lines, clock):
    assert work(lines, clock, 29, lambda second: lines.set(second / 29)) == []


def test_one_step_of_minutes_is_no_silence(lines, clock):
    assert work(lines, clock, 70) == [(30, "test images  30 s so far"), (60, "test images  60 s so far")]


def test_a_line_of_another_kind_puts_the_next_one_off(lines, clock):
    heard = work(lines, clock, 100, lambda second: lines.heard() if second in (20, 45) else None)
    assert [second for second, _ in heard] == [75]


def test_the_time_left_is_judged_from_what_was_done_since_the_start(lines, clock):
    lines.start_at(0.5)
    (heard,) = work(lines, clock, 40, lambda second: lines.set(0.5 + second / 300))
    assert heard == (30, "test images  60%  about 2 min left")


def test_lines_are_kept_on_a_thread_that_ends_with_the_block(lines):
    with lines.kept():
        (own,) = [thread for thread in threading.enumerate() if thread.name == "graphcaps progress"]
        assert own.daemon
    assert not own.is_alive() and lines.heard_lines == []


@pytest.fixture
def at_once(monkeypatch):
    """A line is due as soon as the thread looks, and then never again; what waits for it goes on when it was said."""
    said = threading.Event()

    def keep(self, wait):
        said.wait(20)
        self.write(self.line())

    monkeypatch.setattr(Lines, "keep", keep)
    return said


def test_a_bar_is_lines_of_stderr_where_there_is_no_terminal(at_once, capsys):
    with bar("pruned networks") as on_share:
        on_share(0.5)
        at_once.set()
    printed = capsys.readouterr()
    assert printed.out == "" and re.fullmatch(r"pruned networks  50%  about \d+ s left\n", printed.err)


def test_a_bar_that_is_not_to_be_shown_says_nothing(at_once, capsys):
    at_once.set()
    with bar("pruned networks", show=False) as on_share:
        on_share(0.5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_and_no_lines(at_once, monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    at_once.set()
    with bar("pruned networks") as on_share:
        on_share(0.5)
    assert "pruned networks" in shown.sys.stderr.getvalue() and "left" not in shown.sys.stderr.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_training_says_epoch_step_numbers_and_the_time_left_of_all_epochs(at_once, capsys, clock):
    with Progress(epochs=4, steps=10, clock=clock) as progress:
        clock.now += 60
        progress.step(1, 5, "loss 0.1")
        assert progress.left() == "  about 2 min left"  # 15 of 40 steps took 60 s
        at_once.set()
    assert capsys.readouterr().out == "epoch 2/4, step 5/10  38%  loss 0.1  about 2 min left\n"


def test_a_resumed_training_counts_only_its_own_steps(at_once, clock):
    at_once.set()
    with Progress(epochs=4, steps=10, clock=clock) as progress:
        progress.resume(2, 0)
        clock.now += 60
        progress.step(2, 5, "")
        assert progress.left() == "  about 3 min left"  # 5 steps took 60 s, 15 are left


def test_a_training_that_is_nearly_done_does_not_say_how_long_it_takes(at_once, clock):
    at_once.set()
    with Progress(epochs=2, steps=10, clock=clock) as progress:
        assert progress.left() == ""
        clock.now += 40
        progress.step(1, 5, "")
        assert progress.left() == ""  # 13 seconds


def test_an_epochs_line_puts_the_next_one_off(at_once, clock, capsys):
    at_once.set()
    with Progress(epochs=2, steps=10, clock=clock) as progress:
        clock.now += 25
        progress.say("epoch 1/2")
        assert progress.lines.due() == INTERVAL
    with Progress(epochs=2, steps=10, show=False, clock=clock) as progress:
        progress.say("epoch 1/2")
        assert progress.lines is None and progress.left() == ""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A run, and what was said to be done of what while it was trained: shares by title."""
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        found = listen(patch)
        run = train(small.config(tmp_path_factory.mktemp("runs")))["run"]
    return run, found


def listen(monkeypatch) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    monkeypatch.setattr(Lines, "set", lambda self, share: found.setdefault(self.title, []).append(share))
    return found


def test_every_step_of_a_training_and_its_test_are_told(told):
    steps = {f"epoch {epoch}/2, step 3/3": [epoch / 2] for epoch in (1, 2)}
    assert steps.items() <= told[1].items() and told[1]["test images"] == [1.0]


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        ("evaluate", {"test images"}),
        ("evaluate --on noisy", {"test images, noisy"}),
        ("explain --what capsules", {"test images"}),
        ("prune --keep 1", {"couplings of the training images", "pruned networks"}),
        ("viz --what entropy --over iterations", {"entropy.gif"}),
    ],
)
def test_every_command_that_takes_long_tells_how_far_it_is(told, words, titles, monkeypatch, capsys):
    small.use(monkeypatch)
    found = listen(monkeypatch)
    command, *rest = words.split()
    assert main([command, told[0], *rest]) == 0
    assert found.keys() == titles
    for shares in found.values():
        assert shares == sorted(shares) and shares[-1] == pytest.approx(1) and shares[0] > 0
