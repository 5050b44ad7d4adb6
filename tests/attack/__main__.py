"""Repeat all trials, the long ones too: ``python -m tests.attack`` in a checkout, ten minutes on two cores."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from .test_signatures import answers

counts = Counter()
for how, line in answers():
    counts[how] += 1
    if how != "clear":
        print(line)
print(f"wrong calls: {dict(counts)}")
sys.exit(pytest.main([str(Path(__file__).parent), "-m", "long or not long", "-q", "-p", "no:cacheprovider"]))
