import shutil
from pathlib import Path

import pytest

from graphcaps import TrainConfig, train
from graphcaps.images.training import loop

from .. import small
from ..test_training import stop_at


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A run that was stopped after a step of its second epoch, and the same run after it went on to its end."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        with patch.context() as stopped, pytest.raises(loop.Interrupted):
            stop_at(stopped, 4)
            train(small.config(folder, name="begun"), progress=False)
        shutil.copytree(folder / "begun", folder / "ended")
        train(TrainConfig(), resume=folder / "ended", progress=False)
    return {name: folder / name for name in ("begun", "ended")}
