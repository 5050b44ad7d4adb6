"""Which pip line brings DGL to this Python. `python -m graphcaps._dgl_wheel` runs it where DGL is wanted and missing.

DGL's wheels on the package index are for Python 3.12 and older. One file in them is bound to a Python: the accelerator
of its calls, `dgl/_ffi/_cy3`. DGL does without: where the file can't be imported, it calls its library by ctypes. So
the wheel for 3.12 is what a newer Python gets. pip puts another Python's wheel only where `--target` says.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig

NEWEST = (3, 12)  # the newest Python that DGL has wheels for


def pip_arguments() -> list[str]:
    """What to give to `python -m pip`."""
    if sys.version_info[:2] <= NEWEST:
        return ["install", "dgl"]
    only = ["--python-version", ".".join(map(str, NEWEST)), "--only-binary=:all:"]
    return ["install", "--no-deps", "--target", sysconfig.get_path("platlib"), *only, "dgl>=2.1"]


def line() -> str:
    """The whole line, for a shell; an argument with a space or a comparison is quoted."""
    if sys.version_info[:2] <= NEWEST:
        pip = ["pip"]
    elif importlib.util.find_spec("pip") is None:  # an environment that uv made
        pip = ["uv", "pip"]
    else:
        pip = [sys.executable, "-m", "pip"]
    words = [*pip, *pip_arguments()]
    return " ".join(f'"{word}"' if set(word) & set(" <>()&;$'") else word for word in words)


def main() -> int:
    """Nothing to do where pip has read it in pyproject.toml, or where it was done before."""
    if sys.version_info[:2] <= NEWEST or importlib.util.find_spec("dgl") is not None:
        return 0
    print(f"DGL has no wheel for this Python, the one for 3.12 does: {line()}", flush=True)
    return subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *pip_arguments()]).returncode


if __name__ == "__main__":
    sys.exit(main())
