"""What is compared: a YAML file of networks, what is varied, and seeds; each becomes settings of ``graphcaps train``.

    train: {dataset: mnist, epochs: 5}     # settings of all networks, as in graphcaps train --help
    networks:                              # one row of the table each, with settings of its own
      dynamic: {model: compact}
      uniform: {model: compact, routing: uniform}
    vary: {iterations: [1, 3]}             # optional: each network with each of these values
    seeds: [0, 1, 2]
    test_on: [affnist]                     # optional: also evaluated on these images
    against: dynamic                       # optional: the row others are held against; default: the first

All rows have one data set, since they are compared image by image. A plan's names and settings are checked before
anything is trained; what only a network or its data can tell, such as an engine that a routing doesn't have, shows when
its turn comes. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..config import TrainConfig
from ..errors import GraphcapsError, InputError, expect, is_whole

PLANS = Path(__file__).parent / "plans"
RESULTS = Path(__file__).parent / "measured"  # results.json of plans, as graphcaps compare wrote them
_KEYS = ("train", "networks", "vary", "seeds", "test_on", "against")
_OWN = ("seed", "name", "out", "data", "device")  # settings that a plan can't have: the grid or the machine sets them
ON = ("affnist",)


@dataclass(frozen=True)
class Row:
    """One network of the table: ``name``, and ``settings`` of ``TrainConfig`` that differ from the defaults."""

    name: str
    settings: dict


@dataclass(frozen=True)
class Cell:
    """One training: a row with a seed."""

    row: Row
    seed: int

    @property
    def folder(self) -> str:
        """Name of its run folder.

        >>> Cell(Row("dynamic, iterations 3", {}), 0).folder
        'dynamic-iterations-3-seed-0'
        """
        return f"{_slug(self.row.name)}-seed-{self.seed}"


@dataclass(frozen=True)
class Plan:
    """A grid of trainings. ``source`` is the file or the name it was read by."""

    name: str
    source: str
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    on: tuple[str, ...]
    against: str

    @property
    def cells(self) -> list[Cell]:
        """All trainings, a whole table of the first seed first."""
        return [Cell(row, seed) for seed in self.seeds for row in self.rows]

    def config(self, cell: Cell, folder: Path, data: Path, device: str) -> TrainConfig:
        """The settings of one training, whose run folder is in ``folder``."""
        own: dict = dict(seed=cell.seed, name=cell.folder, out=folder, data=data, device=device)
        return TrainConfig(**cell.row.settings, **own)


def plan_names() -> list[str]:
    """Names of the plans that come with graphcaps."""
    return sorted(path.stem for path in PLANS.glob("*.yaml"))


def measured(name: str) -> dict:
    """What was measured of a plan that comes with graphcaps: its results.json, from which tables are made.

    Raises:
        InputError: nothing is kept of such a plan.
    """
    known = sorted(path.stem for path in RESULTS.glob("*.json"))
    expect(name in known, "plan", f"one of {', '.join(known)}", repr(name), f"Run: graphcaps compare {name}")
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


class _NoNameTwice(yaml.SafeLoader):
    """YAML of plain values, in which a name that stands twice is an error and not the last one's."""

    def construct_mapping(self, node, deep=False):
        names = [self.construct_object(name, deep=True) for name, _ in node.value]
        for name, (key, _) in zip(names, node.value, strict=True):
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name} stands twice", key.start_mark)
        return super().construct_mapping(node, deep)


def read_plan(source: str) -> Plan:
    """Read and check a plan.

    Args:
        source: path of a YAML file, or the name of a plan that comes with graphcaps.

    Raises:
        InputError: no such plan, or one that can't be trained; the text names the entry, what was wanted, and got.

    >>> plan = read_plan("routings")
    >>> plan.against, len(plan.cells)
    ('dynamic', 18)
    """
    known = plan_names()
    path = PLANS / f"{source}.yaml" if source in known else Path(source)
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_NoNameTwice)
    except FileNotFoundError:
        wanted, close = f"a YAML file, or one of {', '.join(known)}", difflib.get_close_matches(source, known, n=1)
        hint = f". Did you mean {close[0]}?" if close else ""
        raise InputError(f"plan: expected {wanted}, got {source}{hint}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
            why = f"{error.problem} in line {error.problem_mark.line + 1}"
        raise InputError(f"plan: expected a YAML file, got {source}: {why}") from None
    try:
        return _checked(found, path.stem, source)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _checked(found: object, name: str, source: str) -> Plan:
    if not isinstance(found, dict):
        raise InputError(f"plan: expected entries {', '.join(_KEYS)}, got {type(found).__name__}")
    _known("entry", found, _KEYS)
    networks, seeds, on = found.get("networks"), found.get("seeds", [0]), found.get("test_on", [])
    if not (isinstance(networks, dict) and networks):
        raise InputError(f"networks: expected a name and settings for each, got {networks}")
    whole = isinstance(seeds, list) and bool(seeds) and all(is_whole(seed, 0) for seed in seeds)
    expect(whole and len(set(seeds)) == len(seeds), "seeds", "a list of different integers >= 0", seeds)
    expect(isinstance(on, list), "test_on", f"a list, of {', '.join(ON)}", on)
    _known("test_on", on, ON)
    rows = tuple(_rows(networks, found.get("train") or {}, found.get("vary") or {}))
    names = [row.name for row in rows]
    against = found.get("against", names[0])
    expect(against in names, "against", f"one of the rows {'; '.join(names)}", against)
    slugs = [_slug(name) for name in names]
    twice = sorted({name for name, slug in zip(names, slugs, strict=True) if slugs.count(slug) > 1 or not slug})
    expect(not twice, "networks", "names that differ in letters or digits", "; ".join(twice))
    plan = Plan(name, source, rows, tuple(seeds), tuple(on), against)
    for cell in plan.cells:
        try:
            plan.config(cell, Path("compare"), Path("data"), "auto").check()
        except InputError as error:
            raise InputError(f"{cell.row.name}: {error}") from None
    datasets = {plan.config(cell, Path(), Path(), "auto").dataset for cell in plan.cells}
    expect(
        len(datasets) == 1, "dataset", "one for all networks, whose answers are compared", ", ".join(sorted(datasets))
    )
    alike = [TrainConfig(**row.settings) for row in rows]
    twice = [row.name for row, config in zip(rows, alike, strict=True) if alike.count(config) > 1]
    expect(not twice, "networks", "rows with different settings", "; ".join(twice))
    for row in rows if on else ():
        dataset = row.settings.get("dataset", "mnist")
        then = "affNIST's images have 40 x 40 pixels"
        expect(dataset == "mnist40", "test_on", f"dataset mnist40 for affnist in {row.name}", dataset, then)
    return plan


def _rows(networks: dict, shared: dict, varied: dict):
    fields = [field.name for field in dataclasses.fields(TrainConfig) if field.name not in _OWN]
    for name, settings in (("train", shared), ("vary", varied), *networks.items()):
        expect(settings is None or isinstance(settings, dict), str(name), "settings of graphcaps train", settings)
        _known(f"{name}: setting", settings or {}, fields)
    for key, values in varied.items():
        expect(isinstance(values, list) and bool(values), f"vary: {key}", "a list of values", values)
    for name, own in networks.items():
        own = own or {}
        both = ", ".join(sorted(own.keys() & varied.keys()))
        expect(not both, str(name), "no settings that vary has", both)
        for values in itertools.product(*varied.values()):
            also = dict(zip(varied, values, strict=True))
            said = "".join(f", {key.replace('_', ' ')} {value}" for key, value in also.items())
            yield Row(f"{name}{said}", {**shared, **also, **own})


def _known(what: str, names, known) -> None:
    for name in names:
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"Did you mean {close[0]}?" if close else ""
        expect(name in known, what, f"one of {', '.join(known)}", repr(name), hint)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", str(name).lower()).strip("-")


def same_settings(wanted: TrainConfig, have: TrainConfig, run: str) -> None:
    """Raise ``GraphcapsError`` where a run on disk was trained with other settings than the plan's."""
    for field in dataclasses.fields(TrainConfig):
        key = field.name
        if key not in ("data", "out", "device") and getattr(wanted, key) != getattr(have, key):
            raise GraphcapsError(
                f"{run}: expected a training with {key} {getattr(wanted, key)}, as the plan says, "
                f"got {getattr(have, key)}. Name another folder with --to, or delete this run"
            )
