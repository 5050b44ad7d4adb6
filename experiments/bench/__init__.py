"""Benchmarks: how fast routing and training are, and how much memory they need. ``python -m experiments.bench --help``.

``versus`` is apart from the others: it times two checkouts against each other.
"""
