"""pyproject.toml, the conda environments, the Makefile and CITATION.cff agree."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import graphcaps
from graphcaps import _dgl_wheel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
CUDA, CPU = "environment.yml", "environment-cpu.yml"
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
FORGOTTEN_BY_DGL = {"packaging", "pandas", "psutil", "pydantic", "pyyaml", "requests", "scipy", "tqdm"}


def environment(file: str) -> dict:
    return yaml.safe_load((ROOT / file).read_text())


def packages(file: str) -> dict[str, str]:
    """What the environment asks of each package, by name and without its channel: {"numpy": ">=1.26,<2"}."""
    lines = (line.split("::")[-1] for line in environment(file)["dependencies"])
    return dict(re.fullmatch(r"([\w-]+)(.*)", line).groups() for line in lines)


def numbers(conda_pin: str) -> Version:
    """The version in "=2.4.0.th24.cu124"."""
    return Version(re.match(r"=(\d+(?:\.\d+)*)", conda_pin)[1])


def asked_on(requirement: Requirement, python: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"python_version": python})


@pytest.mark.parametrize("requirement", CORE, ids=str)
def test_a_core_dependency_has_a_lower_bound_and_no_other(requirement):
    assert re.fullmatch(r">=[\d.]+", str(requirement.specifier))


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_dgl_is_asked_for_where_it_has_wheels_and_elsewhere_what_it_needs(python):
    """`graphcaps._dgl_wheel` installs it without its dependencies."""
    asked = {requirement.name for requirement in CORE if asked_on(requirement, python)}
    assert ("dgl" in asked) == (Version(python) <= Version(".".join(map(str, _dgl_wheel.NEWEST))))
    declared = (Requirement(line) for line in importlib.metadata.requires("dgl") or ())
    assert "dgl" in asked or {requirement.name for requirement in declared} - {"torchdata", "pydantic"} <= asked


def test_the_classifiers_name_pythons_that_are_let_in():
    said = [line.removeprefix("Programming Language :: Python :: ") for line in PROJECT["classifiers"]]
    versions = [line for line in said if line.startswith("3.")]
    assert versions and all(version in SpecifierSet(PROJECT["requires-python"]) for version in versions)


def test_the_oldest_torchvision_is_the_one_for_the_oldest_torch():
    oldest = {r.name: Version(str(r.specifier).removeprefix(">=")) for r in CORE}
    assert oldest["torchvision"].minor == oldest["torch"].minor + 15  # 0.19 was released for 2.4, and so on


def test_make_test_oldest_installs_every_lower_bound():
    printed = subprocess.check_output(["make", "--silent", "lower-bounds"], cwd=ROOT, text=True)
    pinned = [Requirement(line) for line in printed.splitlines()]
    assert [(r.name, str(r.specifier).replace("==", ">="), r.marker) for r in pinned] == [
        (r.name, str(r.specifier), r.marker) for r in CORE
    ]


def core_dependencies(file: str) -> list[Requirement]:
    """Those of pyproject.toml that hold for the environment's Python."""
    return [requirement for requirement in CORE if asked_on(requirement, str(numbers(packages(file)["python"])))]


@pytest.mark.parametrize(
    "file, requirement",
    [(file, requirement) for file in (CUDA, CPU) for requirement in core_dependencies(file)],
    ids=str,
)
def test_an_environment_has_every_core_dependency_within_its_bound(file, requirement):
    asked = packages(file)[CONDA_NAMES.get(requirement.name, requirement.name)]
    if asked.startswith("="):
        assert numbers(asked) in requirement.specifier
    else:
        assert str(requirement.specifier) in asked.split(",")


@pytest.mark.parametrize("file", [CUDA, CPU])
def test_an_environment_has_what_dgl_forgets_to_declare(file):
    assert packages(file).keys() >= FORGOTTEN_BY_DGL


@pytest.mark.parametrize("file", [CUDA, CPU])
def test_an_environment_takes_a_python_that_the_project_takes(file):
    assert numbers(packages(file)["python"]) in SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("file", [CUDA, CPU])
def test_dgl_torch_and_torchvision_of_an_environment_fit_its_label(file):
    asked, label = packages(file), environment(file)["channels"][0]
    torch, vision = numbers(asked["pytorch"]), numbers(asked["torchvision"])
    assert re.match(r"dglteam/label/(th\d+)_", label)[1] == f"th{torch.major}{torch.minor}"
    assert (vision.minor, vision.micro) == (torch.minor + 15, torch.micro)
    assert numbers(asked["dgl"]) == Version("2.4.0")
    assert torch == Version("2.4.0")  # the one torch that DGL 2.4.0's libraries are named after


def test_the_cuda_environment_has_one_cuda_throughout():
    asked, label = packages(CUDA), environment(CUDA)["channels"][0]
    cuda = numbers(asked["pytorch-cuda"])
    suffix = label.removeprefix("dglteam/label/").replace("_", ".")
    assert suffix.endswith(f".cu{cuda.major}{cuda.minor}")
    assert asked["dgl"].endswith(f".{suffix}")


def test_the_cpu_environment_differs_only_in_having_no_cuda():
    cuda, cpu = packages(CUDA), packages(CPU)
    assert cuda.keys() - cpu.keys() == {"pytorch-cuda"} and cpu.keys() - cuda.keys() == {"cpuonly"}
    assert [name for name in cuda.keys() & cpu.keys() if cuda[name] != cpu[name]] == ["dgl"]
    assert environment(CPU)["channels"][0] == "dglteam/label/th24_cpu"
    assert "nvidia" not in environment(CPU)["channels"]


@pytest.mark.parametrize("file", [CUDA, CPU])
def test_conda_reads_every_line_of_an_environment(file):
    rattler = pytest.importorskip("rattler", reason="py-rattler, of the dev extra, isn't installed")
    for line in environment(file)["dependencies"]:
        spec = rattler.MatchSpec(line, strict=True)
        assert (spec.version is not None) == bool(re.search("[<>=]", line))
    assert environment(file)["channels"][-1] == "nodefaults"


def test_every_folder_with_python_files_is_packaged():
    sources = [path for top in ("graphcaps", "viz") for path in (ROOT / top).rglob("*.py")]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in sources}
    names = {f"graphcaps.{folder}" if folder.startswith("viz") else folder for folder in folders}
    assert names == set(PYPROJECT["tool"]["setuptools"]["packages"])


def test_the_citation_names_this_version_and_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["version"], citation["license"]) == (graphcaps.__version__, PROJECT["license"])
    assert citation["authors"] == PROJECT["authors"]
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
