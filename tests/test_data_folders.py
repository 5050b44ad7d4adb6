"""Your own images in folders: their layout, their split, their cache, and the runs that find them again."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from graphcaps import TrainConfig, load
from graphcaps.cli import main
from graphcaps.errors import InputError
from graphcaps.images.data import load_images, write_image
from graphcaps.images.data.listing import image_files
from graphcaps.images.training.run_folder import Run

from .test_data_files import every, few, loaded, picture, refuses


@pytest.fixture
def shapes(tmp_path):
    """Two classes of 20 grey images: number k is of tone k, or 100 + k."""
    for k in range(20):
        picture(tmp_path / "shapes" / "dark" / f"{k:02}.png", k)
        picture(tmp_path / "shapes" / "light" / f"{k:02}.bmp", 100 + k)
    return tmp_path / "shapes"


def tones(images) -> list[int]:
    return sorted(images.pixels[:, 0, 14, 14].tolist())


def test_a_folder_per_class_is_split_by_the_seed_with_each_class_in_each_part(shapes):
    splits = loaded(shapes)
    assert splits.name == "shapes" and splits.class_names == ("dark", "light") and splits.image_shape == (1, 28, 28)
    assert [part.labels.bincount().tolist() for part in every(splits)] == [[14, 14], [3, 3], [3, 3]]
    assert sorted(sum(map(tones, every(splits)), [])) == [*range(20), *range(100, 120)]
    for part in every(splits):
        assert (part.labels == (part.pixels[:, 0, 0, 0] >= 100)).all()
    assert tones(loaded(shapes).test) == tones(splits.test) != tones(loaded(shapes, seed=1).test)


def test_images_are_grey_or_rgb_as_set_and_each_from_a_cache_of_its_own(shapes, tmp_path):
    picture(shapes / "dark" / "red.png", (255, 0, 0), mode="RGB")
    for _ in range(2):  # the second time from the cache
        parts = [every(loaded(shapes, channels=channels)) for channels in (1, 3, None)]
        grey, colour, default = (torch.cat([part.pixels for part in three]) for three in parts)
        assert torch.equal(colour, default)
        wanted = [np.asarray(Image.fromarray(image).convert("L")) for image in colour.permute(0, 2, 3, 1).numpy()]
        assert np.array_equal(grey[:, 0].numpy(), wanted)
    assert len([*(tmp_path / "data" / "cache").glob("*.npz")]) == 3


def test_a_folder_is_decoded_again_only_when_a_file_changes_or_the_cache_is_damaged(shapes):
    first = loaded(shapes)
    stored = next((shapes.parent / "data" / "cache").glob("*.npz"))
    written = stored.stat().st_mtime_ns
    assert torch.equal(first.test.pixels, loaded(shapes, size=28).test.pixels) and stored.stat().st_mtime_ns == written
    picture(shapes / "dark" / "00.png", 77)
    assert 77 in sum(map(tones, every(loaded(shapes))), [])
    whole, stored = loaded(shapes), next((shapes.parent / "data" / "cache").glob("*.npz"))
    for damage in (lambda data: data[:-5], lambda data: data[:999] + bytes([data[999] ^ 4]) + data[1000:]):
        stored.write_bytes(damage(stored.read_bytes()))
        assert torch.equal(loaded(shapes).train.pixels, whole.train.pixels)


def test_a_bad_file_that_is_skipped_changes_nothing_and_a_cache_need_not_be_writable(shapes, caplog):
    cache = shapes.parent / "data" / "cache"
    cache.parent.mkdir()
    cache.write_bytes(b"")  # a file, where the folder would be made
    whole = loaded(shapes)
    assert "decoded images are not kept" in caplog.text
    noise = np.random.default_rng(0).integers(0, 256, (60, 50, 3), np.uint8)
    Image.fromarray(noise).save(shapes / "dark" / "bad.png")  # in colour, larger, and cut
    os.truncate(shapes / "dark" / "bad.png", 2000)
    splits = loaded(shapes, skip_bad=True)
    assert sorted(sum(map(tones, every(splits)), [])) == sorted(sum(map(tones, every(whole)), []))
    assert splits.train.pixels.shape[1:] == (1, 28, 28)


def test_what_graphcaps_wrote_is_never_read_and_nothing_is_written_beside_what_is_read(shapes, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(shapes.parent))
    monkeypatch.chdir(shapes)
    first = load_images("folder:.", "data")
    assert not Path("data").exists() and len([*Path("../graphcaps").glob("*.npz")]) == 1
    Run.create(TrainConfig(dataset="folder:."))
    for folder in ("data/cache", "inputs", "dark/figures", "runs/shapes-compact-1/evaluate"):
        write_image(Path(folder, "a.png"), torch.ones(1, 28, 28))
    again = load_images("folder:.", "data")
    assert again.class_names == ("dark", "light") and list(map(len, every(again))) == list(map(len, every(first)))
    assert len(image_files(Path("."))) == 40


def test_folders_that_cannot_be_used_are_refused_in_a_sentence(tmp_path):
    refuses("folder", tmp_path / "no", "something at .*/no, got nothing there")
    refuses("folder", few(tmp_path / "pets", dark=1).with_name("pest"), "got nothing there. Did you mean 'pets'?")
    (tmp_path / "empty").mkdir()
    refuses("folder", tmp_path / "empty", "a folder per class, .* got no folder")
    refuses("folder", few(tmp_path / "few", dark=9, light=2), "3 images or more .* got 2 of light. Add")


LAYOUTS = [  # folders of 4 images each -> their classes, and the report; or only why they are refused
    ("Training/a Training/b Testing/a Testing/b", "a b", "Testing is test: a 4, b 4; Training is train: a 4, b 4"),
    ("train/a train/b dev/a dev/b more", "a b", "Left out: 5 images outside these folders (beside.png, more/0.png, "),
    ("a b __MACOSX/a .cache/a", "a b", "2 hidden (.cache, __MACOSX)"),
    ("car plane train", "car plane train", "car 4, plane 4, train 4"),
    ("a b test", None, "either folders of classes, or train, val and test .* got test beside a, b. Put the folders of"),
    ("train/a train/b val/a valid/b", None, "one folder each for training, .* got train, val, valid"),
    ("train/a train/b test/a test/b fold/a fold/b", None, "the same classes in fold. Call it train, val or test"),
    ("test/a test/b", None, "expected images for training, got only test"),
    ("dark", None, "images of two classes or more, got 1: dark"),
]


@pytest.mark.parametrize(("folders", "classes", "text"), LAYOUTS, ids=str)
def test_a_layout_is_read_from_the_whole_tree_or_refused(tmp_path, caplog, folders, classes, text):
    caplog.set_level("INFO")
    few(tmp_path / "own", **dict.fromkeys(folders.split(), 4))
    picture(tmp_path / "own" / "beside.png", 0)
    if classes is None:
        return refuses("folder", tmp_path / "own", text)
    splits = loaded(tmp_path / "own")
    assert splits.class_names == tuple(classes.split()) and text in caplog.text and "beside.png" in caplog.text


def test_a_run_finds_its_images_where_they_have_moved_and_names_those_it_lacks(shapes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["--dataset", "folder:shapes", "--size", "12", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    assert main(["train", *settings]) == 0
    assert "2 classes of 14 training images, each 1 x 12 x 12" in capsys.readouterr().out
    run = Run.open("runs/shapes-compact-1")
    assert (run.config.dataset, run.config.size, run.config.channels) == (f"folder:{Path.cwd() / 'shapes'}", 12, 1)
    assert load(run).class_names == ("dark", "light") == run.trace().class_names
    (tmp_path / "elsewhere").mkdir()
    moved = shapes.rename(tmp_path / "elsewhere" / "shapes")
    picture(moved / "light" / "later.png", 250)
    assert main(["evaluate", str(run), "--data", "elsewhere"]) == 0 and "light" in capsys.readouterr().out
    (moved / "light").rename(moved / "bright")
    assert main(["evaluate", str(run), "--data", "elsewhere"]) == 2
    assert "got 20 now of another class (light/00.bmp of light, " in capsys.readouterr().err
    (moved / "bright").rename(moved / "light")
    assert main(["train", "--resume", str(run), "--data", "elsewhere", "--epochs", "2"]) == 0
    out = capsys.readouterr().out
    assert "epoch 2/2" in out and "2 classes of 14 training images" in out


def test_the_images_of_a_run_are_found_by_their_content(shapes, tmp_path, caplog):
    caplog.set_level("INFO")
    first, listed = loaded(shapes), tmp_path / "images.csv"
    Run(tmp_path, TrainConfig()).write_table("images.csv", first.files)
    picture(shapes / "dark" / "000.png", 60), picture(shapes / "new" / "a.png", 61)
    os.rename(shapes / "dark" / "05.png", shapes / "dark" / "renamed.png")
    again = loaded(shapes, recorded=listed, seed=7)
    assert again.class_names == first.class_names
    for one, other in zip(every(again), every(first), strict=True):
        assert torch.equal(one.pixels, other.pixels) and torch.equal(one.labels, other.labels)
    assert "2 images that the run was not trained or tested with are left out" in caplog.text
    file = shapes / "dark" / "04.png"
    before, content = file.stat(), file.read_bytes()
    file.write_bytes(content[:-1] + b"!")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match=r"40 images .* got 1 removed or changed \(dark/04.png\)"):
        loaded(shapes, recorded=listed)
    listed.write_text("file,label\n")
    with pytest.raises(InputError, match="images.csv: expected the images of a run in three parts, got 0 rows"):
        loaded(shapes, recorded=listed)
