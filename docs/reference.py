"""A Sphinx extension that makes the reference: an entry for every name in a package's `__all__`, from its docstring.

Pages in docs/reference/ use its directive ``public`` with the name of a package. Docstrings are plain text with
``Args:`` and other sections, not reStructuredText. They are translated here: characters that have a meaning in
reStructuredText are escaped, and indented formulas become blocks of code.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

TOP = "graphcaps"
# A name's entry is on the page of the first of these packages that contains the name; graphcaps itself comes last.
PACKAGES = [*(f"{TOP}.{part}" for part in ("routing", "nn", "pyg", "graph", "trace", "viz")), TOP]
SECTIONS = ("Args", "Attributes", "Differs", "Raises", "Returns", "Shapes", "Warns", "Yields")
AS_LINES = ("Shapes",)  # sections whose line breaks are kept


def public_names(package: str) -> dict[str, Any]:
    """The names in the package's ``__all__``, and their values."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def page_of(name: str, value: Any) -> str:
    """The package whose page contains the entry of a name.

    >>> from graphcaps import route
    >>> page_of("route", route)
    'graphcaps.routing'
    """
    return next(package for package in PACKAGES if public_names(package).get(name) is value)


def escape(text: str) -> str:
    r"""Convert prose to reStructuredText that looks the same. Code stays code; names of graphcaps become links.

    >>> escape("b (E, *), |v| of `c` and ``s_``")
    'b (E, \\*), \\|v\\| of ``c`` and ``s_``'
    """
    parts = re.split(r"(``.+?``|`[^`]+`)", text, flags=re.DOTALL)
    parts[::2] = [re.sub(r"([\\*|`]|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    code = [part.strip("`") for part in parts[1::2]]
    parts[1::2] = [f":py:obj:`{c}`" if re.fullmatch(r"graphcaps(\.\w+)+", c) else f"``{c}``" for c in code]
    return "".join(parts)


def translate(lines: list[str]) -> list[str]:
    """Convert a docstring's lines to reStructuredText for Sphinx's extension napoleon.

    >>> translate(["Sum of *:", "", "    s = a b", "", "Shapes:", "    (E, *)", "", ">>> 2 * 3", "6"])
    ['Sum of \\\\*:', '', '::', '', '    s = a b', '', 'Shapes:', '    ::', '', '        (E, *)', '', '>>> 2 * 3', '6']
    """
    made: list[str] = []
    section, in_formula = "", False
    for paragraph in "\n".join(lines).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        indented, example = first.startswith(" "), first.lstrip().startswith(">>>")
        if not indented and not example:
            section = first[:-1] if first.rstrip(":") in SECTIONS else ""
        if indented and not section and not example and not in_formula:
            made.append("::")
        in_formula = indented and not section and not example
        if section in AS_LINES and not example:
            paragraph = f"{first}\n    ::\n\n" + textwrap.indent(rest.replace("``", ""), " " * 4)
        elif not in_formula and not example:
            paragraph = escape(paragraph)
        made.append(paragraph)
    return "\n\n".join(made).split("\n")


def translate_docstring(_app: Sphinx, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Translate a docstring in place. Autodoc calls this function before napoleon's."""
    lines[:] = translate(lines)


def skip_member(_app: Sphinx, _what: str, _name: str, value: Any, skip: bool, _options: Any) -> bool | None:
    """Leave out the fields of named tuples, whose docstring is Python's "Alias for field number 0"."""
    return True if (inspect.getdoc(value) or "").startswith("Alias for field number") else None


class Public(SphinxDirective):
    """``.. public:: graphcaps.nn``: a table of the package's names, then the entries that aren't on another page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = self.arguments[0]
        rows, entries = [], []
        for name, value in public_names(package).items():
            page = page_of(name, value)
            if page == package and not isinstance(value, ModuleType):
                entries += self._entry(f"{package}.{name}", value)
            rows += [f"   * - {self._link(name, value, page)}", f"     - {self._summary(value)}"]
        table = [f".. py:module:: {package}", "", ".. list-table::", "   :widths: auto", "", *rows, ""]
        return self.parse_text_to_nodes("\n".join(table + entries), allow_section_headings=True)

    @staticmethod
    def _entry(name: str, value: Any) -> list[str]:
        if inspect.isclass(value):
            return [f".. autoclass:: {name}", ""]
        if callable(value):
            return [f".. autofunction:: {name}", ""]
        return [f".. py:data:: {name.rpartition('.')[2]}", f"   :value: {value!r}", ""]

    @staticmethod
    def _link(name: str, value: Any, page: str) -> str:
        if isinstance(value, ModuleType):
            return f":py:mod:`{name} <{value.__name__}>`" if value.__name__ in PACKAGES else f"``{name}``"
        return f":py:obj:`{name} <{page}.{name}>`"

    @staticmethod
    def _summary(value: Any) -> str:
        if isinstance(value, ModuleType) or inspect.isclass(value) or callable(value):
            first = (inspect.getdoc(value) or f"The package ``{value.__name__}``.").partition("\n\n")[0]
            return escape(" ".join(first.split()))
        return f"``{value!r}``"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("public", Public)
    app.connect("autodoc-process-docstring", translate_docstring, priority=400)  # napoleon's is 500
    app.connect("autodoc-skip-member", skip_member)
    return {"parallel_read_safe": True}
