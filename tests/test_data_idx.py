"""IDX files: what is read, and what is said of a file that isn't what its name promises."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphcaps.data import DATASETS, load_images
from graphcaps.errors import GraphcapsError, InputError

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
PAGE = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"


def idx(array):
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.fixture
def arrays():
    random = np.random.RandomState(1)
    return {
        TRAIN_IMAGES: random.randint(0, 256, (60, 28, 28)),
        TRAIN_LABELS: np.arange(60) % 10,
        TEST_IMAGES: random.randint(0, 256, (20, 28, 28)),
        TEST_LABELS: np.arange(20) % 10,
    }


@pytest.fixture
def raw(tmp_path, arrays, monkeypatch):
    """A folder with 60 + 20 images in place of Fashion-MNIST's; the counts and checksums of the table are replaced."""
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    files = {}
    for name, array in arrays.items():
        (raw / name).write_bytes(idx(array))
        files[f"FashionMNIST/raw/{name}"] = hashlib.md5(idx(array)).hexdigest()
    spec = replace(DATASETS["fashion-mnist"], train=60, test=20, val=10, files=files)
    monkeypatch.setitem(DATASETS, "fashion-mnist", spec)
    return raw


def load(raw):
    return load_images("fashion-mnist", raw.parents[1], download=False)


def says(raw, *words):
    """The one error that loading gives holds all these words, and the way out."""
    with pytest.raises(InputError) as caught:
        load(raw)
    for word in (*words, "--dataset digits"):
        assert word in str(caught.value), str(caught.value)
    return str(caught.value)


def test_every_image_of_the_files_is_in_exactly_one_part(raw, arrays):
    splits = load(raw)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (50, 10, 20)
    assert splits.image_shape == (1, 28, 28) and splits.num_classes == 10
    assert torch.equal(splits.test.pixels[:, 0], torch.from_numpy(arrays[TEST_IMAGES].astype(np.uint8)))
    assert torch.equal(splits.test.labels, torch.from_numpy(arrays[TEST_LABELS]))
    both = torch.cat([splits.train.pixels, splits.val.pixels]).flatten(1).tolist()
    assert sorted(both) == sorted(arrays[TRAIN_IMAGES].reshape(60, -1).tolist())
    label_of = {
        tuple(image.ravel()): label for image, label in zip(arrays[TRAIN_IMAGES], arrays[TRAIN_LABELS], strict=True)
    }
    for part in (splits.train, splits.val):
        assert [label_of[tuple(image.flatten().tolist())] for image in part.pixels] == part.labels.tolist()


def test_gzipped_files_give_what_unpacked_ones_give(raw):
    unpacked = load(raw)
    for path in list(raw.iterdir()):
        (raw / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = load(raw)
    assert torch.equal(packed.train.pixels, unpacked.train.pixels) and torch.equal(
        packed.val.labels, unpacked.val.labels
    )


def test_a_web_page_saved_as_idx_is_named_as_one(raw):
    (raw / TRAIN_IMAGES).write_bytes(b"\n" + PAGE)
    says(raw, TRAIN_IMAGES, "web page", "<!DOCTYPE", "Delete it")


@pytest.mark.parametrize("keep", [0, 6, 47_000])
def test_a_truncated_file_is_an_error_at_any_length(raw, keep):
    whole = (raw / TRAIN_IMAGES).read_bytes()
    (raw / TRAIN_IMAGES).write_bytes(whole[:keep])
    says(raw, TRAIN_IMAGES, "expected 47056 bytes, got 47000" if keep > 6 else "expected IDX data of (60, 28, 28), got")


@pytest.mark.parametrize("keep", [10, -4])
def test_a_truncated_gz_is_an_error_at_any_length(raw, keep):
    packed = gzip.compress((raw / TRAIN_IMAGES).read_bytes())
    (raw / TRAIN_IMAGES).unlink()
    (raw / f"{TRAIN_IMAGES}.gz").write_bytes(packed[:keep])
    says(raw, f"{TRAIN_IMAGES}.gz", "whole gzip file", "truncated")


def test_a_label_without_a_class_is_an_error(raw, arrays, monkeypatch):
    arrays[TEST_LABELS][3] = 77
    (raw / TEST_LABELS).write_bytes(idx(arrays[TEST_LABELS]))
    unknown = dict.fromkeys(DATASETS["fashion-mnist"].files)
    monkeypatch.setitem(DATASETS, "fashion-mnist", replace(DATASETS["fashion-mnist"], files=unknown))
    says(raw, TEST_LABELS, "labels 0 to 9, got 77")


def test_one_changed_pixel_is_an_error_where_the_checksum_is_known(raw):
    content = bytearray((raw / TRAIN_IMAGES).read_bytes())
    content[-1] ^= 1
    (raw / TRAIN_IMAGES).write_bytes(content)
    says(raw, TRAIN_IMAGES, "expected md5", hashlib.md5(content).hexdigest())


def test_a_folder_in_place_of_a_file_is_an_error(raw):
    (raw / TRAIN_IMAGES).unlink()
    (raw / TRAIN_IMAGES).mkdir()
    with pytest.raises(InputError, match=f"{TRAIN_IMAGES}: expected a readable file, got"):
        load(raw)


def test_a_missing_file_is_named_with_the_folder_and_both_ways_out(raw):
    (raw / TEST_LABELS).unlink()
    with pytest.raises(GraphcapsError) as caught:
        load(raw)
    text = str(caught.value)
    for word in (f"FashionMNIST/raw/{TEST_LABELS}", str(raw.parents[1]), "--data DIR", "--dataset digits"):
        assert word in text
    assert TRAIN_IMAGES not in text
