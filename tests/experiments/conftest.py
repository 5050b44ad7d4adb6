"""Small graphs under the names of the real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.data import cora, tu

from . import planetoid, related, rings


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A folder with a small Cora, MUTAG and PROTEINS, which are expected there, and small graphs of kinds of edges."""
    folder = tmp_path / "data"
    (folder / "cora").mkdir(parents=True)
    np.savez(folder / "cora" / "cora.npz", **planetoid.arrays())
    monkeypatch.setattr(cora, "WORDS", planetoid.WORDS)
    for name in ("MUTAG", "PROTEINS"):
        rings.write(folder / "tu" / name, name)
        monkeypatch.setitem(tu.NAMES, name, rings.NAMES)
    related.write(folder / "graphs")
    return folder
