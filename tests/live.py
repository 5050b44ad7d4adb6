"""A live page on a free port, of a network without training whose capsules are long, on scikit-learn's digits."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import threading
from collections.abc import Iterator

import numpy as np
import torch

from graphcaps import CapsNet
from graphcaps.app.answers import Explorer
from graphcaps.data import DATASETS, Images, load_images


def why_not_served() -> str:
    """Why pages can't be served here, or "" where they can."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)}, of the app extra, not installed" if missing else ""


def picture(packed: dict) -> np.ndarray:
    """The uint8 array of {"shape", "data"}."""
    return np.frombuffer(base64.b64decode(packed["data"]), np.uint8).reshape(packed["shape"])


@functools.cache
def network(preset: str = "compact", image_shape: tuple[int, int, int] = (1, 28, 28)) -> CapsNet:
    torch.manual_seed(0)
    model = CapsNet.from_preset(preset, image_shape, 10).eval()
    model.class_names = tuple("0123456789")
    with torch.no_grad():
        model.capsules.weight *= 12  # or no length would differ from 0 in the digits that are shown
        model.decoder.layers[-1].weight *= 12
    return model


@functools.cache
def explorer(dataset: str = "mnist") -> Explorer:
    """Digits that are drawn as this data set's."""
    test = load_images("digits").test
    few = Images(test.pixels[:40], test.labels[:40])
    about = {"run": "test", "dataset": dataset, "model": "compact"}
    return Explorer(network(), few, DATASETS[dataset], epoch=3, about=about)


@contextlib.contextmanager
def serving(explorer: Explorer) -> Iterator[str]:
    """The address of the page while the block runs."""
    from graphcaps.app import server

    listener = server.listen(0)
    running = server.http_server(server.make_app(explorer))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://{server.ADDRESS}:{listener.getsockname()[1]}/"
    finally:
        running.should_exit = True
        thread.join()
