"""The tests are tested: wrong code must turn them red, and a skip that hides an engine must fail the session."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .nursery import Nursery, run_pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
MUTATIONS = yaml.safe_load((ROOT / "tests/mutations/mutations.yaml").read_text(encoding="utf-8"))


def copy_project(folder: Path, *tests: str) -> None:
    """The package and these test files, which then import the copy of the package beside them."""
    for source, copy in (("graphcaps", "graphcaps"), ("viz", "graphcaps/viz")):
        shutil.copytree(ROOT / source, folder / copy, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").mkdir()
    names = ("conftest", "small", "traces", "molecules", "planetoid", "rings", "browser", "live")
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
        return (mutation["tests"], *fact)
    # making thousands of tests takes longer than those that find the mistake
    return (FACTS, *fact, "--routing", mutation.get("routing", "dynamic"))


def run_by_some() -> list[tuple[str, ...]]:
    """What must be green without a mutation: each file, with the facts that mutations ask of it, for one routing."""
    every = {arguments(mutation) for mutation in MUTATIONS}
    whole = {one for one in every if len(one) == 1}
    facts = {(FACTS, *one[-2:]) for one in every if one[0] == FACTS}
    others = whole | {one for one in every if one[0] != FACTS and one[:1] not in whole}
    return sorted(facts | {(*one, "--routing", "dynamic") for one in others - {(FACTS,)}})


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Nursery]:
    """One copy for all mutations, so that what Numba has compiled in it serves the next."""
    folder = tmp_path_factory.mktemp("project")
    copy_project(folder, *{arguments(mutation)[0] for mutation in MUTATIONS})
    nursery = Nursery(folder)
    yield nursery
    nursery.close()


@contextlib.contextmanager
def mutated(folder: Path, mutation: dict):
    """The copy with this mutation in it."""
    path = folder / mutation["file"]
    text, times = path.read_bytes(), path.stat()
    replace_once(path, mutation["old"], mutation["new"])
    forget(path)
    try:
        yield
    finally:
        path.write_bytes(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        forget(path)


def forget(path: Path) -> None:
    """Drop what is compiled of a file: Python knows it by its size and the second it was written in, and Numba looks at
    the kernels' file alone, not at what is compiled into them."""
    for kept in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        kept.unlink()
    if path.name in ("arguments.py", "simd.py", "tiles.py"):
        for kept in path.parent.glob("__pycache__/kernels*.nb?"):
            kept.unlink()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation["name"].replace(" ", "_"))
def test_wrong_code_turns_the_tests_of_its_fact_red(mutation, project):
    with mutated(project.folder, mutation):
        code, said = project.run(*arguments(mutation), "-x")
    assert code == pytest.ExitCode.TESTS_FAILED, said
    # A wrong number, not code that doesn't run: NameError and the like would be red without any good test.
    assert re.search(r"^FAILED \S+ - (AssertionError|assert |.*GradcheckError)", said, re.MULTILINE), said
    assert not re.search(r"^ERROR ", said, re.MULTILINE), said


@pytest.mark.parametrize("asked", run_by_some(), ids=" ".join)
def test_the_copy_is_green_without_a_mutation(asked, project):
    code, said = project.run(*asked)
    assert code == pytest.ExitCode.OK, said


def test_a_mutation_that_is_out_of_date_is_an_error(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("if a:\n    x = 1\n    y = 2\nx = 1\nx = 1\n")
    with pytest.raises(AssertionError, match="code.py: no line with 'z'"):
        replace_once(path, "z", "")
    with pytest.raises(AssertionError, match="code.py: 'x = 1' stands there 3 times"):
        replace_once(path, "x = 1", "x = 2")
    replace_once(path, "x = 1\ny = 2\n", "x = 3\ny = 4\n")
    assert path.read_text() == "if a:\n    x = 3\n    y = 4\nx = 1\nx = 1\n"


# The grid

SKIPS = """
import pytest

@pytest.mark.fact(1)
def test_engine(way, dtype):
    if (way.routing, way.engine) == ("dynamic", "torch"):
        pytest.skip("no time")

@pytest.mark.fact(10)
@pytest.mark.parametrize("data", ["digits", "elsewhere"])
def test_no_engine(data):
    if data == "elsewhere":
        pytest.skip("no such data here")

@pytest.mark.fact(11)
@pytest.mark.skip(reason="later")
def test_later():
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one_process", "xdist"])
def test_a_skip_that_hides_something_fails_the_session(tmp_path, workers):
    copy_project(tmp_path)
    (tmp_path / "tests/test_skips.py").write_text(SKIPS)
    code, said = run_pytest(tmp_path, "tests/test_skips.py", *workers)
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert re.search(r"^ 1  c sums .* 2 +2 +skip 2( +2)* +-$", said, re.MULTILINE), said
    assert re.search(r"^10  all test images .* - +- +- +1 skip 1$", said, re.MULTILINE), said
    assert "skipped: fact 10, any: no such data here" in said
    hidden = re.findall(r"^FAILED: (.*)$", said, re.MULTILINE)
    assert hidden == [
        f"fact {where}: skipped although it can run here" for where in ("1, dynamic-torch-cpu", "11, any")
    ]


def test_a_skip_of_what_can_not_run_here_is_shown_and_allowed(tmp_path):
    copy_project(tmp_path)
    (tmp_path / "tests/test_skips.py").write_text(SKIPS.split("@pytest.mark.fact(10)")[0])
    conftest = tmp_path / "tests/conftest.py"
    replace_once(
        conftest, 'if way.engine == "dgl" and', 'if way.engine == "torch":\n    return "no time"\nif False and'
    )
    code, said = run_pytest(tmp_path, "tests/test_skips.py")
    assert code == pytest.ExitCode.OK, said
    assert "skipped: fact 1, dynamic-torch-cpu: no time" in said


def test_a_failure_is_shown_in_the_grid(tmp_path):
    copy_project(tmp_path)
    (tmp_path / "tests/test_skips.py").write_text(
        SKIPS.split("@pytest.mark.fact(10)")[0].replace("pytest.skip", "1/0 #")
    )
    code, said = run_pytest(tmp_path, "tests/test_skips.py")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"^ 1  c sums .* 2 +2 +FAILED 2( +2)*$", said, re.MULTILINE), said
