"""The README is true: its tree, its tables, its Python and its commands."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from graphcaps import cli

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def _tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return {path for path in listed.stdout.splitlines() if (ROOT / path).exists()}


def _tree() -> dict[str, str]:
    """Path -> purpose, from the README's tree: two spaces of indent per level, folders end with a slash."""
    block = TEXT.split("## The tree")[1].split("```")[1].strip("\n")
    entries, above = {}, []
    for line in block.splitlines():
        name, _, purpose = line.strip().partition("  ")
        depth = (len(line) - len(line.lstrip())) // 2
        above = [*above[:depth], name]
        entries["".join(above)] = purpose.strip()
    return entries


def test_the_tree_names_every_file_of_the_packages_and_all_at_the_top():
    tracked = _tracked()
    wanted = {path.split("/")[0] + ("/" if "/" in path else "") for path in tracked if not path.startswith(".")}
    wanted |= {path for path in tracked if path.startswith(("graphcaps/", "viz/")) and path.endswith(".py")}
    wanted = {path for path in wanted if not path.endswith("__init__.py")}
    named = {path for path in _tree() if not path.startswith(".")}
    folders = {path for path in named if path.endswith("/")}
    assert wanted - named == set(), "files that the README's tree doesn't name"
    assert {path for path in named - wanted - folders} - tracked == set(), "the tree names files that aren't there"


def test_every_entry_of_the_tree_says_what_it_is_for():
    assert [path for path, purpose in _tree().items() if not purpose] == []


def test_the_tables_are_those_of_the_committed_results():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "tests" / "readme.py")
    readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)
    assert readme.with_tables(TEXT) == TEXT, "run: python tests/readme.py"


def test_the_python_example_prints_what_its_comments_say():
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)[1]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {})
    shape, couplings, entropy = said.getvalue().splitlines()
    assert shape == "torch.Size([10, 32, 16])" and couplings == "torch.Size([200, 32])"
    assert 0 < float(re.search(r"[\d.]+", entropy)[0]) < 2.3026


@pytest.mark.parametrize("library", ["dgl", "pyg"])
def test_the_examples_of_graph_layers_print_the_shapes_that_their_comments_say(library):
    if library == "pyg":
        pytest.importorskip("torch_geometric", reason='needs pip install "graphcaps[pyg]"')
    _, in_dgl, in_pyg = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    code = in_dgl if library == "dgl" else in_dgl + in_pyg  # PyG's goes on with the same graph
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {})
    lines = said.getvalue().splitlines()
    if library == "pyg":
        difference = lines.pop(3)
        assert difference.startswith("tensor(") and float(re.search(r"\d[\d.e-]*", difference)[0]) < 1e-6
    shapes = re.findall(r"print.*# (\[[\d, ]+\])", code)
    assert lines == [f"torch.Size({x})" for x in shapes]


def test_every_command_and_flag_in_the_readme_is_one(capsys):
    commands = re.findall(r"(?:^|`)(graphcaps (?:\w+)[^`\n#]*)", TEXT, re.MULTILINE)
    assert len(commands) > 8
    for command in commands:
        _, name, *words = shlex.split(command)
        assert name in cli.COMMANDS, command
        cli.main([name, "--help"])
        flags = {word for word in words if word.startswith("--")}
        known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        assert flags <= known, command


def test_every_picture_of_the_readme_is_here_and_small():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", TEXT)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).stat().st_size < 1_000_000, picture
