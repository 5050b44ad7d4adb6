"""The graphs, engines and devices on which routing is tested.

A test marked ``fact(n)`` proves fact n of docs/testing.md. One that takes ``way`` proves it for every routing and
engine, on every device at hand, or for the routings that it is marked with, ``routings(*names)``. One that takes
``graph``, ``trailing`` or ``dtype`` is run on CASES; those after the first two are marked ``long``.
"""

import os
import re
from pathlib import Path

import pytest
import small
import torch
from ways import Way, routings_and_engines, unsupported_reason

from graphcaps import bipartite_graph, complete_graph, dgl


def pytest_generate_tests(metafunc):
    if "way" in metafunc.fixturenames:
        devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        only = metafunc.definition.get_closest_marker("routings")
        names = [name for name in routings_and_engines() if only is None or name[0] in only.args]
        ways = [Way(*name, device) for device in devices for name in names]
        if not metafunc.definition.get_closest_marker("fact"):  # the oracle proves facts alone
            ways = [way for way in ways if way.engine != "oracle"]
        metafunc.parametrize("way", ways, ids=str, indirect=True)
    own = re.findall(r"\w+", str([mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]))
    if names := [name for name in CASES[0] if name in metafunc.fixturenames and name not in own]:
        metafunc.parametrize(names, cases_of(names))


@pytest.fixture(scope="session")
def mnist_root() -> Path:
    """The folder that torchvision's MNIST takes as its root: the environment variable GRAPHCAPS_MNIST names it."""
    root = Path(os.environ.get("GRAPHCAPS_MNIST", ""))
    if not (root / "MNIST" / "raw").is_dir():
        pytest.skip("GRAPHCAPS_MNIST names no folder with MNIST/raw")
    return root


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to be in, and few digits for every command to read."""
    small.use(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def one_thread():
    """For tests of many tiny tensors: waking a second thread for each takes longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def way(request) -> Way:
    if reason := unsupported_reason(request.param):
        pytest.skip(reason)
    return request.param


def _random_ends(num_edges: int, num_children: int, num_parents: int, dtype):
    """More edges than pairs, so with duplicates; the last child and the first parent are isolated."""
    draw = torch.Generator().manual_seed(num_edges)
    src = torch.randint(0, num_children - 1, (num_edges,), generator=draw)
    dst = torch.randint(1, num_parents, (num_edges,), generator=draw)
    return src.to(dtype), dst.to(dtype)


LOOPS = dgl.graph(([0, 1, 2, 2, 4, 4], [1, 2, 0, 2, 1, 1]), num_nodes=6)
GRAPHS = {
    "complete": complete_graph(4, 3),
    "sparse_7x5": bipartite_graph(*_random_ends(63, 7, 5, torch.int64), 7, 5),
    "sparse_5x9_int32": bipartite_graph(*_random_ends(100, 5, 9, torch.int32), 5, 9),
    "other_names": dgl.heterograph({("user", "buys", "item"): ([0, 0, 2, 2], [1, 0, 1, 1])}, {"user": 4, "item": 3}),
    "block": dgl.to_block(LOOPS, [1, 2, 5, 0]),
}


# A few cases, not all products: routing/test_routing.py draws random graphs of every kind and size.
CASES = [
    {"graph": graph, "dtype": dtype, "trailing": trailing}
    for graph, dtype, trailing in (
        ("sparse_7x5", torch.float64, (3,)),
        ("complete", torch.float64, (3,)),
        ("block", torch.float64, ()),
        ("other_names", torch.float32, (3,)),
        ("sparse_5x9_int32", torch.float32, (2, 3)),
    )
]


def cases_of(names: list[str]) -> list:
    """The distinct cases for a test that takes the values of these names."""
    seen = {}
    for number, case in enumerate(CASES):
        words = [str(case[name]).removeprefix("torch.").replace(", ", "x").strip("(,)") for name in names]
        key = "-".join(word or "no_batch" for word in words)
        values = [GRAPHS[case[name]] if name == "graph" else case[name] for name in names]
        seen.setdefault(key, pytest.param(*values, id=key, marks=() if number < 2 else pytest.mark.long))
    return list(seen.values())


@pytest.fixture
def graphs():
    return GRAPHS


@pytest.fixture
def draw():
    """Seeded normal numbers, drawn in float64 so that every dtype gets the same: ``draw(*shape, dtype=...)``."""
    source = torch.Generator().manual_seed(0)
    return lambda *shape, dtype=torch.float64: torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)
