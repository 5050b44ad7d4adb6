"""MNIST and its kin, SVHN and CIFAR-10, decoded by torchvision.

The files are small ones in the official formats, with their counts and checksums in the tables of this project and of
torchvision. Nothing can be downloaded.
"""

import hashlib
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import io
from torchvision import datasets

from graphcaps.errors import GraphcapsError
from graphcaps.images.data import DATASETS, load_images

from .test_checkpoint import Hostile

RANDOM = np.random.RandomState(2)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def idx(array):
    """The array in MNIST's file format."""
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def fewer(monkeypatch, name, train):
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], train=train, test=20, val=10))


@pytest.fixture
def kmnist(tmp_path, monkeypatch):
    """The folder with the 60 + 20 images of a small KMNIST, in files that are already unpacked."""
    folder = tmp_path / "KMNIST" / "raw"
    folder.mkdir(parents=True)
    for part, count in (("train", 60), ("t10k", 20)):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(RANDOM.randint(0, 256, (count, 28, 28))))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(count) % 10))
    monkeypatch.setattr(datasets.KMNIST, "mirrors", ["http://127.0.0.1:9/"])
    fewer(monkeypatch, "kmnist", 60)
    return folder


def test_each_image_is_in_one_part_with_its_label(kmnist, tmp_path):
    splits = load_images("kmnist", tmp_path)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [50, 10, 20]
    assert (kmnist / "t10k-images-idx3-ubyte").read_bytes()[16:] == splits.test.pixels.numpy().tobytes()
    stored = (kmnist / "train-images-idx3-ubyte").read_bytes()
    label_of = {stored[16 + 784 * k :][:784]: k % 10 for k in range(60)}
    for part in (splits.train, splits.val):
        assert [label_of.pop(image.numpy().tobytes()) for image in part.pixels] == part.labels.tolist()
    assert not label_of
    for folder in (kmnist, kmnist.parent):
        assert torch.equal(load_images("kmnist", folder, download=False).test.pixels, splits.test.pixels)


@pytest.mark.parametrize("content", [None, idx(np.zeros((60, 28, 28)))[:47_000]])
def test_a_failed_download_and_a_damaged_file_name_the_ways_out(kmnist, tmp_path, caplog, content):
    path = kmnist / "train-images-idx3-ubyte"
    caplog.set_level("INFO")
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(GraphcapsError) as caught:
        load_images("kmnist", tmp_path)
    for word in (f"KMNIST: expected its files in {tmp_path}, got: ", "--data DIR, or delete damaged ones", "digits"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value) and f"KMNIST isn't in {tmp_path}: trying to download it" in caplog.text


def test_torchvisions_old_pickled_mnist_is_never_read_and_a_torchvision_that_does_not_fit_torch_is_named(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "MNIST" / "processed").mkdir(parents=True)
    for name in ("training.pt", "test.pt"):
        (tmp_path / "MNIST" / "processed" / name).write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(GraphcapsError, match="MNIST: expected its files"):
        load_images("mnist", tmp_path, download=False)
    assert not Path("was run").exists()
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(GraphcapsError) as caught:
        load_images("svhn", tmp_path)
    assert f"torchvision: expected one that fits torch {torch.__version__}, got" in str(caught.value)


def test_svhn_is_decoded_with_channels_first_and_ten_as_zero(tmp_path, monkeypatch):
    entries = {}
    for split, count in {"train": 40, "test": 20}.items():
        path = tmp_path / f"{split}_32x32.mat"
        pixels, labels = RANDOM.randint(0, 256, (32, 32, 3, count)), np.arange(count)[:, None] % 10 + 1
        io.savemat(path, {"X": pixels.astype(np.uint8), "y": labels.astype(np.uint8)})
        entries[split] = ["http://127.0.0.1:9/", path.name, md5(path)]
    monkeypatch.setattr(datasets.SVHN, "split_list", entries)
    fewer(monkeypatch, "svhn", 40)
    splits = load_images("svhn", tmp_path, download=False)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [30, 10, 20]
    assert torch.equal(splits.test.pixels[7, 2], torch.from_numpy(pixels[:, :, 2, 7]))
    assert splits.test.labels.tolist() == [(k + 1) % 10 for k in range(20)]


def test_cifar10_is_decoded_with_channels_first_and_a_hostile_pickle_is_never_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cifar, folder = datasets.CIFAR10, tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    batch = {"data": RANDOM.randint(0, 256, (20, 3072)).astype(np.uint8), "labels": [k % 10 for k in range(20)]}
    for name in ("data_batch_1", "test_batch"):
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list(DATASETS["cifar10"].class_names)}))
    monkeypatch.setattr(cifar, "train_list", [["data_batch_1", md5(folder / "data_batch_1")]])
    monkeypatch.setattr(cifar, "test_list", [["test_batch", md5(folder / "test_batch")]])
    monkeypatch.setattr(cifar, "meta", {**cifar.meta, "md5": md5(folder / "batches.meta")})
    monkeypatch.setattr(cifar, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    fewer(monkeypatch, "cifar10", 20)
    splits = load_images("cifar10", tmp_path, download=False)
    assert torch.equal(splits.test.pixels, torch.from_numpy(batch["data"]).view(20, 3, 32, 32))
    assert splits.test.labels.tolist() == batch["labels"]
    (folder / "data_batch_1").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(GraphcapsError, match="CIFAR10: expected its files in"):
        load_images("cifar10", tmp_path)
    assert not Path("was run").exists()
