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

from .test_data_files import COLOURS, GREYS, LABELS, every, few, loaded, picture, refuses, write_npz


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


def test_parts_that_are_there_are_kept_and_the_others_are_held_out(shapes):
    (shapes / "train").mkdir()
    for name in ("dark", "light"):
        os.rename(shapes / name, shapes / "train" / name)
        picture(shapes / "test" / name / "a.png", 200)
    splits = loaded(shapes)
    assert tones(splits.test) == [200, 200] and (len(splits.train), len(splits.val)) == (34, 6)


def test_images_are_grey_or_rgb_as_asked_and_each_from_a_cache_of_its_own(shapes, tmp_path):
    picture(shapes / "dark" / "red.png", (255, 0, 0), mode="RGB")
    for kind, path in (("folder", shapes), ("npz", write_npz(tmp_path / "a.npz", images=COLOURS, labels=LABELS))):
        for _ in range(2):  # the second time from the cache
            parts = [every(loaded(path, kind, channels=channels)) for channels in (1, 3, None)]
            grey, colour, either = (torch.cat([part.pixels for part in three]) for three in parts)
            assert torch.equal(colour, either)
            images = colour.permute(0, 2, 3, 1).numpy()
            wanted = [np.asarray(Image.fromarray(image).convert("L")) for image in images]
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
    refuses("folder", few(tmp_path / "one", dark=9), "images of two classes or more, got dark")
    refuses("folder", few(tmp_path / "few", dark=9, light=2), "3 images or more .* got 2 of light. Add")


LAYOUTS = [  # folders of 4 images each -> their classes, and what is said; or only why they are refused
    ("Training/a Training/b Testing/a Testing/b", "a b", "Testing is test: a 4, b 4; Training is train: a 4, b 4"),
    ("train/a train/b dev/a dev/b more", "a b", "Left out: 5 images outside these folders (beside.png, more/0.png, "),
    ("own/own/a own/own/b", "a b", "own: a 4, b 4"),
    ("a b __MACOSX/a .cache/a", "a b", "1 hidden (.cache), 1 of other programs (__MACOSX)"),
    ("car plane train", "car plane train", "car 4, plane 4, train 4"),
    ("train/a train/test", "a test", "a 4, test 4"),
    ("a b test", None, "either folders of classes, or train, val and test .* got test beside a, b. Put the folders of"),
    ("train/a train/b val/a valid/b", None, "one folder each for training, .* got train, val, valid"),
    ("train/a train/b test/a test/b fold/a fold/b", None, "the same classes in fold. Call it train, val or test"),
    ("one/a one/b two/a two/b three", None, "got one, three, two, which hold a, b"),
    ("a/train b/train a/test b/test", None, "got a, b, which hold test, train"),
    ("test/a test/b", None, "expected images for training, got only test"),
]


@pytest.mark.parametrize(("folders", "classes", "said"), LAYOUTS, ids=lambda value: str(value))
def test_a_layout_is_read_from_the_whole_tree_or_refused(tmp_path, caplog, folders, classes, said):
    caplog.set_level("INFO")
    few(tmp_path / "own", **dict.fromkeys(folders.split(), 4))
    picture(tmp_path / "own" / "beside.png", 0)
    if classes is None:
        return refuses("folder", tmp_path / "own", said)
    splits = loaded(tmp_path / "own")
    assert splits.class_names == tuple(classes.split()) and said in caplog.text and "beside.png" in caplog.text


def test_a_run_names_the_classes_of_its_folder_and_finds_it_where_it_has_moved(shapes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["--dataset", "folder:shapes", "--size", "12", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    assert main(["train", *settings]) == 0
    said = capsys.readouterr().out
    assert "2 classes of 14 training images, each 1 x 12 x 12\n" in said
    run = Run.open("runs/shapes-compact-1")
    assert (run.config.dataset, run.config.size, run.config.channels) == (f"folder:{Path.cwd() / 'shapes'}", 12, 1)
    assert load(run).class_names == ("dark", "light") == run.trace().class_names
    picture(tmp_path / "paper.png", 255)
    assert main(["predict", str(run), "paper.png", "--save-inputs", "seen"]) == 0
    assert "blank" in capsys.readouterr().out and Image.open("seen/paper-input.png").getpixel((0, 0)) == 255
    (tmp_path / "elsewhere").mkdir()
    moved = shapes.rename(tmp_path / "elsewhere" / "shapes")
    Path("shapes-compact-1").mkdir()
    assert main(["evaluate", "shapes-compact-1", "--data", "elsewhere"]) == 0 and "light" in capsys.readouterr().out
    (moved / "light").rename(moved / "bright")
    for command in (["evaluate", str(run)], ["train", "--resume", str(run), "--epochs", "2"]):
        assert main([*command, "--data", "elsewhere"]) == 2
        assert "got 20 now of another class (light/00.bmp of light, " in capsys.readouterr().err
    (moved / "bright").rename(moved / "light")
    assert Run.open(run.path).result() is not None and main(["train", "--resume", str(run)]) == 1
    assert "has finished its 1 epochs. To train longer, add --epochs and a number above 1" in capsys.readouterr().err
    picture(moved / "light" / "later.png", 250)
    assert main(["train", "--resume", str(run), "--data", "elsewhere", "--epochs", "2"]) == 0
    said = capsys.readouterr().out
    assert "epoch 2/2" in said and "2 classes of 14 training images" in said and len(Run.open(run.path).metrics()) == 2
    assert main(["evaluate", str(run), "--data", "elsewhere"]) == 0 and Run.open(run.path).config.epochs == 2


def test_the_images_of_a_run_stay_the_same_or_the_difference_is_named(shapes, tmp_path, caplog):
    caplog.set_level("INFO")
    first, listed = loaded(shapes), tmp_path / "images.csv"
    Run(tmp_path, TrainConfig()).write_table("images.csv", first.files)

    def same(path, **options) -> bool:
        again = loaded(path, recorded=listed, **options)
        assert again.class_names == first.class_names
        return all(
            torch.equal(a.pixels, b.pixels) and torch.equal(a.labels, b.labels)
            for a, b in zip(every(again), every(first), strict=True)
        )

    picture(shapes / "dark" / "000.png", 60), picture(shapes / "new" / "a.png", 61)
    os.rename(shapes / "dark" / "05.png", shapes / "dark" / "renamed.png")
    assert same(shapes, seed=7) and "2 images that the run was not trained or tested with are left out" in caplog.text
    os.rename(shapes, tmp_path / "elsewhere")
    os.renames(tmp_path / "elsewhere" / "light", tmp_path / "parts" / "train" / "light")
    os.renames(tmp_path / "elsewhere" / "dark", tmp_path / "parts" / "test" / "dark")
    picture(tmp_path / "parts" / "train" / "dark" / "a.png", 62)
    assert same(tmp_path / "parts")
    os.rename(tmp_path / "parts" / "train" / "light" / "03.bmp", tmp_path / "parts" / "train" / "dark" / "03.bmp")
    file = tmp_path / "parts" / "test" / "dark" / "04.png"
    before, file_bytes = file.stat(), file.read_bytes()
    file.write_bytes(file_bytes[:-1] + b"!")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(
        InputError, match=r"40 images .* got 1 removed or changed \(dark/04.png\) and 1 now of another class"
    ):
        same(tmp_path / "parts")
    write_npz(path := tmp_path / "a.npz", x=GREYS, y=LABELS)
    first = loaded(path, "npz")
    Run(tmp_path, TrainConfig()).write_table("images.csv", first.files)
    write_npz(path, x=np.concatenate([GREYS[::-1], GREYS[:1] + 1]), y=np.concatenate([LABELS[::-1], LABELS[:1]]))
    assert same(path, kind="npz")
    listed.write_text("file,label\n")
    with pytest.raises(InputError, match="images.csv: expected the images of a run in three parts, got 0 rows"):
        same(path, kind="npz")
