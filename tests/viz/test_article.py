"""The article: each number in its text is recomputed from the weights; screens, links, keys, embedding, no scripts."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps import load
from graphcaps.explore.network import page_parts
from graphcaps.images.data import Batches, load_images, to_float
from graphcaps.images.models.answers import is_correct, longest, overlaid
from graphcaps.images.training.run_folder import Run
from graphcaps.nn.routed import route_layer
from graphcaps.viz.explorer.data import explorer_data
from graphcaps.viz.explorer.html import shares_of, with_data

from .browser import check_axe, check_fits, opened, settle, text, visit

PAGE = Path(__file__).parents[2] / "docs" / "explorer.html"
SCREENS = ["ink", "votes", "round", "agreement", "routing", "silence", "without", "yours"]
LAST = 13  # of 14 rounds, from 0


@pytest.fixture(scope="module")
def page(chromium):
    with opened(chromium, PAGE, reduced_motion="reduce") as page:
        yield page


@pytest.fixture(scope="module")
@torch.no_grad()
def routed() -> list[dict[str, np.ndarray]]:
    """Of the pair that the page opens with, b, c and agreement (I, J) and lengths (J,) in each round."""
    net, image = load("multimnist"), to_float(torch.from_numpy(Run.open("multimnist").trace().images[10:11]))
    states = []

    def observe(r, b, c, v, agreement):
        state = {name: value.reshape(16, 10) for name, value in (("b", b), ("c", c), ("agreement", agreement))}
        states.append({name: value.numpy() for name, value in (state | {"lengths": v[:, 0].norm(dim=-1)}).items()})

    route_layer(net.capsules, net.children_of(image), observe)
    return states


def enter(page, screen: str) -> str:
    """Open a screen by its link, and return its text."""
    visit(page, f"screen={screen}")
    page.wait_for_timeout(100)
    settle(page)
    assert page.evaluate("document.body.dataset.screen") == screen
    return text(page, f"[data-screen={screen}].step")


def decimals(words: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d+", words)]


@torch.no_grad()
def test_what_equal_shares_change_is_measured_on_2000_pairs(mnist_root):
    net, found = load("multimnist"), Run.open("multimnist").result()["equal_shares"]
    test = load_images("multimnist", mnist_root, download=False).test
    layers, labels = Batches(test, 1).at(torch.arange(found["pairs"]))
    u = [net.children_of(overlaid(part)) for part in layers.split(250)]
    routed, other = (
        torch.cat([route_layer(net.capsules, part, iterations=n).v.norm(dim=-1) for part in u], dim=1).t()
        for n in (None, 1)
    )
    assert int((longest(routed, 2) == longest(other, 2)).all(dim=1).sum()) == found["same"]
    for lengths, name in ((routed, ""), (other, "_with_equal_shares")):
        assert int(is_correct(longest(lengths, 2), labels).sum()) == found[f"right{name}"]
        second, third = lengths.sort(dim=1, descending=True).values.mean(dim=0)[1:3].tolist()
        assert (second, third) == pytest.approx((found[f"second{name}"], found[f"third{name}"]), abs=1e-4)


def test_the_numbers_of_each_screen_are_those_of_the_weights(page, routed):
    first, last = routed[0], routed[LAST]
    eight, nine = 8, 9
    others = np.delete(np.arange(10), [eight, nine])
    shown = decimals(enter(page, "round"))[1:]  # after the threshold
    above = np.ceil(100 * first["lengths"][others].max()) / 100
    assert shown == pytest.approx([*first["lengths"][[eight, nine]], above], abs=0.0051)
    child = int(last["c"][:, nine].argmax())
    share = np.array([state["c"][child, nine] for state in routed])
    turn = int(np.diff(share).argmax())
    words = enter(page, "agreement")
    assert f"In round {turn + 1}, the vote of part #{child} for the 9" in words
    agreement = routed[turn]["agreement"][child, nine]
    b = [routed[r]["b"][child, nine] for r in (turn, turn + 1)]
    wanted = [agreement, *b, *share[turn : turn + 2], agreement, b[1], share[turn + 1]]
    assert decimals(words) == pytest.approx(wanted, abs=0.0051)
    spread = np.flatnonzero(last["c"].max(axis=1) <= 0.55)
    words = enter(page, "routing")
    spread_out = ", #".join(map(str, spread)) + " choose" + "s" * (len(spread) == 1)
    assert f"{16 - len(spread)} of 16 parts choose a digit; #{spread_out} none" in words
    assert f"Part #{child} gives {100 * share[-1]:.0f} % of itself to the 9" in enter(page, "silence")
    shown = decimals(enter(page, "without"))
    wanted = [state["lengths"][j] for state in (first, last) for j in (eight, nine)]
    assert shown[:4] == pytest.approx(wanted, abs=0.0051)
    found = Run.open("multimnist").result()
    pairs, names = found["equal_shares"], ("right_with_equal_shares", "right")
    assert shown[4:6] == pytest.approx([pairs[name] / 20 for name in names], abs=0.051)
    ends = [pairs[f"{name}{how}"] for how in ("_with_equal_shares", "") for name in ("second", "third")]
    assert shown[6:10] == pytest.approx(ends, abs=0.0051)
    trained = [found["trained_with_equal_shares"], found["test_accuracy"]]  # the control is in experiments/LOG.md
    rates = [*trained, *found["routing_gain"], found["cnn_accuracy"], found["singles_alone_above_threshold"]]
    assert shown[10:] == pytest.approx(100 * np.abs(rates), abs=0.051) and found["empty_without_answer"] > 0.9999
    assert text(page, "[data-live=rank]").endswith(f"number {found['shown_ranks'][10]}.")


@torch.no_grad()
def test_a_part_is_silenced_and_the_prediction_answered(page, routed):
    enter(page, "silence")
    page.locator("#predict [value=stays]").click()
    page.wait_for_function("() => document.querySelector('#silenced').textContent")
    net, image = load("multimnist"), to_float(torch.from_numpy(Run.open("multimnist").trace().images[10:11]))
    child, u = int(routed[LAST]["c"][:, 9].argmax()), net.children_of(image)
    u[child] = 0
    lengths = route_layer(net.capsules, u).v[:, 0].norm(dim=-1).numpy()
    wanted = [routed[LAST]["lengths"][8], lengths[8], routed[LAST]["lengths"][9], lengths[9]]
    assert decimals(text(page, "#silenced")) == pytest.approx(wanted, abs=0.0051)
    assert ("You were right." in text(page, "#silenced")) == (abs(wanted[1] - wanted[0]) <= 0.02)
    page.locator("#heard").click()
    page.wait_for_function("() => !document.querySelector('#silenced').textContent")


def test_the_ink_stays_white_until_the_reader_guesses(page):
    enter(page, "ink")
    page.reload()
    buttons, of = page.locator("#guess button"), page.locator("#entropy output")
    buttons.first.filter(has_text="the").wait_for()  # on a busy machine, the decoder takes seconds
    page.wait_for_timeout(1200)  # longer than a screen waits before it plays
    assert buttons.all_inner_texts() == ["the 8’s", "the 9’s", "both"] and of.inner_text() == "1"
    buttons.last.click()
    page.wait_for_function("() => document.querySelector('#entropy output').textContent.startsWith('14')")
    assert "You agree." in text(page, "#guess .says")


def test_screens_are_reached_by_keys_and_scrolling_and_a_stroke_leads_to_the_sheet(page):
    enter(page, "ink")
    for screen in SCREENS[1:]:
        page.keyboard.press("j")
        page.wait_for_function("(screen) => document.body.dataset.screen === screen", arg=screen)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function("() => document.body.dataset.screen === 'ink'")
    check_axe(page)
    box = page.locator("#sheet canvas").bounding_box()
    page.mouse.click(box["x"] + 90, box["y"] + 90)
    page.wait_for_function("() => document.body.dataset.screen === 'yours'")
    page.keyboard.press("Control+z")


def test_digits_that_are_typed_are_read_and_a_link_holds_them(chromium, page):
    enter(page, "yours")
    page.locator("#typed").fill("38")
    page.wait_for_function("() => document.querySelector('#shown').textContent === 'Typed: 38'")
    page.wait_for_function("() => location.hash.includes('type=38')")
    settle(page)
    with opened(chromium, PAGE, end=page.evaluate("location.hash"), reduced_motion="reduce") as other:
        assert text(other, "#shown") == "Typed: 38"
        assert text(other, "#parents") == text(page, "#parents")
    page.locator("#clean").click()


def test_the_stage_alone_fits_a_frame(chromium):
    with opened(chromium, PAGE, width=320, height=400, end="?embed#screen=routing", reduced_motion="reduce") as page:
        assert page.locator(".step").first.is_hidden() and page.locator("#top").is_hidden()
        box = page.locator("#iteration").bounding_box()
        assert box["y"] + box["height"] <= 400
        assert page.locator(".stage > canvas").bounding_box()["height"] >= 16 * 8 / 0.76  # strips of 8 pixels
        check_fits(page)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (320, 640)])
def test_every_screen_fits_its_window_and_strips_have_8_pixels(chromium, width, height):
    with opened(chromium, PAGE, width=width, height=height, reduced_motion="reduce") as page:
        for screen in SCREENS:
            enter(page, screen)
            check_fits(page)
            tall = page.locator(".stage > canvas").bounding_box()["height"]
            assert screen in ("ink", "votes") or tall >= 16 * 8 / 0.76, screen


def test_without_scripts_text_and_three_stills_remain(chromium):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(PAGE.as_uri())
    assert page.locator(".step").count() == 8 and page.locator(".still svg").count() == 3
    assert page.locator("#screen").is_hidden() and page.locator(".live:visible").count() == 0
    assert page.locator(".still path").count() == 3 * 16 * 3
    context.close()


def test_a_page_that_names_no_class_claims_no_answer(chromium):
    trace, network, _ = page_parts(Run.open("multimnist"))
    data = explorer_data(replace(trace, about=trace.about | {"threshold": 0.999}), 10)
    shares = {"network": network, "without": "", "stills": shares_of(trace, 10, 2)}
    with opened(chromium, with_data(data | shares), reduced_motion="reduce") as page:
        steps = page.locator(".step")
        assert [step.get_attribute("data-screen") for step in steps.all()] == ["ink", "votes", "yours"]
        first = text(page, "[data-screen=ink].step")
        assert "fewer than two digits are longer than the threshold of 1.00" in first and "Train on." in first
        assert page.locator("#guess").is_hidden()
        assert "sees 3" in text(page, "[data-screen=votes].step") and text(page, "#verdict") == "no digit is named"
        assert "10 digits: none above" in text(page, "#parents")
