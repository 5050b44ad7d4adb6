"""What all tasks on graphs share. A task trains networks in several cases, and its result has a row for each.

trial    fit(place, network, settings, seed, quick, **case): the numbers of one training, cached by ``run``
case     one graph or data set, and how it is used: the further arguments of ``fit``
rows     in each case, a network's settings are chosen on validation items, then it is trained from other seeds
result   {"command": ..., NAME: rows, ...} in ``results/NAME.json``
table    the ``cells`` of all rows
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from experiments import run, table
from experiments.run import Place

Networks = dict[str, list[dict]]
"""For each network, the settings to choose from."""


@dataclass(frozen=True)
class Task:
    """A task on graphs."""

    name: str
    fit: Callable[..., dict]
    networks: Callable[..., Networks]  # the arguments are those of the case
    cases: Sequence[dict] = ({},)
    seeds: Callable[[dict, str], int] = lambda case, network: 3  # number of trainings with the chosen settings
    trial_seeds: Sequence[int] = (1000,)
    """Settings are tried with these seeds. Without any, they are chosen for each seed (a fold) by its own trial."""
    row: Callable[[str, list[dict], list[dict]], dict] = table.row  # of a network, its trainings and settings
    cells: Callable[[Sequence[dict]], Iterable[dict[str, object]]] = table.cells  # of all rows
    index: int = 0  # the number of a row's cells that name a line of the table, see table.table
    score: str = "accuracy"  # what ``fit`` measures on test items

    def rows(
        self, place: Place, seeds: int | None = None, quick: bool = False, only: Sequence[str] = ()
    ) -> Iterator[dict]:
        """Train all networks in each case, or only in the cases whose first values are in ``only``; yield their rows.

        ``seeds`` replaces the task's own number. ``quick`` is for tests: one seed and a few epochs.
        """
        firsts = run.chosen(only, [str(value) for case in self.cases for value in [*case.values()][:1]])
        for case in self.cases:
            if case and str([*case.values()][0]) not in firsts:
                continue
            for network, trainings in self._trained(case, place, seeds, quick).items():
                settings, fits = zip(*trainings, strict=True)
                yield {**case, **self.row(network, fits, settings[:1] if self.trial_seeds else settings)}

    def _trained(self, case: dict, place: Place, seeds: int | None, quick: bool) -> dict[str, list[tuple[dict, dict]]]:
        """For each network, the settings and results of its trainings.

        The settings with the highest mean validation score are chosen; if scores are equal, those with the lowest loss.
        """
        networks = self.networks(**case)
        starts = {network: range(seeds or (1 if quick else self.seeds(case, network))) for network in networks}

        def fits(jobs: list[tuple[str, int, int]], title: str) -> dict[tuple[str, int, int], dict]:
            trials = [
                {**case, "network": network, "settings": networks[network][n], "seed": seed, "quick": quick}
                for network, n, seed in jobs
            ]
            titles = ", ".join([self.name, *map(str, case.values())])
            return dict(zip(jobs, run.run(self.fit, trials, place, f"{titles}: {title}"), strict=True))

        tried = [
            (network, n, seed)
            for network, several in networks.items()
            if len(several) > 1
            for n, seed in product(range(len(several)), self.trial_seeds or starts[network])
        ]
        trials = fits(tried, "settings")

        def best(network: str, seed: int) -> int:
            if len(networks[network]) == 1:
                return 0
            merits = []
            for n in range(len(networks[network])):
                several = [trials[network, n, start] for start in self.trial_seeds or (seed,)]
                score, loss = (fmean(fit[key] for fit in several) for key in ("val_accuracy", "val_loss"))
                merits.append((score, -loss))
            return merits.index(max(merits))

        chosen = [(network, best(network, seed), seed) for network in networks for seed in starts[network]]
        trained: dict[str, list[tuple[dict, dict]]] = {network: [] for network in networks}
        for (network, n, _), fit in fits(chosen, "seeds").items():
            trained[network].append((networks[network][n], fit))
        return trained

    def result(self, place: Place, seeds: int | None, quick: bool, only: Sequence[str]) -> dict:
        """The rows, and the command, the time and the machine."""
        start, rows = time.perf_counter(), [*self.rows(place, seeds, quick, only)]
        return {
            "format_version": 1,
            "command": f"python -m experiments {self.name}" + f" --seeds {seeds}" * bool(seeds) + " --quick" * quick,
            "measure": self.score,
            self.name: rows,
            "minutes": (time.perf_counter() - start) / 60,
            "processes": run.processes(place),
            **run.made_with(),
        }

    def markdown(self, result: dict) -> str:
        """The table of a result, below its command."""
        return f"`{result['command']}`:\n\n{table.table(self.cells(result[self.name]), index=self.index)}"
