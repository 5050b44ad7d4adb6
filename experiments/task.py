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
            for network, (settings, fits) in self._trained(case, place, seeds, quick).items():
                yield {**case, **table.row(network, fits, settings)}

    def _trained(
        self, case: dict, place: Place, seeds: int | None, quick: bool
    ) -> dict[str, tuple[list[dict], list[dict]]]:
        """For each network, the chosen settings (one, or one for each fold) and the results of its trainings.

        The settings with the highest mean validation score are chosen; if scores are equal, those with the lowest loss.
        """

        def trials(name: str, settings: dict, starts: Sequence[int]) -> list[dict]:
            return [{**case, "network": name, "settings": settings, "seed": seed, "quick": quick} for seed in starts]

        def train(jobs: list[tuple[str, dict, Sequence[int]]], title: str) -> None:
            title = ", ".join([self.name, *map(str, case.values()), title])
            run.run(self.fit, [trial for job in jobs for trial in trials(*job)], place, title)

        def fits(*job) -> list[dict]:
            return [result for trial in trials(*job) if (result := run.cached(self.fit, trial, place)) is not None]

        def best(name: str, choices: list[dict], starts: Sequence[int]) -> dict:
            def merit(settings: dict) -> tuple[float, float]:
                tried = fits(name, settings, self.trial_seeds or starts)
                return fmean(fit["val_accuracy"] for fit in tried), -fmean(fit["val_loss"] for fit in tried)

            return max(choices, key=merit) if choices[1:] else choices[0]

        groups: list[tuple[str, list[dict], Sequence[int]]] = []  # the seeds for which settings are chosen together
        for name, choices in self.networks(**case).items():
            starts = range(seeds or (1 if quick else self.seeds(case, name)))
            groups += [(name, choices, part) for part in ([starts] if self.trial_seeds else [[n] for n in starts])]
        several = [group for group in groups if len(group[1]) > 1]
        train([(name, one, self.trial_seeds or part) for name, choices, part in several for one in choices], "settings")
        chosen = [(name, best(name, choices, part), part) for name, choices, part in groups]
        train(chosen, "seeds")
        trained: dict[str, tuple[list[dict], list[dict]]] = {}
        for name, settings, part in chosen:
            own_settings, own_results = trained.setdefault(name, ([], []))
            own_settings.append(settings)
            own_results += fits(name, settings, part)
        return trained

    def result(self, place: Place, seeds: int | None, quick: bool, only: Sequence[str]) -> dict:
        """The rows, and the command, the time and the machine."""
        start, rows = time.perf_counter(), [*self.rows(place, seeds, quick, only)]
        return {
            "command": f"python -m experiments {self.name}" + f" --seeds {seeds}" * bool(seeds) + " --quick" * quick,
            "measure": self.score,
            self.name: rows,
            "minutes": (time.perf_counter() - start) / 60,
            "processes": place.processes,
            **run.made_with(),
        }

    def markdown(self, result: dict) -> str:
        """The table of a result, below its command."""
        return f"`{result['command']}`:\n\n{table.table(self.cells(result[self.name]), index=self.index)}"
