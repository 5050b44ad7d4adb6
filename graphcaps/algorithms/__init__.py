"""Routing algorithms: `Routing`, their base class, the votes that they route, and one file for each algorithm."""
