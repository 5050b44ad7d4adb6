"""Run all attacks and count, for each kind, how many were answered right: ``python -m tests.attack``."""

import sys
from collections import Counter
from pathlib import Path

import pytest


class Kinds:
    """Counts the cases of each test, which is a kind of attack."""

    def __init__(self):
        self.right, self.all = Counter(), Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            kind = report.location[2].partition("[")[0].removeprefix("test_").replace("_", " ")
            self.all[kind] += 1
            self.right[kind] += report.passed


if __name__ == "__main__":
    kinds = Kinds()
    code = pytest.main(["-q", "--no-header", str(Path(__file__).parent), *sys.argv[1:]], plugins=[kinds])
    for kind, count in kinds.all.items():
        print(f"{kinds.right[kind]:4} of {count:4}  {kind}")
    sys.exit(code)
