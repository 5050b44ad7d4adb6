"""Experiments and benchmarks behind the tables of the docs. They run from a checkout and aren't in the wheel."""
