"""Settings: their choices are what the code has, and a config.json is read back or refused with its reason."""

from __future__ import annotations

import dataclasses
import json
import shlex
import typing
from pathlib import Path

import pytest

from graphcaps import GraphcapsError, InputError, TrainConfig
from graphcaps.cli import main
from graphcaps.config import PRESETS, Dataset
from graphcaps.data import AUGMENTS, DATASETS
from graphcaps.routing.engines import ENGINES

UNUSUAL = TrainConfig(
    dataset="kmnist",
    model="paper",
    epochs=3,
    batch_size=7,
    iterations=2,
    engine="torch",
    prior="learned",
    reconstruction_weight=0.001,
    balance=True,
    train_images=1000,
    learning_rate=0.02,
    augment="affine",
    seed=2**63 - 1,
    device="cpu",
    precision="float32",
    deterministic=True,
    data=Path("där drüben"),
    out=Path("/tmp/x"),
    name="a b",
    tensorboard=True,
)


@pytest.mark.parametrize(
    ("key", "have"),
    [
        ("model", PRESETS),
        ("engine", ENGINES),
        ("augment", AUGMENTS),
    ],
)
def test_choices_are_what_the_code_has(key, have):
    assert set(typing.get_args(typing.get_type_hints(TrainConfig)[key])) == set(have)


def test_data_sets_with_a_name_are_what_the_code_has():
    assert set(typing.get_args(Dataset)) == set(DATASETS)


@pytest.mark.parametrize("config", [TrainConfig(), UNUSUAL], ids=["defaults", "unusual"])
def test_settings_come_back_from_json(config):
    assert TrainConfig.from_json(config.to_json(made_with={"torch": "2.4"})) == config


def test_the_command_makes_the_same_settings(monkeypatch):
    seen = []

    def stop(config, resume, overrides):
        seen.append(config)
        raise GraphcapsError("enough")

    monkeypatch.setattr("graphcaps.training.train.train", stop)
    main(shlex.split(UNUSUAL.command())[1:])
    assert seen == [dataclasses.replace(UNUSUAL, data=Path("data"), out=Path("runs"), name="")]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("dataset", "mnits", "dataset: expected one of mnist, fashion-mnist"),
        ("channels", 3, "channels: expected none for mnist, got 3. Images of your own are made grey or RGB"),
        ("channels", 2, "channels: expected 1 (grey) or 3 (RGB), got 2"),
        ("channels", True, "channels: expected 1 (grey) or 3 (RGB), got True"),
        ("epochs", True, "epochs: expected of type int, got True"),
        ("seed", 2**63, "seed: expected an integer from 0 to"),
        ("learning_rate", float("nan"), "learning_rate: expected a number > 0 and < 1e30, got nan"),
        ("reconstruction_weight", -1.0, "reconstruction_weight: expected a number >= 0 and < 1e30, got -1.0"),
        ("name", "a/b", "name: expected a folder name without slashes, got 'a/b'. Use --out"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(key, value, text):
    with pytest.raises(InputError) as error:
        dataclasses.replace(TrainConfig(), **{key: value}).check()
    assert text in str(error.value)


def stored(**settings) -> dict:
    text = TrainConfig().to_json()
    return {**json.loads(text), "settings": {**json.loads(text)["settings"], **settings}}


def test_a_run_from_before_a_setting_has_its_default():
    before = stored()
    del before["settings"]["channels"], before["settings"]["balance"]
    before["settings"]["protocol"] = "paper"  # a setting that is no more
    config = TrainConfig.from_json(json.dumps(before))
    assert config == TrainConfig()
    config.check_trained(before["settings"], "config.json")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (TrainConfig().to_json()[:100], "expected settings of a run as JSON"),
        ('{"format_version": 1, "settings": {}}', "expected format 2, got 1. A run of another version of graphcaps"),
        (json.dumps(stored(speed=3)), "expected the settings of train, got unknown speed"),
        (json.dumps(stored(epochs="3")), "epochs: expected of type int, got '3'"),
    ],
    ids=["truncated", "older", "unknown_key", "wrong_type"],
)
def test_a_broken_config_is_refused_with_its_reason(text, wanted):
    with pytest.raises(GraphcapsError) as error:
        TrainConfig.from_json(text, "runs/x/config.json")
    assert str(error.value).startswith("runs/x/config.json: ") and wanted in str(error.value)


@pytest.mark.parametrize("model", ["matrix", "cnn"])
def test_a_routing_that_a_network_does_not_have_is_an_error(model):
    other = "dynamic" if PRESETS[model].routings else "em"
    with pytest.raises(InputError, match=f"routing: expected .* for model {model}, got {other}"):
        TrainConfig(model=model, routing=other).check()
