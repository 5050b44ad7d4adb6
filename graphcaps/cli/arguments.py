"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

# The hint is tyro's "(default: None)": the help texts say what happens without the flag.
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
Run = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")]
