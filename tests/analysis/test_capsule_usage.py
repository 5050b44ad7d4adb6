"""Usage of capsules, compared with loops over single images, and for capsules whose weights are set to zero."""

import math

import pytest
import small
import torch

from graphcaps import CapsNet, dynamic_routing
from graphcaps.cli.tables import usage_lines
from graphcaps.images.analysis.capsule_usage import capsule_usage
from graphcaps.images.data import Batches, Images, to_float
from graphcaps.images.models import from_preset
from graphcaps.routing import Dynamic


@pytest.fixture
def model():
    torch.manual_seed(0)
    return CapsNet.from_preset("compact", (1, 12, 12)).eval()


@pytest.fixture(scope="module")
def images():
    test = small.digits().test
    return Images(test.pixels[:9], test.labels[:9])


def test_it_equals_what_one_image_after_the_other_gives(model, images):
    [found] = capsule_usage(model, Batches(images, 4))
    layer, rows, away = model.capsules, [], 0
    for image in images.pixels:
        with torch.no_grad():
            u = model.children_of(to_float(image[None]))
            v, routed = dynamic_routing(layer.graph(), layer.votes(u), return_graph=True)
        c = routed.edata["c"].double().view(16, 10)
        entropy = torch.tensor([-sum(x * math.log(x) for x in row) for row in c.tolist()])
        away += int(((10 * c - 1).abs() > 0.01).sum())
        rows.append((u.norm(dim=-1)[:, 0], 10 * c.amax(1), entropy, v.norm(dim=-1)[:, 0], 10 * c.amax(0)))
    lengths, child_relative_coupling, entropy, parent_lengths, parent_relative_coupling = (
        torch.stack(column) for column in zip(*rows, strict=True)
    )
    every = torch.stack([row[0] for row in rows]), torch.stack([row[2] for row in rows]) / math.log(10)
    assert found.weighted_entropy == pytest.approx(float((every[0] * every[1]).sum() / every[0].sum()), abs=1e-5)
    assert abs(found.weighted_entropy - float(every[1].mean())) > 3e-4  # the plain mean differs
    near = {"rtol": 1e-4, "atol": 1e-5, "check_dtype": False}
    torch.testing.assert_close(found.children.length, lengths.amax(0), **near)
    torch.testing.assert_close(found.children.relative_coupling, child_relative_coupling.amax(0), **near)
    torch.testing.assert_close(found.entropy, entropy.mean(0), **near)
    torch.testing.assert_close(found.parents.length, parent_lengths.amax(0), **near)
    torch.testing.assert_close(found.parents.relative_coupling, parent_relative_coupling.amax(0), **near)
    assert found.num_images == 9
    torch.testing.assert_close(found.undecided, torch.full((16,), math.log(10)).double())
    assert 0 < away < 9 * 160 and found.away == pytest.approx(away / (9 * 160), abs=2e-3)
    assert not any(where.any() for where in (found.children.dead, found.parents.dead, found.parents.starved))


def test_a_child_and_a_parent_that_are_killed_are_found_dead(model, images):
    with torch.no_grad():
        model.primary.conv.weight[24:32], model.primary.conv.bias[24:32] = 0, 0  # the 8 channels of child 3
        model.capsules.weight.view(16, 10, 8, 16)[:, 7] = 0
    [found] = capsule_usage(model, Batches(images, 4))
    assert found.children.dead.nonzero().tolist() == [[3]] and found.parents.dead.nonzero().tolist() == [[7]]
    assert found.children.starved.nonzero().tolist() == [[3]]  # its votes are 0, so it never chooses


def test_with_one_iteration_all_are_starved(images):
    torch.manual_seed(0)
    model, shares = CapsNet.from_preset("compact", (1, 12, 12), routing=Dynamic(1)).train(), []
    [found] = capsule_usage(model, Batches(images, 4), shares.append)
    assert found.children.starved.all() and found.parents.starved.all() and found.away == 0
    assert torch.allclose(found.entropy, torch.tensor(math.log(10), dtype=torch.float64))
    assert usage_lines(found).splitlines()[0].startswith("9 test images: of 16 children 0 dead")
    assert shares == [4 / 9, 8 / 9, 1] and model.training


@pytest.mark.parametrize("name", ["deep", "matrix-small"])
def test_each_layer_is_counted_and_the_parents_of_one_are_the_children_of_the_next(name):
    torch.manual_seed(0)
    model = from_preset(name, image_shape=(1, 23, 23), num_classes=10).eval()
    images = Images(torch.randint(256, (3, 1, 23, 23), dtype=torch.uint8), torch.arange(3))
    found = capsule_usage(model, Batches(images, 2), all_layers=True)
    layers = [*model.between, model.capsules]
    assert [len(one.entropy) for one in found] == [layer.num_children for layer in layers]
    assert [one.num_images for one in found] == [3, 3, 3]
    for one, layer in zip(found, layers, strict=True):
        torch.testing.assert_close(one.undecided, layer.graph().out_degrees().clamp_min(1).double().log())
        assert not one.children.starved[one.undecided == 0].any()  # children outside all windows
        assert (one.entropy <= one.undecided + 1e-6).all() and 0 < one.relative_entropy <= 1
    assert (found[0].undecided == 0).any() == (name == "matrix-small")
    for below, above in zip(found, found[1:], strict=False):
        torch.testing.assert_close(below.parents.length, above.children.length, rtol=1e-3, atol=1e-4)
