"""Benchmarks of the speed and memory of routing and training: ``python -m experiments.bench --help``.

``python -m experiments.bench.versus`` compares the times of two checkouts.
"""
