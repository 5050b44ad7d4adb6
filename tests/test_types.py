"""The package as a user's type checker sees it: a script of ten lines passes, wrong calls in it don't."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SCRIPT = """
import torch
from graphcaps import CapsNet, RoutingTrace, complete_graph, dynamic_routing, load, route, squash, watch
from graphcaps.nn import CapsuleLayer

graph = complete_graph(3, 2)
v: torch.Tensor = dynamic_routing(graph, torch.ones(6, 5, 4), iterations=3)
u = squash(torch.randn(8, 5, 4))
layer = CapsuleLayer(8, 2, child_dim=4, parent_dim=6)
lengths = torch.linalg.vector_norm(layer(u), dim=-1)
with watch() as seen:
    route(graph, torch.ones(6, 5, 4))
trace: RoutingTrace = seen["route"]
net: CapsNet = CapsNet.from_preset("compact", image_shape=(1, 28, 28), num_classes=10)
trained: torch.nn.Module = load("runs/mine")
print(trace.num_iterations + 1, v.shape, lengths.shape, net.objects, dynamic_routing(graph, u, return_graph=True)[1])
"""

WRONG = {
    'squash("votes")': 'Argument 1 to "squash" has incompatible type "str"; expected "Tensor"',
    'complete_graph(3, "2")': 'Argument 2 to "complete_graph" has incompatible type "str"; expected "int"',
    "load(3)": 'Argument 1 to "load" has incompatible type "int"',
    "v + trace": "Unsupported operand types",
    "graphcaps.sqash": 'Module has no attribute "sqash"',
}


def mypy_of(script: str, folder: Path) -> list[str]:
    """What mypy says of a script beside the package, one line each."""
    package = folder / "graphcaps"
    package.mkdir()
    for part in (*(ROOT / "graphcaps").iterdir(), ROOT / "viz"):  # as the wheel has it
        (package / part.name).symlink_to(part)
    (folder / "script.py").write_text(script)
    options = ("--strict", "--follow-imports=silent", "--no-error-summary", "--hide-error-context", "--config-file=")
    command = (sys.executable, "-m", "mypy", *options, "--cache-dir", ROOT / "build" / "mypy-script", "script.py")
    env = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode in (0, 1), done.stdout
    return [line for line in done.stdout.splitlines() if line.startswith("script.py:")]


@pytest.mark.long
def test_a_users_script_type_checks_and_wrong_calls_are_errors(tmp_path):
    right = ["import graphcaps", *SCRIPT.splitlines()]
    said = mypy_of("\n".join([*right, *WRONG, ""]), tmp_path)
    by_line: dict[int, list[str]] = {}
    for line in said:
        by_line.setdefault(int(line.split(":")[1]), []).append(line)
    assert [line for number, lines in by_line.items() if number <= len(right) for line in lines] == []
    for number, (call, wanted) in enumerate(WRONG.items(), len(right) + 1):
        assert any(wanted in line for line in by_line.get(number, [])), (call, by_line.get(number))
