"""Makes the README's tables from committed results, and takes new results in.

python tests/readme.py                 write the tables between the README's markers
python tests/readme.py runs/NAME ...   first add these runs' result.json to tests/results/train.json
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TRAIN = ROOT / "tests" / "results" / "train.json"


def take(runs: list[str]) -> None:
    """Add finished runs to the results; one of the same command on the same device replaces the older."""
    rows = json.loads(TRAIN.read_text()) if TRAIN.exists() else []
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    for run in runs:
        row = {**json.loads((Path(run) / "result.json").read_text()), "commit": commit}
        rows = [old for old in rows if (old["command"], old["device"]) != (row["command"], row["device"])] + [row]
    TRAIN.write_text(json.dumps(rows, indent=2) + "\n")


def train_table(rows: list[dict]) -> str:
    """One line per run: what it reached, how long it took, and the command that repeats it."""
    lines = [
        "| model | data | epochs | test accuracy (95 % interval) | wrong | parameters | time | device | command |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["test_interval_95"]
        wrong = row["test_images"] - row["test_correct"]
        threads = f"{row['threads']} thread" + ("s" if row["threads"] > 1 else "")
        device = f"{row['device']}, {threads}, {row['precision']}, engine {row['engine']}"
        minutes = f"{row['seconds'] / 60:.1f} min"
        lines.append(
            f"| {row['model']} | {row['dataset']} | {row['epochs']} | **{row['test_accuracy']:.2%}** ({low:.2%} to "
            f"{high:.2%}) | {wrong} of {row['test_images']:,} | {row['parameters']:,} | {minutes} | "
            f"{device} | `{row['command']}` (seed {row['seed']}, commit {row['commit']}) |"
        )
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Name of the marker -> the text between it and the next ``<!-- end -->``."""
    return {"train": train_table(json.loads(TRAIN.read_text()))}


def with_tables(text: str) -> str:
    """The README's text with every table made anew."""
    for name, table in tables().items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
        if count != 1:
            raise SystemExit(f"README.md: expected one marker '<!-- table: {name} -->', got {count}")
    return text


if __name__ == "__main__":
    if sys.argv[1:]:
        take(sys.argv[1:])
    README.write_text(with_tables(README.read_text()))
