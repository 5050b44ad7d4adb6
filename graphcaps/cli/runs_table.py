"""What the command line prints about runs; needs no torch."""

from __future__ import annotations

import logging

from ..errors import GraphcapsError
from ..training.run_folder import Run

log = logging.getLogger(__name__)


def runs_table(runs: list[Run]) -> str:
    """One line per run: what it trained, how far it is, what it reached."""
    rows = [("run", "dataset", "model", "epochs", "validation", "test", "seconds")]
    for run in runs:
        try:
            config, metrics, result = run.config, run.metrics(), run.result()
        except GraphcapsError as error:
            log.warning("%s", error)
            config, metrics, result = run.config, [], None
        rows.append(
            (
                str(run.path),
                config.dataset_name,
                config.model,
                f"{len(metrics)}/{config.epochs}",
                f"{max(row['val_accuracy'] for row in metrics):.2%}" if metrics else "-",
                f"{result['test_accuracy']:.2%}" if result else "-",
                f"{metrics[-1]['seconds']:.0f}" if metrics else "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip() for row in rows)
