"""Every command and flag that a message names exists."""

import ast
import functools
import re
from pathlib import Path

import graphcaps
from graphcaps.cli import commands, main

COMMAND = re.compile(rf"graphcaps ((?:{'|'.join(commands.COMMANDS)})(?: (?!in\b|and\b|--help\b)[\w/:<>-]+(?:\.\w+)*)*)")
EXAMPLES = {"IMAGE": "x.png", "X": "run"}


def messages() -> list[str]:
    """The texts in the package's code, except docstrings; X stands for what is put into them."""
    texts = []
    for path in Path(graphcaps.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        others |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
                texts.append(node.value)
    return texts


def test_every_command_and_flag_that_a_message_names_exists(monkeypatch, capsys):
    texts, parsed = messages(), []
    main(["--help"])
    for name, command in commands.COMMANDS.items():
        main([name, "--help"])
        monkeypatch.setitem(commands.COMMANDS, name, functools.wraps(command)(lambda *_, **__: parsed.append(1)))
    flags = {*re.findall(r"--[a-z-]+", capsys.readouterr().out)} | {"--allow-code", "--debug"}
    flags |= {"--no-deps", "--target", "--python-version", "--only-binary", "--upgrade"}  # of pip
    assert {flag for text in texts for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)} <= flags
    lines = {line for text in texts for line in COMMAND.findall(text)}
    for line in lines:
        assert main([EXAMPLES.get(word, word) for word in line.split()]) == 0, line
    assert len(parsed) == len(lines) > 5
