"""Every notebook runs from top to bottom, and what is committed of it is small and free of errors."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
LARGEST = 300_000  # bytes


def outputs(path: Path) -> list:
    cells = nbformat.read(path, as_version=4).cells
    return [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_small(path):
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_shows_no_error_and_no_warning(path):
    shown = outputs(path)
    assert [output for output in shown if output.output_type == "error"] == []
    assert [output.text for output in shown if output.get("name") == "stderr"] == []


# The first trains nothing.
FIRST, *OTHERS = (pytest.param(path, id=path.stem) for path in NOTEBOOKS)
RUNS = [FIRST, *(pytest.param(*other.values, id=other.id, marks=pytest.mark.long) for other in OTHERS)]
FEWER = {
    r"epochs=8\b": "epochs=2",
    r"epochs: 4\b": "epochs: 1",
    r"range\((\d)\)": r"range(min(2, \1))",
    r"range\(1?50\)": "range(10)",
}


@pytest.mark.parametrize("path", RUNS)
def test_a_notebook_runs_in_an_empty_folder(path, tmp_path):
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for many, few in FEWER.items():
            cell.source = re.sub(many, few, cell.source)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
