"""The explorer of a softmax without votes, in Chromium: its numbers are those of the record's arrays, in its words."""

import re

import numpy as np
import torch
from torch import nn

from graphcaps import viz, watch

from .browser import check_fits, opened, read, settle, text


def test_a_gate_has_loads_dead_experts_and_choices_of_all_epochs_in_its_words(chromium):
    torch.manual_seed(0)
    logits = 3 * torch.randn(200, 4) + torch.tensor([1.0, 0.0, 1.0, -20.0])
    names = {"expert": ["ace", "bob", "cy", "dee"], "digit": [f"digit {n}" for n in range(200)]}
    seen = watch(gate := nn.Softmax(-1), softmax={"Softmax": "digit -> expert"}, names={"Softmax": names})
    for epoch in (0, 5, 20):
        with seen:
            gate(logits * epoch / 20)
        seen.snapshot(epoch)
    trace = seen["Softmax"]
    with opened(chromium, viz.explorer_page(trace)) as page:
        assert page.locator("#play").is_visible() and text(page, "#entropy label") == "Epoch"
        assert page.locator("#pulling, #pulls, #beyond, #epochs, #desk").evaluate_all(
            "all => all.every((e) => !e.offsetParent)"
        )
        for k, epoch in enumerate((0, 5, 20)):
            page.locator("#iteration").fill(str(k + 1), force=True)
            settle(page)
            assert text(page, "#entropy output").split(",")[0] == str(epoch)
            c = trace.c[k, 0, 0].astype(float).reshape(200, 4)
            loads = [read(value.split("\u202f")[0]) for value in page.locator("#parents .value").all_inner_texts()]
            assert np.allclose(loads, 100 * c.mean(axis=0), atol=0.06)
            dead = [n for n, mark in enumerate(page.locator("#parents .mark").all_text_contents()) if mark == "†"]
            assert dead == np.flatnonzero(c.mean(axis=0) < 0.1 / 4).tolist() == [[], [3], [3]][k]
            counts = np.bincount(c.argmax(axis=1)[c.max(axis=1) > 0.625])  # halfway from a quarter to 1
            title = re.sub("of 200 digits chooses? ", "", text(page, "h1"))
            said = [(count, name) for count, name in re.findall(r"(\d+) (\w+)", title) if name != "none"]
            named = sorted(((int(n), names["expert"][j]) for j, n in enumerate(counts) if n), key=lambda pair: -pair[0])
            assert [(int(n), name) for n, name in said] == named
            assert ("No digit has chosen" in text(page, "h1")) == (not named)
            entropy = -(c * np.log(np.maximum(c, 1e-12))).sum(axis=1).mean()
            assert f"mean {entropy:.2f} nat of ln 4 = 1.39" == text(page, "#mean")
        page.locator("[aria-controls=why]").click()
        page.locator(".stage > canvas").focus()
        page.keyboard.press("ArrowDown")
        settle(page)
        child = int(re.match(r"Digit (\d+) divides itself", text(page, "#child h2"))[1])
        rows = [row.split() for row in page.locator("#child tbody tr").all_inner_texts()]
        assert [row[0] for row in rows] == names["expert"]
        assert page.locator("#child th").all_inner_texts() == ["expert", "c"]
        assert np.allclose([read(row[1]) for row in rows], c[child], atol=0.003)


def test_heads_are_chosen_and_one_call_has_no_rounds(chromium):
    c = torch.randn(3, 30, 5).softmax(-1)
    with watch(net := nn.Identity(), softmax={"Identity": "head: token -> slot"}) as seen:
        net(c)
    with opened(chromium, viz.explorer_page(seen["Identity"]), width=390, height=844, color_scheme="dark") as page:
        assert page.locator("#play").is_hidden() and page.locator("#entropy canvas").is_hidden()
        for n in (2, 0):
            page.get_by_role("radio", name=f"head {n}").check(force=True)
            settle(page)
            loads = [read(value.split("\u202f")[0]) for value in page.locator("#parents .value").all_inner_texts()]
            assert np.allclose(loads, 100 * c[n].mean(dim=0), atol=0.11)
        check_fits(page)
