"""The data sets by name: the table, scikit-learn's digits, and real MNIST."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.data import DATASETS, load_images, stratified_split
from graphcaps.errors import InputError

MNIST = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"
needs_mnist = pytest.mark.skipif(not MNIST.is_dir(), reason="real MNIST isn't at ../shared/data/mnist")


def test_the_table_has_torchvisions_checksums_of_svhn_and_cifar10():
    datasets = pytest.importorskip("torchvision.datasets")
    assert DATASETS["svhn"].files == {
        entry[1]: entry[2] for k, entry in datasets.SVHN.split_list.items() if k != "extra"
    }
    cifar = datasets.CIFAR10
    known = [*cifar.train_list, *cifar.test_list, [cifar.meta["filename"], cifar.meta["md5"]]]
    assert DATASETS["cifar10"].files == {f"{cifar.base_folder}/{name}": digest for name, digest in known}


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kmnist"])
def test_the_table_has_torchvisions_files_of_the_idx_sets(name):
    datasets = pytest.importorskip("torchvision.datasets")
    spec = DATASETS[name]
    resources = [resource for resource, _ in getattr(datasets, spec.torchvision).resources]
    assert [f"{file}.gz" for file in spec.files] == [f"{spec.torchvision}/raw/{resource}" for resource in resources]


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("sklearn")
    return load_images("digits", download=False)


def test_digits_are_1297_250_and_250_of_28_by_28(digits):
    assert (len(digits.train), len(digits.val), len(digits.test)) == (1297, 250, 250)
    assert digits.image_shape == (1, 28, 28) and digits.class_names == tuple("0123456789")


def test_digits_are_resized_bilinearly(digits):
    from sklearn.datasets import load_digits

    stored = load_digits()
    centres = ((np.arange(28) + 0.5) * 8 / 28 - 0.5).clip(0, 7)
    weights = (1 - abs(centres[:, None] - np.arange(8))).clip(0)  # (28, 8)
    expected = weights @ stored.images @ weights.T * (255 / 16)
    taken = stratified_split(torch.from_numpy(stored.target), 250)[1]
    assert abs(digits.test.pixels[:, 0].numpy() - expected[taken]).max() < 0.5 + 1e-6
    assert digits.test.labels.tolist() == stored.target[taken].tolist()


def test_no_image_of_digits_is_in_two_parts(digits):
    parts = [{(bytes(p.flatten().tolist())) for p in part.pixels} for part in (digits.train, digits.val, digits.test)]
    assert sum(map(len, parts)) == 1797 and not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])


def test_loading_digits_imports_neither_torchvision_nor_pillow():
    code = (
        "import sys; from graphcaps.data import load_images; load_images('digits');"
        "assert 'torchvision' not in sys.modules and 'PIL' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[1])


@pytest.fixture(scope="module")
def mnist():
    return load_images("mnist", MNIST, download=False)


@needs_mnist
def test_mnist_has_55000_5000_and_10000_images(mnist):
    assert (len(mnist.train), len(mnist.val), len(mnist.test)) == (55_000, 5_000, 10_000)
    assert mnist.test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@needs_mnist
def test_mnists_validation_part_has_a_twelfth_of_each_class(mnist):
    whole = mnist.train.labels.bincount() + mnist.val.labels.bincount()
    assert whole.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert (mnist.val.labels.bincount() - whole / 12).abs().max() < 1


@needs_mnist
def test_mnists_split_is_the_same_each_time_and_for_everybody(mnist):
    again = load_images("mnist", MNIST, download=False)
    assert torch.equal(again.val.pixels, mnist.val.pixels) and torch.equal(again.train.labels, mnist.train.labels)
    assert hashlib.sha256(mnist.val.pixels.numpy().tobytes()).hexdigest().startswith("437d2fecac452e0e")


@needs_mnist
def test_mnist_with_one_changed_byte_is_refused(tmp_path):
    shutil.copytree(MNIST / "MNIST", tmp_path / "MNIST")
    for path in (tmp_path / "MNIST").rglob("*"):
        path.chmod(0o755)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    content = bytearray(path.read_bytes())
    content[100] = (content[100] + 1) % 10
    path.write_bytes(content)
    with pytest.raises(InputError, match="t10k-labels-idx1-ubyte: expected md5 27ae3e4e09519cfbb04c329615203637, got"):
        load_images("mnist", tmp_path, download=False)
