"""Progress: where there is no terminal a line at least every 30 seconds, with the time left, and none in short work."""

from __future__ import annotations

import pytest

from graphcaps import train
from graphcaps.cli import main
from graphcaps.progress import Lines, Progress, bar

from . import small


class Clock:
    """Seconds that go by when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(Lines.__init__, "__defaults__", (found, 0.0))
    return found


def test_a_line_comes_every_30_seconds_with_the_time_left(clock):
    heard = []
    lines = Lines(lambda line: heard.append((clock.now - 1000, line)))
    for second in range(1, 101):
        clock.now += 1
        lines.set("test images", second / 120)
    assert heard == [
        (30, "test images  25%  about 2 min left"),
        (60, "test images  50%  about 60 s left"),
        (90, "test images  75%  about 30 s left"),
    ]


def test_a_bar_is_lines_of_stderr_where_there_is_no_terminal(clock, capsys):
    with bar("pruned networks") as on_share:
        on_share(0.25)
        clock.now += 40
        on_share(0.5)
    assert capsys.readouterr() == ("", "pruned networks  50%  about 40 s left\n")
    with bar("pruned networks", show=False) as on_share:
        clock.now += 40
        on_share(0.5)
    assert capsys.readouterr() == ("", "")


def test_training_says_epoch_step_numbers_and_the_time_left_of_all_epochs(capsys, clock):
    with Progress(epochs=4, steps=10, clock=clock) as progress:
        clock.now += 60
        progress.step(1, 5, "loss 0.1")
        assert progress.left() == "  about 2 min left"  # 15 of 40 steps took 60 s
        clock.now += 25
        progress.say("epoch 1/4")
        clock.now += 25
        progress.step(1, 6, "loss 0.1")  # not yet 30 seconds after a line
    assert capsys.readouterr().out == "epoch 2/4, step 5/10  loss 0.1  38%  about 2 min left\nepoch 1/4\n"


def test_a_resumed_training_counts_only_its_own_steps(clock):
    with Progress(epochs=4, steps=10, clock=clock) as progress:
        progress.resume(2, 0)
        clock.now += 60
        progress.step(2, 5, "")
        assert progress.left() == "  about 3 min left"  # 5 steps took 60 s, 15 are left


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
    monkeypatch.setattr(Lines, "set", lambda self, title, share: found.setdefault(title, []).append(share))
    return found


def test_every_step_of_a_training_and_its_test_are_told(told):
    steps = {title.partition("  ")[0]: shares for title, shares in told[1].items()}
    wanted = {f"epoch {epoch}/2, step 3/3": [epoch / 2] for epoch in (1, 2)}
    assert wanted.items() <= steps.items() and steps["test images"] == [1.0]


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        ("evaluate --on noisy", {"test images, noisy"}),
        ("explain --what capsules", {"test images"}),
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
