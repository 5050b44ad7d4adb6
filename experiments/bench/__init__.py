"""Benchmarks of the speed of routing and training: ``python -m experiments.bench --help``."""
