"""The live page's server: its answers are the network's, its errors are clear, and it answers this machine alone."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

import graphcaps.app
from graphcaps import TrainConfig, cli
from graphcaps.app.answers import Explorer, stroke_width
from graphcaps.app.explain import explain_image
from graphcaps.data import Images, ImageSplits, to_float
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.models import Limits
from graphcaps.trace import recording
from graphcaps.training import checkpoint
from graphcaps.training.run_folder import Run
from graphcaps.viz.explorer.data import explorer_data

from .live import explorer, network, picture, serving, why_not_served

with_server = pytest.mark.skipif(bool(why_not_served()), reason=why_not_served())
DIGIT = explorer().images.pixels[7]  # (1, 28, 28)


def test_the_answer_is_what_training_would_have_recorded_of_the_image():
    few = explorer().images
    splits = ImageSplits("digits", network().class_names, few, few, few)
    wanted = explorer_data(recording.record(None, network(), splits, 3, "cpu", {}))["images"]
    chosen = few.pixels[recording.one_of_each_class(few.labels, 10)]
    for n in (0, 6):
        (got,) = explain_image(network(), chosen[n].numpy())["trace"]["images"]
        for exact in ("pixels", "src", "dst", "fields", "credit"):
            assert got.get(exact) == wanted[n].get(exact)
        assert np.allclose(got["lengths"], wanted[n]["lengths"], atol=2e-4)
        assert np.allclose(got["mean_entropy"], wanted[n]["mean_entropy"], atol=1e-3)
        looks = [picture(image["saliency"]).astype(int) for image in (got, wanted[n])]
        assert np.abs(looks[0] - looks[1]).max() <= 2


def test_the_longest_parents_are_the_networks_with_what_its_decoder_makes_of_them():
    output = network()(to_float(DIGIT)[None])
    answer = explain_image(network(), DIGIT.numpy())
    tops, trace = answer["tops"], answer["trace"]
    order = output.lengths[0].argsort(descending=True)
    assert [top["parent"] for top in tops] == order[:3].tolist()
    assert np.allclose([top["length"] for top in tops], output.lengths[0][order[:3]].detach())
    assert np.allclose(trace["images"][0]["lengths"][0][trace["trained"] - 1], output.lengths[0].detach(), atol=1e-4)
    for top in tops:
        own = network().decoder(output.capsules, torch.tensor([top["parent"]]))
        assert np.array_equal(picture(top["picture"]), recording.to_bytes(own.detach())[0])
    assert np.array_equal(picture(tops[0]["picture"]), recording.to_bytes(output.reconstruction.detach())[0])


def test_an_answer_comes_with_what_speaks_against_it():
    assert explain_image(network(), DIGIT.numpy())["doubts"] == []
    (blank,) = explain_image(network(), np.full((1, 28, 28), 20, np.uint8))["doubts"]
    assert blank["kind"] == "blank" and blank["text"].startswith("the image is blank")
    doubting = copy.deepcopy(network())
    doubting.limits = Limits(3, 30, 1.0, 0.0, 1.0)
    found = explain_image(doubting, DIGIT.numpy())["doubts"]
    assert [doubt["kind"] for doubt in found] == ["short", "unlike"]
    started = [dataclasses.replace(explorer(), model=each).start() for each in (network(), doubting)]
    assert [each["limited"] for each in started] == [False, True]


@pytest.mark.parametrize(
    ("preset", "shape"), [("paper", (3, 20, 20)), ("compact", (3, 32, 32)), ("compact", (1, 12, 16))]
)
def test_any_network_answers_images_of_its_shape(preset, shape):
    model = network(preset, shape)
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (12, *shape), generator=draw, dtype=torch.uint8)
    asked = dataclasses.replace(explorer(), model=model, images=Images(pixels, torch.arange(12) % 10))
    start = asked.start()
    assert start["shape"] == list(shape) and len(start["examples"]) == 10
    answer = asked.explain({"pixels": pixels[0].tolist()})
    assert [picture(top["picture"]).shape for top in answer["tops"]] == [shape] * 3
    assert np.array_equal(picture(answer["trace"]["images"][0]["pixels"]), pixels[0])


def test_a_varied_capsule_is_another_picture():
    top = explain_image(network(), DIGIT.numpy())["tops"][1]
    capsule = list(top["capsule"])
    same = explorer().decode({"parent": top["parent"], "capsule": capsule})
    assert same == {"picture": top["picture"]}
    capsule[4] += 0.25
    assert explorer().decode({"parent": top["parent"], "capsule": capsule}) != same


def test_a_test_image_comes_with_its_label():
    got = explorer().image({"image": 7})
    label = int(explorer().images.labels[7])
    assert (got["name"], got["classes"]) == (str(label), [label])
    assert np.array_equal(picture(got["pixels"]), DIGIT)


BLANK = np.zeros((1, 28, 28), int).tolist()
WRONG = [
    ("explain", [1, 2], r'body: expected an object with "pixels", got list'),
    ("explain", {"pixel": BLANK}, r"body: expected an object with \"pixels\", got \['pixel'\]"),
    ("explain", {"pixels": BLANK, "more": 1}, "body: expected"),
    ("explain", {"pixels": BLANK[0]}, r"pixels: expected \(C=1, H=28, W=28\) numbers, got \(28, 28\)"),
    ("explain", {"pixels": [[[0], [0, 0]]]}, "pixels: .* got lists of different lengths"),
    ("explain", {"pixels": "AAAA"}, "pixels: .* got other things: 'AAAA'"),
    ("explain", {"pixels": [[[True] * 28] * 28]}, "pixels: .* got other things"),
    ("explain", {"pixels": [[[None] * 28] * 28]}, "pixels: .* got other things"),
    ("explain", {"pixels": [[[10**400] * 28] * 28]}, "pixels: .* got other things"),
    ("explain", {"pixels": [[[256] * 28] * 28]}, "pixels: expected numbers from 0 to 255"),
    ("explain", {"pixels": [[[-1] * 28] * 28]}, "pixels: expected numbers from 0 to 255"),
    ("explain", {"pixels": [[[float("nan")] * 28] * 28]}, "pixels: expected finite numbers, got NaN or infinity"),
    ("decode", {"parent": 10, "capsule": [0] * 16}, "parent: expected an integer from 0 to 9, got 10"),
    ("decode", {"parent": True, "capsule": [0] * 16}, "parent: expected an integer"),
    ("decode", {"parent": 1.0, "capsule": [0] * 16}, "parent: expected an integer"),
    ("decode", {"parent": 1, "capsule": [0] * 15}, r"capsule: expected \(D=16\) numbers, got \(15,\)"),
    ("decode", {"parent": 1, "capsule": [1e30] * 16}, r"capsule: expected numbers from -2.0 to 2.0"),
    ("image", {"image": 40}, "image: expected an integer from 0 to 39, got 40"),
    ("image", {"image": -1}, "image: expected an integer from 0 to 39, got -1"),
    ("image", {"image": "1"}, "image: expected an integer"),
]


@pytest.mark.parametrize(("answer", "asked", "text"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_question_is_answered_with_what_was_wanted(answer, asked, text):
    with pytest.raises(InputError, match=text) as raised:
        getattr(explorer(), answer)(asked)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("width", [2, 3, 5])
def test_the_width_of_strokes_is_measured(width):
    lines = torch.zeros(1, 1, 280, 280)
    lines[..., 60:220, 103 : 103 + 10 * width] = 255
    lines[..., 60 : 60 + 10 * width, 103:220] = 255
    small = interpolate(lines, size=(28, 28), mode="area").numpy()
    assert stroke_width(small) == pytest.approx(width, rel=0.25)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run folder with weights after three epochs, and no trace."""
    made = Run.create(TrainConfig(dataset="digits", out=tmp_path_factory.mktemp("runs"), name="live"))
    head = {"preset": network().preset, "class_names": network().class_names, "state": {"epoch": 3}}
    checkpoint.write(made.checkpoint("best"), checkpoint.model_tensors(network()), head)
    return made


def test_a_run_is_explored_with_all_test_images_of_its_data_set(run):
    opened = Explorer.of(run)
    assert len(opened.images) == 250 and opened.epoch == 3 and opened.spec.detail == 8
    trace = opened.explain({"pixels": BLANK})["trace"]
    assert trace["title"] == "compact on digits" and trace["source"] == ["run live", "3 epochs"]


def test_without_the_data_set_the_images_are_the_traces(run, monkeypatch, tmp_path):
    def none(name, root, download):
        assert not download
        raise GraphcapsError(f"digits: nothing in {root}")

    monkeypatch.setattr("graphcaps.app.answers.load_images", none)
    with pytest.raises(GraphcapsError, match="trace: expected a file"):
        Explorer.of(run)
    few = explorer().images
    splits = ImageSplits("digits", network().class_names, few, few, few)
    trace = recording.record(None, network(), splits, 3, "cpu", {})
    monkeypatch.setattr(Run, "trace", lambda self: trace)
    assert np.array_equal(Explorer.of(run).images.pixels, trace.images)
    with pytest.raises(GraphcapsError, match=f"nothing in {tmp_path}"):
        Explorer.of(run, tmp_path)


@pytest.fixture(scope="module")
def address():
    with serving(explorer()) as address:
        yield address


def ask(address, path, body=None, method=None, **headers):
    """Status, headers and text of an answer; a body that isn't bytes is sent as JSON."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=20)
    body = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
    headers = {"Content-Type": "application/json"} | headers
    connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, response.headers, text


@with_server
def test_the_page_may_run_its_own_script_and_ask_its_own_server_alone(address):
    status, headers, text = ask(address, "/")
    assert status == 200 and headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'" and policy.keys() - {"script-src", "style-src"} == {
        "default-src", "connect-src", "frame-ancestors", "base-uri", "form-action",
    }  # fmt: skip
    for source, tag in (("script-src", '<script type="module">(.*?)</script>'), ("style-src", "<style>(.*?)</style>")):
        digest = hashlib.sha256(re.search(tag, text, re.DOTALL)[1].encode()).digest()
        assert policy[source] == f"'sha256-{base64.b64encode(digest).decode()}'"


@with_server
def test_questions_over_http_get_the_explorers_answers(address):
    status, headers, text = ask(address, "/explain", {"pixels": DIGIT.tolist()})
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert json.loads(text).keys() == {"trace", "tops", "doubts"}
    capsule = json.loads(text)["tops"][0]["capsule"]
    assert ask(address, "/decode", {"parent": 2, "capsule": capsule})[0] == 200
    assert ask(address, "/image", {"image": 3})[0] == 200


@with_server
@pytest.mark.parametrize(
    ("status", "text", "question"),
    ids=range(9),
    argvalues=[
        (400, "body: expected JSON", {"path": "/explain", "body": b"{"}),
        (400, "body: expected JSON", {"path": "/explain", "body": b"\xff\xfe"}),
        (400, "body: expected JSON", {"path": "/explain", "body": b"[" * 200_000}),
        (400, "NaN or infinity", {"path": "/explain", "body": {"pixels": [[[float("nan")] * 28] * 28]}}),
        (400, "from 0 to 39", {"path": "/image", "body": {"image": 99}}),
        (404, "Not Found", {"path": "/nothing"}),
        (405, "Method Not Allowed", {"path": "/explain"}),
        (413, "at most 1048576 bytes", {"path": "/explain", "body": b" " * ((1 << 20) + 1)}),
        (415, "application/json", {"path": "/explain", "body": {}, "Content-Type": "text/plain"}),
    ],
)
def test_what_is_wrong_is_said_as_json(address, status, text, question):
    got, headers, said = ask(address, **question)
    assert got == status and headers["Content-Type"] == "application/json"
    assert text in json.loads(said)["error"]


@with_server
@pytest.mark.parametrize(
    ("host", "status"), [("localhost:80", 200), ("evil.example", 400), ("127.0.0.1.evil.example", 400)]
)
def test_only_this_machines_names_are_answered(address, host, status):
    assert ask(address, "/", Host=host)[0] == status


@with_server
def test_it_listens_on_the_loopback_address_alone_and_a_taken_port_is_said():
    from graphcaps.app import server

    with server.listen(0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(GraphcapsError, match=rf"port: expected to be able to listen on {port}, got: .*--port 0"):
            server.listen(port)


@with_server
def test_one_question_is_computed_at_a_time():
    inside, most = [], []

    class Slow(Explorer):
        def decode(self, asked):
            inside.append(asked)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()
            return {}

    slow = Slow(**{field.name: getattr(explorer(), field.name) for field in dataclasses.fields(Explorer)})
    with serving(slow) as address:
        threads = [threading.Thread(target=ask, args=(address, "/decode", {})) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(most) == 6 and max(most) == 1


@with_server
def test_a_network_that_fails_is_said_too():
    class Broken(Explorer):
        def decode(self, asked):
            raise GraphcapsError("trace: expected finite numbers")

    broken = Broken(**{field.name: getattr(explorer(), field.name) for field in dataclasses.fields(Explorer)})
    with serving(broken) as address:
        status, _, text = ask(address, "/decode", {})
    assert status == 500 and json.loads(text) == {"error": "trace: expected finite numbers"}


@with_server
def test_the_command_prints_its_address_answers_and_ends_with_ctrl_c(run):
    paths = {**os.environ, "PYTHONPATH": str(Path(graphcaps.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "graphcaps", "explore", str(run.path), "--port", "0"]
    with subprocess.Popen(command, env=paths, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline()
            address = re.fullmatch(rf"{run}: (http://127\.0\.0\.1:\d+) \(Ctrl-C stops it\)\n", said)[1]
            assert ask(address, "/")[0] == 200
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")


@with_server
def test_the_browser_is_opened_only_when_asked_for(run, monkeypatch, capsys):
    from graphcaps.app import server

    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: sockets[0].close())
    monkeypatch.setattr(server, "make_app", lambda explorer: None)
    for flags, count in (([], 0), (["--open"], 1)):
        assert cli.main(["explore", str(run.path), "--port", "0", *flags]) == 0
        assert len(opened) == count
    assert opened[0] in capsys.readouterr().out


def test_without_the_extra_one_line_says_what_to_install(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "graphcaps.app.server", raising=False)
    monkeypatch.delattr(graphcaps.app, "server", raising=False)
    assert cli.main(["explore", str(run.path)]) == 1
    said = 'graphcaps: explore: expected starlette and uvicorn, got no uvicorn. pip install -e ".[app]"\n'
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("words", ["--port 70000", "nowhere"])
def test_wrong_words_are_answered_before_anything_is_loaded(words, capsys):
    assert cli.main(["explore", *words.split()]) in (1, 2)
    assert "expected" in capsys.readouterr().err
