"""Benchmarks of the speed and memory of routing and training: ``python -m experiments.bench --help``."""
