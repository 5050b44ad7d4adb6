"""Makes an editable install importable from a script beside its clone. All other settings are in pyproject.toml.

A clone's folder is usually called graphcaps. It has no ``__init__.py``, so for a script beside it, Python takes this
folder for a namespace package, and never asks the finder that setuptools installs after Python's own finders. So a
second finder is installed before them: it answers only if Python would otherwise find such a folder or nothing.
"""

from setuptools import setup
from setuptools.command import editable_wheel

INSTALLED = "sys.meta_path.append(_EditableFinder)"
FIRST = """
class _BeforeNamespaces:
    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if path is not None or fullname not in MAPPING:
            return None
        spec = PathFinder.find_spec(fullname)
        return spec if spec and spec.origin else _EditableFinder.find_spec(fullname)
"""

# setuptools has no setting for this. If it renames its template, this file has no effect on an editable install.
template = getattr(editable_wheel, "_FINDER_TEMPLATE", "")
editable_wheel._FINDER_TEMPLATE = (
    template.replace(INSTALLED, f"{INSTALLED}\n        sys.meta_path.insert(0, _BeforeNamespaces)") + FIRST
)

setup()
