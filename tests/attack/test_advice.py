"""Every command and flag that a message names exists; and who follows a message's advice gets out of the trouble."""

import ast
import functools
import re
import shlex
import shutil
from pathlib import Path

import pytest

import graphcaps
from graphcaps.cli import commands, main

COMMAND = re.compile(rf"graphcaps ((?:{'|'.join(commands.COMMANDS)})(?: (?!in\b|and\b|--help\b)[\w/:<>-]+(?:\.\w+)*)*)")
ANY = {"IMAGE": "x.png", "X": "run"}


def messages() -> list[str]:
    """The texts in the package's code, but for docstrings; X stands for what is put into them."""
    found = []
    for path in Path(graphcaps.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        others |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
                found.append(node.value)
    return found


def test_every_command_that_a_message_names_can_be_parsed(monkeypatch):
    parsed = []
    for name, command in commands.COMMANDS.items():
        monkeypatch.setitem(commands.COMMANDS, name, functools.wraps(command)(lambda *_, **__: parsed.append(1)))
    lines = {line for text in messages() for line in COMMAND.findall(text)}
    for line in lines:
        words = [ANY.get(word, word) for word in line.split()]
        assert main(words) == 0, line
    assert len(parsed) == len(lines) > 5


def test_every_flag_that_a_message_names_exists(capsys):
    assert main(["--help"]) == 0
    for name in commands.COMMANDS:
        main([name, "--help"])
    known = {*re.findall(r"--[a-z-]+", capsys.readouterr().out)} | {"--allow-code", "--debug"}
    of_pip = {"--no-deps", "--target", "--python-version", "--only-binary", "--upgrade"}
    named = {flag for text in messages() for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    assert named - of_pip <= known and len(named) > 10


# The run, the files that are lost or damaged, the command that fails, and what to delete before the advice.
TROUBLES = [
    ("begun", {"checkpoints/best.safetensors": None}, "evaluate"),
    ("ended", {"checkpoints/best.safetensors": None}, "evaluate"),
    ("ended", {"result.json": "{"}, "train --resume"),
    ("ended", {"trace.npz": None}, "viz"),
    ("begun", {}, "train --dataset digits --out . --name"),
]


@pytest.mark.parametrize(("run", "lost", "command"), TROUBLES, ids=[f"{t[0]}-{t[2]}-{[*t[1]]}" for t in TROUBLES])
def test_advice_leads_out(runs, here, capsys, run, lost, command):
    shutil.copytree(runs[run], "a run")
    for name, text in lost.items():
        path = Path("a run", name)
        path.unlink() if text is None else path.write_text(text)
    assert main([*command.split(), "a run"]) in (1, 2)
    message = capsys.readouterr().err
    advice = re.search(r"graphcaps ([a-z]+ --resume .*)", message)
    if "Delete it" in message:
        path.unlink()
    if advice:
        assert main(shlex.split(advice[1].rstrip("."))) == 0, capsys.readouterr().err
        assert main([*command.split(), "a run"]) == 0 or command.startswith("train"), capsys.readouterr().err
    else:
        assert re.search("[Tt]rain another|Make one|graphcaps train", message), message
