"""The browser in which this folder's tests open pages, one for all of them."""

import pytest

from .browser import CHROMIUM, browser


@pytest.fixture(scope="package")
def chromium():
    """playwright's ``Browser``; tests that take it are skipped where there is none."""
    pytest.importorskip("playwright.sync_api", reason='needs pip install -e ".[dev]"')
    if not CHROMIUM:
        pytest.skip("there is no Chromium here: apt install chromium")
    with browser() as started:
        yield started
