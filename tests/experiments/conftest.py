from pathlib import Path

import pytest

from . import small_data


@pytest.fixture
def data(tmp_path) -> Path:
    """A folder with small graphs in files named like the real ones."""
    return small_data.write(tmp_path / "data")
