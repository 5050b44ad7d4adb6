"""Threads: as many as this process has cores for, waiting without spinning, and what the user has set stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphcaps
from graphcaps import threads
from graphcaps.threads import Clock, Start

OURS = {*threads.WAITING, threads.NUMBER, threads.HUGE_PAGES}
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def machine(root: Path, monkeypatch, processors: int, siblings: int = 1) -> Path:
    """Files of a machine whose cores have so many hyperthreads each."""
    monkeypatch.setattr(threads, "affinity", lambda: set(range(processors)))
    half = processors // siblings
    for k in range(processors):
        own = ",".join(str(other) for other in range(k % half, processors, half))
        folder = root / f"sys/devices/system/cpu/cpu{k}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(own + "\n")
    return root


def limit(root: Path, mount: str, **files: str) -> None:
    folder = root / "sys/fs/cgroup" / mount
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("cpu_", "cpu.")).write_text(text + "\n")


def member(root: Path, *lines: str) -> None:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text("\n".join(lines) + "\n")


def test_hyperthreads_of_one_core_count_once(tmp_path, monkeypatch):
    assert threads.cores(machine(tmp_path, monkeypatch, 8, siblings=2)) == 4


@pytest.mark.parametrize(
    ("quota", "count"),
    [("max 100000", 8), ("160000 100000", 2), ("20000 100000", 1)],
)
def test_version_2_cgroups_limit_the_cores(tmp_path, monkeypatch, quota, count):
    root = machine(tmp_path, monkeypatch, 8)
    member(root, "0::/jobs/own")
    limit(root, "jobs/own", cpu_max=quota)
    assert threads.cores(root) == count


def test_in_a_container_the_limit_stands_where_its_cgroup_is_mounted(tmp_path, monkeypatch):
    root = machine(tmp_path, monkeypatch, 8)
    member(root, "0::/docker/0123")  # the host's path, which isn't there
    limit(root, "", cpu_max="200000 100000")
    assert threads.cores(root) == 2


@pytest.fixture
def chosen(monkeypatch):
    """What ``before_torch`` sets in a fresh process where the user has set some variables."""

    def choose(users: dict[str, str]) -> dict[str, str]:
        with monkeypatch.context() as patch:
            for name in OURS:
                patch.delenv(name, raising=False)
            for name, value in users.items():
                patch.setenv(name, value)
            patch.setattr(threads, "cores", lambda: 6)
            patch.setattr(sys, "platform", "linux")
            patch.delitem(sys.modules, "torch")
            start = threads.before_torch.__wrapped__()
            found = {name: os.environ[name] for name in OURS & os.environ.keys()}
            assert set(start.variables) == found.keys() - users.keys()
            for name in start.variables:
                del os.environ[name]
            return found

    return choose


WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "1"}
CORES, PAGES = {"OMP_NUM_THREADS": "6"}, {"THP_MEM_ALLOC_ENABLE": "1"}


@pytest.mark.parametrize(
    ("users", "wanted"),
    [
        ({}, {**WAITING, **CORES, **PAGES}),
        ({"OMP_NUM_THREADS": "3"}, {**WAITING, "OMP_NUM_THREADS": "3", **PAGES}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE", **CORES, **PAGES}),
        ({"KMP_BLOCKTIME": "200"}, {"KMP_BLOCKTIME": "200", **CORES, **PAGES}),
        ({"THP_MEM_ALLOC_ENABLE": "0"}, {**WAITING, **CORES, "THP_MEM_ALLOC_ENABLE": "0"}),
    ],
)
def test_what_the_user_has_set_stays_and_the_rest_is_chosen(chosen, users, wanted):
    assert chosen(users) == wanted


LOOK = """
import sys
from graphcaps.cli import main
assert main(["--version"]) == 0 and "torch" not in sys.modules
import os, torch
print(torch.get_num_threads(), os.environ["OMP_WAIT_POLICY"], os.environ["KMP_BLOCKTIME"])
"""


@linux
def test_the_command_line_chooses_before_torch_is_loaded():
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment["PYTHONPATH"] = str(Path(graphcaps.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True)
    assert done.stdout.split()[-3:] == [str(threads.cores()), "PASSIVE", "1"], done.stderr


@linux
def test_the_load_of_other_programs_is_all_but_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "affinity", lambda: {0, 2})
    ticks = os.sysconf("SC_CLK_TCK")

    def stat(busy: int) -> Path:
        rows = [
            f"cpu{k} {busy} 0 0 777 777 0 0 0 0 0" for k in (0, 1)
        ] + [f"cpu2 0 {busy // 2} 0 7 7 0 0 {busy // 2} 0 0"]  # fmt: skip
        return write(tmp_path, proc__stat="\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *rows, "intr 5"]))

    before = Clock.now(stat(10 * ticks))
    assert before.all == 20
    after = before._replace(wall=before.wall + 4, own=before.own + 3, all=Clock.now(stat(15 * ticks)).all)
    assert after.others(before) == pytest.approx((10 - 3) / 4)
    assert before._replace(wall=before.wall + 0.1).others(before) is None  # too short to tell
    assert after.others(before._replace(all=None)) is None


@pytest.fixture
def busy(monkeypatch):
    """The command line has chosen 4 threads on 4 cores, and other programs have kept so many cores busy since."""
    start = Clock(100.0, 1.0, 10.0)

    def loaded(others: float, variables: tuple[str, ...] = (threads.NUMBER,)) -> None:
        monkeypatch.setattr(threads, "before_torch", lambda: Start(start, variables))
        monkeypatch.setattr(Clock, "now", lambda *root: Clock(110.0, 6.0, 15.0 + 10 * others))
        monkeypatch.setattr(threads, "cores", lambda: 4)
        monkeypatch.setattr(threads, "physical_cores", lambda *root: 4)

    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield loaded
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("others", "left", "words"),
    [
        (0.4, 4, ""),
        (1.7, 2, "2 threads: other programs keep 1.7 of 4 cores busy"),
        (4.0, 1, "1 thread: other programs keep 4.0 of 4 cores busy"),
    ],
)
def test_cores_that_other_programs_keep_busy_are_left_to_them(busy, others, left, words):
    busy(others)
    assert threads.leave_busy_cores() == words and torch.get_num_threads() == left


def test_a_number_that_the_user_or_a_script_chose_is_kept(busy):
    busy(4.0, variables=("OMP_WAIT_POLICY",))
    assert threads.leave_busy_cores() == "" and torch.get_num_threads() == 4


def test_there_are_never_more_threads_than_images_in_a_batch(busy):
    busy(0.0)
    assert threads.leave_busy_cores(most=3) == "" and torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("had", "variables", "takes"),
    [(3, ("OMP_NUM_THREADS",), 3), (9, ("OMP_NUM_THREADS",), 4), (3, (), 2)],
)
def test_a_resumed_training_takes_the_threads_that_it_had(busy, had, variables, takes):
    busy(2.0, variables)
    torch.set_num_threads(2)
    threads.take_threads(had)
    assert torch.get_num_threads() == takes
