"""Recording in training: images and epochs of the trace, the network's own numbers, and no effect on the training."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps import CapsNet, train
from graphcaps.images.data import to_float
from graphcaps.images.recording import pictures, record, routing_of
from graphcaps.images.training.run_folder import Run

from .. import small

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        config = small.config(tmp_path_factory.mktemp("runs"), epochs=3, batch_size=60, precision="bfloat16")
        return Path(train(config, progress=False)["run"])


@pytest.fixture(scope="module")
def trace(run):
    return Run.open(run).trace()


def test_the_trace_has_one_test_image_per_class_and_ten_iterations(trace):
    test = small.digits().test
    assert trace.labels.tolist() == list(range(10)) and trace.class_names == tuple("0123456789")
    for image, label in zip(trace.images, trace.labels, strict=True):
        assert any(np.array_equal(image, pixels) for pixels in test.pixels[test.labels == label].numpy())
    assert trace.c.shape == trace.b.shape == trace.agreement.shape == (4, 10, 10, 160)
    assert trace.trained_iterations == 4 and trace.epochs.tolist() == [0, 1, 2, 3]
    assert (trace.src == np.repeat(np.arange(16), 10)).all() and (trace.dst == np.tile(np.arange(10), 16)).all()
    assert trace.about == {
        "dataset": "digits", "model": "compact", "routing": "dynamic", "epochs": 3, "seed": 0, "run": "run",
    }  # fmt: skip


def test_epoch_0_is_the_untrained_network(trace):
    torch.manual_seed(0)
    untrained = CapsNet.from_preset("compact", (1, 12, 12)).eval()
    routed = routing_of(untrained, to_float(torch.from_numpy(trace.images)))
    for name in ("b", "c", "agreement", "lengths"):  # float32 sums are rounded in another order, then to float16
        np.testing.assert_allclose(getattr(trace, name)[0], getattr(routed, name)[0], rtol=2**-10, atol=1e-4)


def test_parents_of_many_children_are_decoded_and_votes_are_not():
    model = CapsNet.from_preset("parts", (1, 19, 19)).eval()  # 128 children
    found = pictures(model, torch.rand(2, 1, 19, 19))
    assert found["decoded_parents"].shape == (2, 3, 10, 1, 19, 19) and "decoded_votes" not in found


def test_recording_leaves_the_network_and_the_random_numbers_alone():
    torch.manual_seed(0)
    model = CapsNet.from_preset("compact", (1, 12, 12)).train()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    numbers = torch.get_rng_state(), np.random.get_state()[1].tolist()
    trace = record(None, model, small.digits(), 0, "cpu", {})
    record(trace, model, small.digits(), 1, "cpu", {})
    assert model.training
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), numbers[0]) and np.random.get_state()[1].tolist() == numbers[1]
