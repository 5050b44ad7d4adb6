"""The training step leaves a GPU running: between two looks at the numbers nothing waits for it.

There is no GPU here. ``elsewhere`` stands in for one: trainings run there with real numbers, and it tells who waits.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphcaps import LinearVotes, TrainConfig, bipartite_graph, complete_graph
from graphcaps.config import PRESETS
from graphcaps.data import Pairs
from graphcaps.models import from_config
from graphcaps.training import hardware, loop

from . import elsewhere, small

pytestmark = pytest.mark.usefixtures("one_thread")
SIDES = {"paper": 17, "deep": 23, "parts": 13, "matrix": 17, "matrix-small": 17}
ROUTED = [name for name, preset in PRESETS.items() if preset.routings]


class Silent:
    """A progress that isn't due."""

    def due(self):
        return False

    def step(self, *shown):
        pass


def trainer(accelerator, config: TrainConfig, splits) -> loop.Trainer:
    torch.manual_seed(0)
    run = SimpleNamespace(path=Path("none"))
    made = loop.Trainer(config, run, from_config(config, splits), splits, accelerator, show=False)
    made.crowding = SimpleNamespace(look=lambda: None)
    return made


def epoch(monkeypatch, config: TrainConfig, splits, accelerator) -> tuple[loop.Trainer, list[list[str]]]:
    """Train for one epoch elsewhere: what waited in each step, from one's forward to the next one's."""
    seen, step = [], loop.training_step
    with elsewhere.Elsewhere() as device:

        def noted(*args):
            seen.append(len(device.waits))
            return step(*args)

        monkeypatch.setattr(loop, "training_step", noted)
        trained = trainer(accelerator, config, splits)
        trained._train_epoch(SimpleNamespace(signum=0), Silent())
    return trained, [device.waits[a:b] for a, b in zip(seen, [*seen[1:], None], strict=True)]


def settings(**changed) -> tuple[TrainConfig, object]:
    config = small.config(Path("none"), **{"batch_size": 10} | changed)
    splits = small.digits(train=40, size=SIDES.get(config.model, 12))
    return config, splits.for_augment(config.augment)


WAYS = [{"model": model} for model in ROUTED]
WAYS += [{"routing": routing} for routing in PRESETS["compact"].routings if routing != "dynamic"]
WAYS += [{"augment": "affine"}, {"prior": "learned"}, {"dataset": "multimnist"}]
QUICK = ({"model": "compact"}, {"model": "matrix-small"}, {"augment": "affine"}, {"dataset": "multimnist"})


@pytest.mark.parametrize(
    "changed",
    [pytest.param(way, marks=[] if way in QUICK else pytest.mark.long, id="-".join(way.values())) for way in WAYS],
)
def test_no_step_waits_for_the_device_but_the_first_and_the_last(monkeypatch, changed):
    config, splits = settings(**changed)
    if config.dataset == "multimnist":
        parts = {part: Pairs(getattr(splits, part)) for part in ("train", "val", "test")}
        splits = splits.__class__("multimnist", splits.class_names, **parts)
    trained, waits = epoch(monkeypatch, config, splits, elsewhere.accelerator())
    first, *between, last = waits
    assert between == [[], []]
    assert set(first) <= {"_to_copy", "_local_scalar_dense"}  # the graph's edges, if they are new
    assert last and set(last) == {"_local_scalar_dense"}  # the epoch's numbers
    assert trained.state.step == 4 and trained.state.loss_sum > 0


def test_a_training_elsewhere_is_one_on_the_cpu(monkeypatch):
    config, splits = settings(engine="torch")
    trained, _ = epoch(monkeypatch, config, splits, elsewhere.accelerator())
    monkeypatch.undo()
    here = trainer(hardware.accelerator("cpu", "float32"), config, splits)
    before = {name: tensor.clone() for name, tensor in here.network.state_dict().items()}
    here._train_epoch(SimpleNamespace(signum=0), Silent())
    assert trained.state.loss_sum == pytest.approx(here.state.loss_sum, rel=1e-5)
    assert trained.state.correct == here.state.correct
    ours = dict([*trained.network.named_parameters(), *trained.network.named_buffers()])
    for name, tensor in here.network.state_dict().items():
        found, tensor, start = (x.double() for x in (ours[name].inner, tensor, before[name]))
        # Adam moves a weight by the rate, whatever the size of its gradient: other roundings of tiny ones show.
        assert (found - tensor).norm() <= 5e-2 * (tensor - start).norm(), name


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.cpu(),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: torch.tensor([1.0]).to(x.device),
        lambda x: x.copy_(torch.ones(2)),
        lambda x: x.long().bincount(),
    ],
)
def test_who_waits_is_told(wait):
    with elsewhere.Elsewhere() as device:
        x = torch.ones(2, device=elsewhere.PLACE)
        y = x[torch.zeros(2, dtype=torch.int64, device=x.device)] * torch.tensor(2.0) + 1
        assert device.waits == [] and y.device == elsewhere.PLACE
        wait(x)
        assert len(device.waits) >= 1


@pytest.mark.parametrize("kind", ["given", "linear", "sparse"])
def test_the_fused_engine_waits_for_a_new_graph_alone(monkeypatch, kind):
    """Its kernels are left out: what it asks the device for is asked beside them."""
    pytest.importorskip("triton")
    from graphcaps.routing.fused.cuda import dynamic, launch

    launched = []
    monkeypatch.setattr(launch, "_launch", lambda kernel, *sizes, **arguments: launched.append(kernel))
    graph = complete_graph(6, 3) if kind != "sparse" else bipartite_graph([0, 0, 1, 2], [0, 1, 1, 1], 3, 2)
    with elsewhere.Elsewhere() as device:

        def route():
            u = torch.rand(6 if kind == "linear" else graph.num_edges(), 5, 4, device=elsewhere.PLACE).requires_grad_()
            weight = torch.rand(18, 4, 8, device=elsewhere.PLACE).requires_grad_()
            b = torch.zeros((), device=elsewhere.PLACE).expand(graph.num_edges(), 5)
            votes = LinearVotes(u, weight) if kind == "linear" else u
            dynamic.dynamic(graph, votes, None, b, 3, None)[0].sum().backward()
            return u.grad

        assert route().shape == (len(route()), 5, 4)
        device.waits.clear(), launched.clear()
        route()
    assert device.waits == [] and len(launched) > 3


def test_processes_on_gpus_ask_each_other_now_and_then(monkeypatch):
    asked, config = [], settings(batch_size=8)[0]
    splits = small.digits(train=80).for_augment("shift")
    together = elsewhere.accelerator(num_processes=2, gather=lambda x: asked.append(x) or x)
    monkeypatch.setattr(loop, "STEPS_BETWEEN", 4)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda x: None)  # the other process has no images
    trained, waits = epoch(monkeypatch, config, splits, together)
    assert trained.state.step == 10 and len(asked) == 2
    assert [step for step, found in enumerate(waits, 1) if found and 1 < step < 10] == [4, 8]


@pytest.mark.parametrize("deterministic", [False, True])
def test_convolutions_on_a_gpu_are_the_fastest_unless_deterministic_ones_are_asked_for(monkeypatch, deterministic):
    cudnn = torch.backends.cudnn
    with cudnn.flags(enabled=True, benchmark=deterministic, allow_tf32=deterministic):
        hardware.choose_kernels("cpu", deterministic)
        assert cudnn.benchmark == cudnn.allow_tf32 == deterministic
        hardware.choose_kernels("cuda", deterministic)
        assert cudnn.benchmark == cudnn.allow_tf32 == (not deterministic)
        assert torch.get_float32_matmul_precision() == "highest"
