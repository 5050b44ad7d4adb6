"""The browser in which the tests of this folder open pages: one for each file of tests."""

from __future__ import annotations

import pytest

from .browser import browser, why_not


@pytest.fixture(scope="module")
def chromium():
    """playwright's ``Browser``; tests that take it are skipped where there is none."""
    if reason := why_not():
        pytest.skip(reason)
    with browser() as started:
        yield started
