"""A training step as a graph: taken where it makes the weights of other steps, else left out with a warning.

There is no GPU here. ``Recorded`` stands in for a CUDA graph: it does the operations of a step again, one by one, on
the same memory and with the same Python numbers.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphcaps import InputError, TrainConfig, train
from graphcaps.models import from_config
from graphcaps.training import graphed as graphs
from graphcaps.training import hardware, loop
from graphcaps.training.run_folder import Run
from graphcaps.training.step import prepare, set_rate, training_step

from . import small
from .test_no_waiting import SIDES, Silent

pytestmark = pytest.mark.usefixtures("one_thread")


class Recorded(TorchDispatchMode):
    """The operations inside the block, and where their results are."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        self.operations.append((operation, args, kwargs or {}, found))
        return found

    def replay(self):
        for operation, args, kwargs, before in self.operations:
            found = operation(*args, **kwargs)
            if not any(x.alias_info for x in operation._schema.returns):  # neither a view nor in place
                for old, new in zip(tree_leaves(before), tree_leaves(found), strict=True):
                    if isinstance(old, torch.Tensor):
                        old.copy_(new)


def record(step):
    for _ in range(graphs.WARM_UPS):
        step()
    with Recorded() as made:
        found = step()

    @torch.no_grad()
    def replay():
        made.replay()

    return found, replay


def learner(model: str):
    torch.manual_seed(0)
    engine = {} if model == "cnn" else {"engine": "torch"}  # Numba's would not be recorded
    config = small.config(Path("none"), model=model, batch_size=20, **engine)
    splits = small.digits(train=60, size=SIDES.get(model, 12))
    made = prepare(from_config(config, splits), config.peak_rate, hardware.accelerator("cpu", "float32"))
    made.model.train()
    return made, config, splits


def batch(splits, k: int = 0):
    here = slice(20 * k, 20 * (k + 1))
    return splits.train.pixels[here].float() / 255, splits.train.labels[here]


def all_of(one) -> list[torch.Tensor]:
    state = [x for each in one.optimizer.state.values() for x in each.values()]
    return [x.detach().clone() for x in (*one.network.parameters(), *one.network.buffers(), *state)]


MODELS = ["compact", *(pytest.param(model, marks=pytest.mark.long) for model in ("matrix-small", "paper"))]


@pytest.mark.parametrize("model", MODELS)
def test_a_graph_makes_the_steps_that_single_kernels_make(model):
    one, _, splits = learner(model)
    other, _, _ = learner(model)
    graph, why = graphs.graphed(one, *batch(splits), capture=record)
    assert why == "" and graph.fits(batch(splits)[0])
    for k, rate in enumerate((1e-3, 3e-3, 2e-3)):
        for each in (one, other):
            set_rate(each.optimizer, rate)
        torch.manual_seed(k)
        loss = graph(*batch(splits, k), k / 3)[0].clone()
        torch.manual_seed(k)
        wanted = training_step(other, *batch(splits, k), k / 3)[0]
        assert float(loss) == pytest.approx(float(wanted), rel=1e-5)
    # a batch of another shape, by single kernels, on the same moments and at the same rate
    for each in (one, other):
        torch.manual_seed(9)
        training_step(each, *(x[:7] for x in batch(splits)))
    found, right = (torch.cat([x.double().flatten() for x in all_of(each)]) for each in (one, other))
    assert (found - right).norm() <= 1e-3 * right.norm()


def test_the_trial_changes_nothing():
    one, _, splits = learner("compact")
    training_step(one, *batch(splits))
    before, numbers = all_of(one), torch.get_rng_state()
    assert graphs.graphed(one, *batch(splits), capture=record)[1] == ""
    assert all(torch.equal(*pair) for pair in zip(before, all_of(one), strict=True))
    assert torch.equal(torch.get_rng_state(), numbers)


def raising(step):
    step()
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


def idle(step):
    return step(), lambda: None


def stale_rate(step):
    """The rate that it was captured with, at each replay."""
    (one,) = (cell.cell_contents for cell in step.__closure__ if hasattr(cell.cell_contents, "optimizer"))
    found, replay = record(step)
    rate = float(one.optimizer.param_groups[0]["lr"])
    return found, lambda: (set_rate(one.optimizer, rate), replay())


def stale_batch(step):
    found, replay = record(step)
    graph = next(cell.cell_contents for cell in step.__closure__ if isinstance(cell.cell_contents, graphs.GraphedStep))
    images = graph.images.clone()

    def again():
        graph.images.copy_(images)
        replay()

    return found, again


@pytest.mark.parametrize(
    ("capture", "what"),
    [
        (raising, "RuntimeError: operation not permitted when stream is capturing more"),
        (idle, "its weights are off by"),
        (stale_rate, "its weights are off by"),
        (stale_batch, "its weights are off by"),
    ],
)
def test_a_graph_that_fails_or_differs_is_left_out_and_nothing_has_changed(capture, what):
    one, _, splits = learner("compact")
    training_step(one, *batch(splits))
    before = all_of(one)
    graph, why = graphs.graphed(one, *batch(splits), capture=capture)
    assert graph is None and what in why
    assert all(torch.equal(*pair) for pair in zip(before, all_of(one), strict=True))
    assert all(isinstance(group["lr"], float) and not group["capturable"] for group in one.optimizer.param_groups)
    training_step(one, *batch(splits))


@pytest.mark.parametrize("works", [True, False])
def test_a_training_takes_the_graph_or_warns_and_goes_on(monkeypatch, works):
    config = small.config(Path("none"), engine="torch", batch_size=25)
    splits = small.digits(train=120).for_augment("shift")

    def trained(graph: bool) -> loop.Trainer:
        torch.manual_seed(0)
        run, accelerator = SimpleNamespace(path=Path("none")), hardware.accelerator("cpu", "float32")
        made = loop.Trainer(config, run, from_config(config, splits), splits, accelerator, show=False)
        made.crowding, made.try_graph = SimpleNamespace(look=lambda: None), graph
        made._train_epoch(SimpleNamespace(signum=0), Silent())
        return made

    capture, graphed = record if works else raising, graphs.graphed
    monkeypatch.setattr(loop, "graphed", lambda *batch: graphed(*batch, capture=capture))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        found = trained(True)
    why = "step: the CUDA graph is not taken: RuntimeError: operation not permitted when stream is capturing more"
    assert [str(each.message) for each in said if "CUDA graph" in str(each.message)] == [why] * (not works)
    assert (found.graph is not None) == works
    right = trained(False)
    assert found.state.loss_sum == pytest.approx(right.state.loss_sum, rel=1e-5)
    assert found.state.correct == right.state.correct


def test_a_graph_is_for_one_process_on_cuda():
    assert graphs.wants_graph("auto", "cuda", 1, False) and graphs.wants_graph("graph", "cuda", 1, True)
    assert not graphs.wants_graph("auto", "cuda", 1, True) and not graphs.wants_graph("eager", "cuda", 1, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not graphs.wants_graph("auto", "cpu", 1, False) and not graphs.wants_graph("auto", "cuda", 2, False)
    for place, lacks in ((("cpu", 1), "a CUDA device"), (("cuda", 2), "one process")):
        with pytest.warns(RuntimeWarning, match=f"step: a graph needs {lacks}; single kernels are started"):
            assert not graphs.wants_graph("graph", *place, False)


def test_a_graph_asked_for_on_a_cpu_is_an_error_before_anything_is_read_or_written(monkeypatch, tmp_path):
    monkeypatch.setattr(loop, "load_images", lambda *which: pytest.fail("it read images"))
    wanted = r"^step: expected auto or eager on cpu, got graph\. Leave --step out, or train on a GPU: --device cuda$"
    with pytest.raises(InputError, match=wanted):
        train(small.config(tmp_path, step="graph"), progress=False)
    assert not list(tmp_path.iterdir())


def test_a_training_with_a_graph_goes_on_where_there_is_none(monkeypatch, tmp_path):
    """The settings of a run are kept when it is resumed on another device."""
    small.use(monkeypatch)
    config = small.config(tmp_path, step="graph", epochs=1)
    Run.create(config, made_with={})
    with pytest.warns(RuntimeWarning, match="step: a graph needs a CUDA device; single kernels are started"):
        train(TrainConfig(), resume=tmp_path / "run", progress=False)
