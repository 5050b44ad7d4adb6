"""Plans: YAML files that list networks for images, their common settings, and the seeds.

    train: {dataset: mnist, epochs: 5}     # settings of all networks, see graphcaps train --help
    networks:                              # for each row of the table, the network's own settings
      dynamic: {model: compact}
      uniform: {model: compact, routing: uniform}
    seeds: [0, 1, 2]
    test_on: [affnist]                     # optional: networks are also evaluated on these images
    against: dynamic                       # optional: the reference, with which others are compared; default: the first

All networks must have the same data set, because they are compared image by image. Names and settings are checked
before training starts. This module doesn't import torch.
"""

from pathlib import Path
from typing import NamedTuple

import yaml

from graphcaps.errors import InputError, check_name, expect
from graphcaps.images.config import TrainConfig

PLANS = Path(__file__).parent / "plans"
ENTRIES = ("train", "networks", "seeds", "test_on", "against")
MACHINE = {"seed": 0, "name": "", "out": "runs", "data": "data", "device": "auto"}
"""Settings that a plan can't have, because they depend on the seed and the machine."""


class Plan(NamedTuple):
    """A grid of trainings: each network with each seed."""

    name: str
    rows: dict[str, dict]  # each network's settings: the fields of ``TrainConfig`` that differ from the defaults
    seeds: tuple[int, ...]
    on: tuple[str, ...]
    against: str

    @property
    def cells(self) -> list[tuple[str, int]]:
        """All trainings, each a network and a seed."""
        return [(network, seed) for seed in self.seeds for network in self.rows]


def plan_names() -> list[str]:
    """Names of the plans in ``plans/``."""
    return sorted(path.stem for path in PLANS.glob("*.yaml"))


def read_plan(source: str) -> Plan:
    """Read and check a plan, given as a YAML file or as a name in ``plans/``.

    Raises ``InputError`` if there is no such plan, or if ``graphcaps train`` wouldn't accept its settings.

    >>> plan = read_plan("routings")
    >>> plan.against, len(plan.cells)
    ('dynamic', 18)
    """
    path = PLANS / f"{source}.yaml" if source in plan_names() else Path(source)
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"plan: expected a YAML file, got {source}: {' '.join(str(error).split())}") from None
    expect(isinstance(entries, dict), source, f"entries {', '.join(ENTRIES)}", type(entries).__name__)
    for entry in entries:
        check_name("entry", entry, ENTRIES)
    networks, seeds, on = entries.get("networks"), entries.get("seeds", [0]), entries.get("test_on", [])
    expect(isinstance(networks, dict) and networks, "networks", "a name and settings for each", networks)
    against = entries.get("against", [*networks][0])
    expect(against in networks, "against", f"one of the rows {'; '.join(networks)}", against)
    rows = {name: {**(entries.get("train") or {}), **(own or {})} for name, own in networks.items()}
    datasets = {_dataset(name, settings) for name, settings in rows.items()}
    expect(len(datasets) == 1, "dataset", "one for all networks, whose answers are compared", sorted(datasets))
    wanted = "[affnist], and dataset mnist40, whose images have 40 x 40 pixels as well"
    expect(on == [] or (on, datasets) == (["affnist"], {"mnist40"}), "test_on", wanted, f"{on}, {sorted(datasets)}")
    return Plan(path.stem, rows, tuple(seeds), tuple(on), against)


def _dataset(name: str, settings: dict) -> str:
    """The data set of a network. Raise ``InputError`` if ``graphcaps train`` wouldn't take its settings."""
    try:
        config = TrainConfig(**MACHINE, **settings)
        config.check()
    except (InputError, TypeError) as error:
        raise InputError(f"{name}: {error}") from None
    return config.dataset
