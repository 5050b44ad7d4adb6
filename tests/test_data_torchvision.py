"""What is downloaded or decoded by torchvision.

The files are small ones in the official formats, written by the tests, with the counts and checksums replaced in this
project's table and in torchvision's. Downloads are torchvision's own, from a server on this machine.
"""

from __future__ import annotations

import gzip
import hashlib
import pickle
import shutil
import socket
import sys
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.data import DATASETS, load_images
from graphcaps.errors import GraphcapsError, InputError

from .test_data_idx import idx

datasets = pytest.importorskip("torchvision.datasets")


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def svhn(tmp_path, monkeypatch):
    sio = pytest.importorskip("scipy.io")
    random, counts, files, entries = np.random.RandomState(2), {"train": 40, "test": 20}, {}, {}
    for split, count in counts.items():
        path = tmp_path / f"{split}_32x32.mat"
        labels = np.arange(count)[:, None] % 10 + 1  # 10 stands for the digit 0
        sio.savemat(
            path, {"X": random.randint(0, 256, (32, 32, 3, count)).astype(np.uint8), "y": labels.astype(np.uint8)}
        )
        files[path.name] = md5(path)
        entries[split] = ["http://127.0.0.1:9/", path.name, md5(path)]
    monkeypatch.setattr(datasets.SVHN, "split_list", entries)
    monkeypatch.setitem(DATASETS, "svhn", replace(DATASETS["svhn"], train=40, test=20, val=10, files=files))
    return tmp_path


def test_svhn_is_decoded_with_channels_first_and_ten_as_zero(svhn):
    import scipy.io

    splits = load_images("svhn", svhn, download=False)
    assert splits.image_shape == (3, 32, 32) and (len(splits.train), len(splits.val), len(splits.test)) == (30, 10, 20)
    stored = scipy.io.loadmat(svhn / "test_32x32.mat")
    assert torch.equal(splits.test.pixels[7, 2], torch.from_numpy(stored["X"][:, :, 2, 7]))
    assert splits.test.labels.tolist() == [(k + 1) % 10 for k in range(20)]


def test_a_damaged_svhn_file_is_named_with_both_checksums(svhn):
    with (svhn / "train_32x32.mat").open("ab") as file:
        file.write(b"x")
    with pytest.raises(
        InputError, match=r"train_32x32.mat: expected md5 \w{32}, got \w{32}. Delete it .* --dataset digits"
    ):
        load_images("svhn", svhn)


class Touch:
    """A pickle of this creates the file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def write_cifar10(folder):
    folder.mkdir()
    random = np.random.RandomState(3)
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    for name in names:
        batch = {"data": random.randint(0, 256, (20, 3072)).astype(np.uint8), "labels": [k % 10 for k in range(20)]}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list(DATASETS["cifar10"].class_names)}))
    return {f"{folder.name}/{name}": md5(folder / name) for name in [*names, "batches.meta"]}


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    cifar = datasets.CIFAR10
    files = write_cifar10(tmp_path / "cifar-10-batches-py")
    entries = [[Path(name).name, digest] for name, digest in files.items()]
    monkeypatch.setattr(cifar, "train_list", entries[:5])
    monkeypatch.setattr(cifar, "test_list", entries[5:6])
    monkeypatch.setattr(cifar, "meta", {**cifar.meta, "md5": entries[6][1]})
    monkeypatch.setitem(DATASETS, "cifar10", replace(DATASETS["cifar10"], train=100, test=20, val=10, files=files))
    return tmp_path


def test_cifar10_is_decoded_with_channels_first(cifar10):
    splits = load_images("cifar10", cifar10, download=False)
    assert splits.image_shape == (3, 32, 32) and (len(splits.train), len(splits.val), len(splits.test)) == (90, 10, 20)
    stored = pickle.loads((cifar10 / "cifar-10-batches-py" / "test_batch").read_bytes())
    assert torch.equal(splits.test.pixels, torch.from_numpy(stored["data"]).view(20, 3, 32, 32))
    assert splits.test.labels.tolist() == stored["labels"]


@pytest.mark.parametrize("name", ["data_batch_3", "batches.meta"])
def test_a_hostile_pickle_among_cifar10s_is_never_unpickled(cifar10, tmp_path, name):
    marker = tmp_path / "ran"
    (cifar10 / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(Touch(str(marker))))
    with pytest.raises(InputError, match=f"{name}: expected md5"):
        load_images("cifar10", cifar10)
    assert not marker.exists()


def test_cifar10s_archive_laid_into_the_folder_by_hand_is_unpacked_without_a_network(cifar10, monkeypatch):
    cifar = datasets.CIFAR10
    archive = shutil.make_archive(str(cifar10 / "cifar-10-python"), "gztar", cifar10, "cifar-10-batches-py")
    shutil.rmtree(cifar10 / "cifar-10-batches-py")
    monkeypatch.setattr(cifar, "tgz_md5", md5(Path(archive)))
    monkeypatch.setattr(cifar, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    assert len(load_images("cifar10", cifar10).test) == 20


def test_torchvisions_old_pickled_mnist_is_never_read(tmp_path):
    marker = tmp_path / "ran"
    processed = tmp_path / "MNIST" / "processed"
    processed.mkdir(parents=True)
    for name in ("training.pt", "test.pt"):
        (processed / name).write_bytes(pickle.dumps(Touch(str(marker))))
    with pytest.raises(GraphcapsError, match="mnist: expected MNIST/raw"):
        load_images("mnist", tmp_path, download=False)
    assert not marker.exists()


@pytest.fixture
def kmnist(tmp_path, monkeypatch):
    """A server that has 60 + 20 images for KMNIST; its folder, and the empty one to download to."""
    kind = datasets.KMNIST
    served, root = tmp_path / "served", tmp_path / "data"
    served.mkdir()
    resources = []
    for part, count in (("train", 60), ("t10k", 20)):
        for name, array in (
            (f"{part}-images-idx3-ubyte.gz", np.full((count, 28, 28), 7)),
            (f"{part}-labels-idx1-ubyte.gz", np.arange(count) % 10),
        ):
            (served / name).write_bytes(gzip.compress(idx(array)))
            resources.append((name, md5(served / name)))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(kind, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
    monkeypatch.setattr(kind, "resources", resources)
    monkeypatch.setitem(DATASETS, "kmnist", replace(DATASETS["kmnist"], train=60, test=20, val=10))
    yield served, root
    server.shutdown()
    server.server_close()


def left_in(root):
    return sorted(path.name for path in root.rglob("*") if path.is_file() or path.name.startswith("."))


def test_what_is_missing_is_downloaded_once(kmnist):
    served, root = kmnist
    assert len(load_images("kmnist", root).train) == 50
    assert left_in(root) == sorted(Path(file).name for file in DATASETS["kmnist"].files)
    shutil.rmtree(served)
    assert len(load_images("kmnist", root).train) == 50


def test_a_download_with_a_wrong_checksum_leaves_nothing_and_the_next_one_works(kmnist):
    served, root = kmnist
    path = served / "t10k-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(
        GraphcapsError, match="kmnist: expected .* the download failed .* --data DIR. graphcaps train --dataset digits"
    ):
        load_images("kmnist", root)
    assert left_in(root) == []
    path.write_bytes(whole)
    assert len(load_images("kmnist", root).test) == 20


def test_an_interrupted_download_leaves_nothing_and_the_next_one_works(kmnist, monkeypatch):
    _, root = kmnist

    def interrupted(self):
        Path(self.raw_folder).mkdir(parents=True)
        (Path(self.raw_folder) / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08")
        assert socket.getdefaulttimeout() is not None
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(datasets.KMNIST, "download", interrupted)
        load_images("kmnist", root)
    assert left_in(root) == [] and socket.getdefaulttimeout() is None
    assert len(load_images("kmnist", root).test) == 20


def test_without_a_network_the_error_names_digits_and_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    with pytest.raises(GraphcapsError) as caught:
        load_images("mnist", tmp_path / "data")
    for word in ("mnist:", "train-images-idx3-ubyte", str(tmp_path / "data"), "--data DIR", "--dataset digits"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value) and not (tmp_path / "data").exists()


def test_a_torchvision_that_does_not_fit_torch_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(
        GraphcapsError, match=f"torchvision: expected one that fits torch {torch.__version__}".replace("+", r"\+")
    ):
        load_images("svhn", tmp_path)
