"""smallNORB: files written here in the official format; what is cut out of an image; the splits by viewpoint."""

import gzip
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphcaps import GraphcapsError
from graphcaps.data import DATASETS, load_images
from graphcaps.data.smallnorb import NAMES, read_part
from graphcaps.errors import InputError

BYTES, INTS = np.dtype("u1"), np.dtype("<i4")
FILES = [f"{name}-{kind}.mat" for name in NAMES.values() for kind in ("dat", "cat", "info")]
MAGIC = {BYTES: 0x1E3D4C55, INTS: 0x1E3D4C54}


def packed(values):
    """Values as the official files hold them: three dims at least are written, of which the rank counts."""
    dims = (*values.shape, *(1,) * (3 - values.ndim))
    return struct.pack(f"<{2 + len(dims)}i", MAGIC[values.dtype], values.ndim, *dims) + values.tobytes()


def written(root, toys, files, suffix=""):
    """One part: each toy of each class from six viewpoints in one light, mixed up; returns (pairs, labels, info)."""
    random = np.random.RandomState(toys[0])
    rows = [(k, toy, e, a, 3) for k in range(5) for toy in toys for e in (0, 4) for a in (0, 6, 34)]
    rows = np.array(rows, INTS)[random.permutation(len(rows))]
    pairs = random.randint(0, 256, (len(rows), 2, 96, 96)).astype(BYTES)
    labels, info = np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1:])
    for file, values in zip(files, (pairs, labels, info), strict=True):
        path = root / f"{file}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(packed(values), 1) if suffix else packed(values))
    return pairs, labels, info


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def train(root):
    return written(root, (4, 9), FILES[:3])


def small(pairs):
    """The left images at half the size, as floats rounded half up."""
    left = pairs[:, 0].astype(float).reshape(-1, 48, 2, 48, 2)
    return torch.from_numpy(np.floor(left.mean((2, 4)) + 0.5).astype(np.uint8))


def test_images_are_the_left_ones_upright_at_half_the_size_also_from_gzipped_files(root, train, tmp_path):
    pairs, labels, info = train
    written(tmp_path, (4, 9), FILES[:3], suffix=".gz")
    for folder in (root, tmp_path):
        images, toys = read_part(folder, "train")
        assert torch.equal(images.pixels[:, 0], small(pairs))
        assert images.image_shape == (1, 32, 32) and images.labels.tolist() == labels.tolist()
        assert np.array_equal(toys.numpy(), info[:, 0])


def test_validation_images_are_of_toys_that_training_lacks_and_test_images_are_the_middle(root, train, monkeypatch):
    monkeypatch.setitem(DATASETS, "smallnorb", replace(DATASETS["smallnorb"], train=60, test=60, val=30))
    test = written(root, (0, 1), FILES[3:])
    splits = load_images("smallnorb", root)
    pairs, labels, info = train
    for part, toy in ((splits.train, 4), (splits.val, 9)):
        rows = info[:, 0] == toy
        assert part.labels.tolist() == labels[rows].tolist()
        assert torch.equal(part.cut().pixels[:, 0], small(pairs)[torch.from_numpy(rows)][:, 8:40, 8:40])
    assert splits.test.margin == 0 and splits.test.labels.tolist() == test[1].tolist()
    assert torch.equal(splits.test.pixels[:, 0], small(test[0])[:, 8:40, 8:40])


LABELS = np.arange(60, dtype=INTS) % 5


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (packed(LABELS)[:-1], "260 bytes for .60,., got 259"),
        (packed(LABELS.astype(BYTES)), r"a header \[507333716, 1, 60\], got \[507333717, 1, 60\]"),
        (packed(LABELS[:59]), "one per image"),
    ],
)
def test_missing_files_are_named_with_where_to_find_them_and_a_file_that_is_not_as_it_should_be_is_refused(
    root, train, tmp_path, content, text
):
    page = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"
    with pytest.raises(GraphcapsError, match=f"smallnorb: expected {FILES[0]}.* in {tmp_path}.* at {page}"):
        load_images("smallnorb", tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "smallnorb").mkdir()
    for k in range(3):
        (tmp_path / FILES[k]).write_bytes(content if k == 1 else (root / FILES[k]).read_bytes())
    with pytest.raises(InputError, match=text):
        read_part(tmp_path, "train")
