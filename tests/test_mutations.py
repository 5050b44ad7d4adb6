"""The tests are tested: wrong code must turn them red."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from .nursery import KERNELS, Nursery

ROOT = Path(__file__).parents[1]
MUTATIONS = yaml.safe_load((ROOT / "tests/mutations/mutations.yaml").read_text(encoding="utf-8"))


def copy_project(folder: Path, *tests: str) -> None:
    """The package and these test files, which then import the copy of the package beside them."""
    for source, copy in (("graphcaps", "graphcaps"), ("viz", "graphcaps/viz")):
        shutil.copytree(ROOT / source, folder / copy, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").mkdir()
    names = (
        "conftest",
        "small",
        "traces",
        "molecules",
        "browser",
        "live",
        "elsewhere",
        "test_explorer_browser",
    )
    helpers = [f"tests/{name}.py" for name in names]
    for name in ("pyproject.toml", *helpers, *tests):
        shutil.copy(ROOT / name, folder / name)


def replace_once(path: Path, old: str, new: str) -> None:
    """Put ``new`` in the place of ``old``, which stands there exactly once; further lines are indented as the first."""
    text, first = path.read_text(encoding="utf-8"), old.splitlines()[0]
    found = [line for line in text.splitlines() if first in line]
    assert len(found) >= 1, f"{path.name}: no line with {first!r}; bring mutations.yaml up to date"
    candidates = set()
    for line in found:
        indent = line[: len(line) - len(line.lstrip())]
        candidates.add((textwrap.indent(old, indent).strip(), textwrap.indent(new, indent).strip()))
    matches = [(before, after) for before, after in candidates if text.count(before) == 1]
    assert len(matches) == 1, f"{path.name}: {first!r} stands there {len(found)} times; bring mutations.yaml up to date"
    path.write_text(text.replace(*matches[0]), encoding="utf-8")


FACTS = "tests/test_facts.py"


def arguments(mutation: dict) -> tuple[str, ...]:
    """What pytest is given to find the mistake."""
    fact = ("--fact", str(mutation["fact"])) if "fact" in mutation else ()
    if "tests" in mutation:
        return (mutation["tests"], *fact, *(("-m", "long") if mutation.get("long") else ()))
    # making thousands of tests takes longer than those that find the mistake
    return (FACTS, *fact, "--routing", mutation.get("routing", "dynamic"))


class Project(NamedTuple):
    """A copy, what runs its tests, and which of them mistakes have turned red."""

    nursery: Nursery
    red: set[str]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Project]:
    """One copy for all mutations, so that what Numba has compiled in it serves the next.

    At the end all tests that were red are run in the copy as it is: there they must be green, or it was not the mistake
    that they saw.
    """
    folder = tmp_path_factory.mktemp("project")
    copy_project(folder, *{arguments(mutation)[0].partition("::")[0] for mutation in MUTATIONS})
    with contextlib.closing(Nursery(folder)) as nursery:
        found = Project(nursery, set())
        yield found
        check_green(found)


def check_green(found: Project) -> None:
    for _, tests in itertools.groupby(sorted(found.red), key=lambda test: test.partition("::")[0]):
        together = list(tests)
        if found.nursery.run(*together, "-m", "")[0] == pytest.ExitCode.OK:
            continue
        for test in together:  # on one page of the browser they may disturb each other
            code, said = found.nursery.run(test, "-m", "")
            assert code == pytest.ExitCode.OK, said


@contextlib.contextmanager
def mutated(folder: Path, mutation: dict):
    """The copy with this mutation in it."""
    path = folder / mutation["file"]
    text, times = path.read_bytes(), path.stat()
    replace_once(path, mutation["old"], mutation["new"])
    forget(folder, path)
    try:
        yield
    finally:
        path.write_bytes(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        forget(folder, path)


def forget(folder: Path, path: Path) -> None:
    """Drop what is compiled of a file: Python knows it by its size and the second it was written in, and Numba looks at
    the kernels' file alone, not at what is compiled into them."""
    for kept in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        kept.unlink()
    if path.name in ("arguments.py", "simd.py", "tiles.py"):
        for kept in (folder / KERNELS).rglob("kernels*.nb?"):
            kept.unlink()


def cases() -> list:
    """Those that break one of the twelve facts are `long`, the others are for a `release`."""
    marks = {True: pytest.mark.long, False: pytest.mark.release}
    return [pytest.param(m, id=m["name"].replace(" ", "_"), marks=marks["fact" in m]) for m in MUTATIONS]


@pytest.mark.parametrize("mutation", cases())
def test_wrong_code_turns_the_tests_of_its_fact_red(mutation, project):
    with mutated(project.nursery.folder, mutation):
        code, said = project.nursery.run(*arguments(mutation), "-x")
    assert code == pytest.ExitCode.TESTS_FAILED, said
    # A wrong number, not code that doesn't run: NameError and the like would be red without any good test.
    seen = "AssertionError|assert |Failed: DID NOT RAISE|.*GradcheckError"
    red = re.search(rf"^FAILED (.+?) - ({seen})", said, re.MULTILINE)
    assert red and not re.search(r"^ERROR ", said, re.MULTILINE), said
    project.red.add(red[1])
