"""Routing algorithms: the votes, the base class, and a file for each."""
