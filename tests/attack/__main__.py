"""Run all attacks, and count those that are answered well: python -m tests.attack (ten minutes).

Options of pytest may follow: -m "not long" takes three minutes.
"""

import collections
import sys

import pytest

KINDS = {
    "faults of the machine": "attack/test_faults.py attack/test_crash.py test_atomic.py test_kernel_cache.py",
    "damaged files": "attack/test_damage.py attack/test_advice.py test_checkpoint.py",
    "hostile files and lines": "attack/test_strangers_files.py attack/test_command_lines.py test_own_routing.py",
    "torch's other modes": "nn/test_modes.py",
    "wrong calls": "attack/test_wrong_calls.py attack/test_signatures.py",
}


class Counts:
    """Of each file, the tests that passed and that ran; or the trials that a test records."""

    def __init__(self):
        self.of_file = collections.defaultdict(lambda: [0, 0])

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and not report.skipped:
            good, every = dict(report.user_properties).get("trials", (report.passed, 1))
            counts = self.of_file[report.location[0].removeprefix("tests/")]
            counts[:] = counts[0] + good, counts[1] + every


counts = Counts()
files = [f"tests/{file}" for names in KINDS.values() for file in names.split()]
code = pytest.main([*files, "-q", "-m", "", "-p", "no:cacheprovider", *sys.argv[1:]], [counts])
for kind, names in KINDS.items():
    good, every = map(sum, zip(*(counts.of_file[file] for file in names.split()), strict=True))
    print(f"{kind:25} {good:5} of {every:5}")
raise SystemExit(code)
