"""Every notebook runs from top to bottom, and its committed outputs are small and free of errors."""

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
MOST_BYTES = 300_000
FEWER = {
    r"epochs=8\b": "epochs=2",
    r"epochs: 4\b": "epochs: 1",
    r"range\((\d)\)": r"range(min(2, \1))",
    r"range\(1?50\)": "range(10)",
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_small_and_shows_no_error_and_no_warning(path):
    assert path.stat().st_size < MOST_BYTES
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs and not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


@pytest.mark.parametrize(
    "path",
    # The first trains nothing.
    [pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path != NOTEBOOKS[0])) for path in NOTEBOOKS],
)
def test_a_notebook_runs_in_an_empty_folder(path, tmp_path):
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for many, few in FEWER.items():
            cell.source = re.sub(many, few, cell.source)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
