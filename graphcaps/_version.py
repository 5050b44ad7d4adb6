"""The version, for modules that would else import the package for it."""

__version__ = "0.1.0"
