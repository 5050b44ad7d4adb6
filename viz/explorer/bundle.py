"""Join the ES modules of ``page/`` to one script that needs no server, no request and no build step.

Each module becomes a function that returns what it exports, and an import reads the result of that function::

    import { fill, $ } from "./tools.js";       const { fill, $ } = tools_js;
    export function draw() { ... }              const charts_js = (() => { ... return { draw }; })();

Modules run in the order of their imports, as in a browser. Hence only these forms are allowed: named imports without
new names, imports for their effects, and ``export`` in front of a function, a class or a const of one name. A module
with an await outside of its functions becomes an async function.
"""

import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import (?:\{ ([\w$, ]+) \} from )?"\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) ([\w$]+))", re.MULTILINE)
_AWAIT = re.compile(r"^(?:const \w+ = )?await ", re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n|^ +", re.MULTILINE)


def bundled(entry: str, read: Callable[[str], str]) -> str:
    """The script of the module ``entry`` and of all that it imports; ``read(name)`` returns the text of a module.

    Raises:
        ValueError: a module has an import or export of another form, or imports a name that isn't exported.
        RecursionError: a module imports itself through others.

    >>> modules = {"page": 'import { two } from "./numbers.js";\\nlog(two);\\n', "numbers": "export const two = 2;\\n"}
    >>> print(bundled("page", modules.__getitem__))
    const numbers_js = (() => {
    const two = 2;
    return { two };
    })();
    const page_js = (() => {
    const { two } = numbers_js;
    log(two);
    return {  };
    })();
    """
    exports: dict[str, list[str]] = {}
    scripts: list[str] = []

    def add(name: str) -> None:
        if name in exports:
            return
        text = _COMMENT.sub("", read(name))  # and indents: only browsers read the page
        for names, source in _IMPORT.findall(text):
            add(source)
            if missing := set(filter(None, names.split(", "))) - set(exports[source]):
                raise ValueError(f"{name}.js imports what {source}.js doesn't export: {', '.join(sorted(missing))}")
        exports[name] = _EXPORT.findall(text)
        body = _EXPORT.sub("", _IMPORT.sub(_as_const, text))
        if wrong := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
            raise ValueError(f"{name}.js has a form that bundle.py doesn't know: {wrong[0]}")
        start = "await (async () => {" if _AWAIT.search(body) else "(() => {"
        scripts.append(f"const {name}_js = {start}\n{body.strip()}\nreturn {{ {', '.join(exports[name])} }};\n}})();")

    add(entry)
    return "\n".join(scripts)


def _as_const(import_line: re.Match) -> str:
    names, source = import_line.groups()
    return f"const {{ {names} }} = {source}_js;\n" if names else ""
