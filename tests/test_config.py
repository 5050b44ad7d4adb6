"""Settings: their choices are what the code has, and a config.json is read back or refused with its reason."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from graphcaps import GraphcapsError, InputError, TrainConfig
from graphcaps.cli import main
from graphcaps.images.training.run_folder import Run

UNUSUAL = TrainConfig(
    dataset="kmnist",
    model="paper",
    prior="learned",
    reconstruction_weight=0.001,
    deterministic=True,
    train_images=1000,
    learning_rate=0.02,
    seed=2**63 - 1,
    data=Path("där drüben"),
    out=Path("/tmp/x"),
    name="a b",
)


@pytest.mark.parametrize("config", [TrainConfig(), UNUSUAL], ids=["defaults", "unusual"])
def test_settings_come_back_from_json(config):
    assert TrainConfig.from_json(config.to_json(made_with={"torch": "2.4"})) == config


def test_the_command_makes_the_same_settings(monkeypatch):
    seen = []

    def stop(config, resume, overrides):
        seen.append(config)
        raise GraphcapsError("enough")

    monkeypatch.setattr("graphcaps.images.training.train.train", stop)
    main(shlex.split(UNUSUAL.command())[1:])
    assert seen == [dataclasses.replace(UNUSUAL, data=Path("data"), out=Path("runs"), name="")]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"dataset": "mnits"}, "dataset: expected one of mnist, fashion-mnist"),
        ({"dataset": "."}, "dataset: expected a name, or KIND:PATH, got .. Try --dataset folder:"),
        ({"name": "a/b"}, "name: expected a folder name without slashes, got 'a/b'. Use --out"),
        ({"model": "matrix", "routing": "dynamic"}, "for model matrix, got dynamic"),
        ({"dataset": "multimnist", "augment": "anywhere"}, "for multimnist, "),
        ({"model": "matrix", "rising": True}, "rising: expected False for model matrix and routing em, got True"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(settings, text):
    with pytest.raises(InputError) as error:
        TrainConfig(**settings).check()
    assert text in str(error.value)


def stored(**settings) -> dict:
    text = TrainConfig().to_json()
    return {**json.loads(text), "settings": {**json.loads(text)["settings"], **settings}}


def test_a_run_from_before_a_setting_has_its_default(tmp_path):
    before = stored(protocol="paper", coupling_weight=0.0, separator=None, balance=False)  # settings that were removed
    del before["settings"]["channels"]
    config = TrainConfig.from_json(json.dumps(before))
    assert config == TrainConfig()
    Run(tmp_path, config).check_trained(before)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (TrainConfig().to_json()[:100], "expected settings of a run as JSON"),
        ('{"format_version": 1, "settings": {}}', "expected format 2, got 1. Another version of graphcaps"),
        (json.dumps(stored(coupling_weight=0.5)), "settings of train, got unknown coupling_weight. Another"),
        (json.dumps(stored(epochs="3")), "epochs: expected an integer from 1 to 1000000, got '3'"),
    ],
)
def test_a_broken_config_is_refused_with_its_reason(text, wanted):
    with pytest.raises(GraphcapsError) as error:
        TrainConfig.from_json(text, "runs/x/config.json")
    assert str(error.value).startswith("runs/x/config.json: ") and wanted in str(error.value)
