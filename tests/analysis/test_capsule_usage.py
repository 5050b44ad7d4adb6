"""How capsules are used: against loops over single images, and with capsules that were killed on purpose."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from graphcaps import CapsNet, dynamic_routing
from graphcaps.analysis.capsule_usage import capsule_usage, capsule_usage_of_layers, relative_entropy
from graphcaps.cli.tables import usage_tables
from graphcaps.data import Batches, Images, to_float
from graphcaps.models import from_preset

from . import small


@pytest.fixture
def model():
    torch.manual_seed(0)
    return CapsNet.from_preset("compact", (1, 12, 12)).eval()


@pytest.fixture(scope="module")
def images():
    test = small.digits().test
    return Images(test.pixels[:9], test.labels[:9])


@pytest.mark.parametrize("batch_size", [1, 4, 9])
def test_it_equals_what_one_image_after_the_other_gives(model, images, batch_size):
    found = capsule_usage(model, Batches(images, batch_size))
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
    near = {"rtol": 1e-4, "atol": 1e-5, "check_dtype": False}
    torch.testing.assert_close(found.child_length, lengths.amax(0), **near)
    torch.testing.assert_close(found.child_relative_coupling, child_relative_coupling.amax(0), **near)
    torch.testing.assert_close(found.entropy, entropy.mean(0), **near)
    torch.testing.assert_close(found.parent_length, parent_lengths.amax(0), **near)
    torch.testing.assert_close(found.parent_relative_coupling, parent_relative_coupling.amax(0), **near)
    assert (found.num_images, found.num_types) == (9, 16)
    torch.testing.assert_close(found.undecided, torch.full((16,), math.log(10)).double())
    assert 0 < away < 9 * 160 and found.away == pytest.approx(away / (9 * 160), abs=2e-3)
    assert not any(where.any() for where in (found.dead_children, found.dead_parents, found.starved_parents))


def test_a_child_and_a_parent_that_are_killed_are_found_dead(model, images):
    with torch.no_grad():
        model.primary.conv.weight[24:32], model.primary.conv.bias[24:32] = 0, 0  # the 8 channels of child 3
        model.capsules.weight.view(16, 10, 8, 16)[:, 7] = 0
    found = capsule_usage(model, Batches(images, 4))
    assert found.dead_children.nonzero().tolist() == [[3]] and found.dead_parents.nonzero().tolist() == [[7]]
    assert found.starved_children.nonzero().tolist() == [[3]]  # its votes are 0, so it never chooses


def test_with_one_iteration_all_are_starved_and_undecided(images):
    torch.manual_seed(0)
    found = capsule_usage(CapsNet.from_preset("compact", (1, 12, 12), iterations=1), Batches(images, 4))
    assert found.starved_children.all() and found.starved_parents.all() and found.away == 0
    assert torch.allclose(found.entropy, torch.tensor(math.log(10), dtype=torch.float64))


@pytest.mark.parametrize("training", [True, False])
def test_the_network_is_left_as_it_was_and_progress_ends_at_1(model, images, training):
    model.train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    shares = []
    capsule_usage(model, Batches(images, 4), shares.append)
    assert shares == [4 / 9, 8 / 9, 1] and model.training is training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_types_are_outermost():
    torch.manual_seed(0)
    model = CapsNet.from_preset("paper", (1, 19, 19)).eval()  # 32 types at 2 x 2 positions
    with torch.no_grad():
        model.primary.conv.weight[8:16], model.primary.conv.bias[8:16] = 0, 0  # type 1
        model.primary.conv.weight *= 10  # an untrained network's capsules are short
    pixels = torch.randint(256, (2, 1, 19, 19), dtype=torch.uint8)
    found = capsule_usage(model, Batches(Images(pixels, torch.arange(2)), 2))
    assert found.by_type(found.dead_children).sum(1).tolist() == [0, 4] + 30 * [0]
    lines = usage_tables(found, tuple("0123456789")).splitlines()
    assert lines[0] == "2 test images: of 128 children 4 dead, 4 starved; of 10 parents 0 dead, 0 starved"
    assert lines[3].startswith("dead: ")  # columns are explained before they come
    rows = lines[9:42]
    assert lines[8].startswith("child type") and [row.split()[:3] for row in rows[:2]] == [
        ["0", "4", "0"],
        ["1", "4", "4"],
    ]
    assert rows[-1].split()[:3] == ["all", "128", "4"]
    stored = json.loads(found.to_json(tuple("0123456789")))
    assert stored["children"]["dead"] == [4, 5, 6, 7] and stored["parents"]["dead"] == []
    assert stored["children"]["largest_length"] == pytest.approx(found.child_length.tolist(), abs=1e-6)


def test_the_table_is_there_only_where_something_is_unused_or_types_differ(model, images):
    found = capsule_usage(model, Batches(images, 4))
    alike = dataclasses.replace(found, entropy=0.999 * found.undecided)
    assert usage_tables(alike, tuple("0123456789")).splitlines() == [
        "9 test images: no capsule is dead, none starved",
        "coupling entropy: 99.9% of undecided (2.303 nat); 0%: each child has chosen one parent",
    ]
    entropy = alike.entropy.clone()
    entropy[3] *= 0.97
    said = usage_tables(dataclasses.replace(alike, entropy=entropy), tuple("0123456789")).splitlines()
    assert said[1].startswith("coupling entropy: 99.7% of undecided (2.303 nat), of types of child 96.9% to 99.9%; ")
    assert [line.split()[0] for line in said[9:26]] == [*map(str, range(16)), "all"]
    lengths = alike.child_length.clone()
    lengths[3] = 0
    said = usage_tables(dataclasses.replace(alike, child_length=lengths), tuple("0123456789"))
    assert said.startswith("9 test images: of 16 children 1 dead, 0 starved; of 10 parents 0 dead, 0 starved")
    assert "\nchild type" in said


def layers_of(name: str) -> tuple[torch.nn.Module, list]:
    """An untrained network, and how the capsules of each of its layers are used, on some images."""
    torch.manual_seed(0)
    size = 23
    model = from_preset(name, image_shape=(1, size, size), num_classes=10).eval()
    pixels = torch.randint(256, (3, 1, size, size), dtype=torch.uint8)
    return model, capsule_usage_of_layers(model, Batches(Images(pixels, torch.arange(3)), 2))


@pytest.mark.parametrize("name", ["deep", "matrix-small"])
def test_each_layer_is_counted_and_the_parents_of_one_are_the_children_of_the_next(name):
    model, found = layers_of(name)
    layers = [*model.between, model.capsules]
    assert [len(one.entropy) for one in found] == [layer.num_children for layer in layers]
    assert [one.num_images for one in found] == [3, 3, 3]
    for one, layer in zip(found, layers, strict=True):
        torch.testing.assert_close(one.undecided, layer.graph().out_degrees().clamp_min(1).double().log())
        assert not one.starved_children[one.undecided == 0].any()  # outside all windows
        assert (one.entropy <= one.undecided + 1e-6).all() and 0 < relative_entropy(one.entropy, one.undecided) <= 1
    assert (found[0].undecided == 0).any() == (name == "matrix-small")
    for below, above in zip(found, found[1:], strict=False):
        torch.testing.assert_close(below.parent_length, above.child_length, rtol=1e-3, atol=1e-4)


def test_the_last_layer_is_what_is_counted_of_a_network(model, images):
    batches = Batches(images, 4)
    alone, (last,) = capsule_usage(model, batches), capsule_usage_of_layers(model, batches)
    for name in (
        "child_length",
        "child_relative_coupling",
        "entropy",
        "parent_length",
        "parent_relative_coupling",
        "undecided",
    ):
        assert torch.equal(getattr(alone, name), getattr(last, name))
    assert alone.away == last.away


def test_children_without_a_choice_do_not_count_as_undecided():
    entropy, undecided = torch.tensor([0.0, 0.5, 0.25]), torch.tensor([0.0, 1.0, 1.0])
    assert relative_entropy(entropy, undecided) == 0.375
    assert relative_entropy(entropy[:1], undecided[:1]) == 1
