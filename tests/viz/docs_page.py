"""Give docs/explorer.html the scripts of viz/explorer/page, with its own data: ``python tests/viz/docs_page.py``."""

import sys
from pathlib import Path

from graphcaps.viz.explorer.html import with_data

sys.path.insert(0, str(Path(__file__).parents[1]))
from traces import stored_in

if __name__ == "__main__":
    page = Path(__file__).parents[2] / "docs" / "explorer.html"
    page.write_text(with_data(stored_in(page.read_text(encoding="utf-8"))), encoding="utf-8")
