"""A person's own images: a folder per class, MNIST's format, .npz and .csv; split, cached, or refused in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from graphcaps import load
from graphcaps.cli import main
from graphcaps.data import Batches, load_images, own
from graphcaps.errors import InputError
from graphcaps.explore.of_run import carried
from graphcaps.training.run_folder import Run

Image = pytest.importorskip("PIL.Image")


def picture(path: Path, value: object, size=(28, 28), mode="L", **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path, **options)


@pytest.fixture
def shapes(tmp_path):
    """Two classes of 20 grey images: number k is of tone k, or 100 + k."""
    for k in range(20):
        picture(tmp_path / "shapes" / "dark" / f"{k:02}.png", k)
        picture(tmp_path / "shapes" / "light" / f"{k:02}.bmp", 100 + k)
    return tmp_path / "shapes"


def loaded(path, kind="folder", **options):
    return load_images(f"{kind}:{path}", Path(path).parent / "data", **options)


def tones(images) -> list[int]:
    return sorted(images.cut().pixels[:, 0, 14, 14].tolist())


def test_a_folder_per_class_is_split_by_the_seed_with_each_class_in_each_part(shapes):
    splits = loaded(shapes)
    assert splits.name == "shapes" and splits.class_names == ("dark", "light") and splits.image_shape == (1, 28, 28)
    assert [part.labels.bincount().tolist() for part in (splits.train, splits.val, splits.test)] == [
        [14] * 2,
        [3] * 2,
        [3] * 2,
    ]
    every = tones(splits.train) + tones(splits.val) + tones(splits.test)
    assert sorted(every) == [*range(20), *range(100, 120)]
    for part in (splits.train, splits.val, splits.test):
        assert (part.labels == (part.pixels[:, 0, 0, 0] >= 100)).all()
    assert tones(loaded(shapes).test) == tones(splits.test) != tones(loaded(shapes, seed=1).test)


def test_parts_that_are_there_are_kept_and_the_others_are_held_out(shapes):
    (shapes / "train").mkdir()
    for name in ("dark", "light"):
        os.rename(shapes / name, shapes / "train" / name)
        picture(shapes / "test" / name / "a.png", 200)
    splits = loaded(shapes)
    assert tones(splits.test) == [200, 200] and (len(splits.train), len(splits.val)) == (34, 6)


MODES = {
    "palette.gif": ("P", 7, {}),
    "alpha.png": ("RGBA", (9, 9, 9, 0), {}),
    "sixteen.png": ("I;16", 257 * 50, {}),
    "bits.png": ("1", 1, {}),
    "print.jpg": ("CMYK", (0, 255, 255, 0), {}),
    "colour.webp": ("RGB", (0, 0, 255), {"lossless": True}),
}


def test_all_modes_and_sizes_come_out_upright_in_one_frame(tmp_path):
    for name, (mode, value, options) in MODES.items():
        picture(tmp_path / "pets" / "a" / name, value, (40, 20), mode, **options)
    turned = Image.Exif()
    turned[0x0112] = 6
    for k in range(3):
        picture(tmp_path / "pets" / "b" / "deeper" / f"{k}.JPG", (10, 200, 10), (20, 60), "RGB", exif=turned)
    (tmp_path / "pets" / "a" / "notes.txt").write_text("no image")
    picture(tmp_path / "pets" / ".hidden" / "a.png", 0)
    splits = loaded(tmp_path / "pets")
    assert splits.image_shape == (3, 40, 40) and splits.class_names == ("a", "b")
    found = torch.cat([part.pixels[part.labels == 0] for part in (splits.train, splits.val, splits.test)])
    middle = found[:, :, 20, 20].tolist()
    for tone in ([255] * 3, [50] * 3, [0, 0, 255]):
        assert tone in middle
    red = next(pixel for pixel in middle if pixel[0] > 200 and pixel[2] < 60)
    assert red[1] < 60


def test_images_of_one_size_keep_their_proportions_and_grey_ones_in_colour_files_are_grey(tmp_path):
    for k in range(6):
        picture(tmp_path / "photos" / "ab"[k % 2] / f"{k}.png", (k, k, k), (640, 480), "RGB")
    assert loaded(tmp_path / "photos").image_shape == (1, 48, 64)
    assert loaded(tmp_path / "photos", size=32).image_shape == (1, 24, 32)


def test_a_folder_is_decoded_once_and_again_when_a_file_changes_or_the_cache_is_damaged(shapes, monkeypatch):
    from graphcaps.data.readers import folder

    decoded, decode = [], folder._decode
    monkeypatch.setattr(folder, "_decode", lambda *given: decoded.append(given) or decode(*given))
    first = loaded(shapes)
    again = loaded(shapes, size=28)
    assert len(decoded) == 1 and torch.equal(first.test.pixels, again.test.pixels)
    picture(shapes / "dark" / "00.png", 77)
    assert 77 in sum((tones(getattr(loaded(shapes), part)) for part in ("train", "val", "test")), [])
    assert len(decoded) == 2
    stored = next((shapes.parent / "data" / "cache").glob("*.npy"))
    stored.write_bytes(stored.read_bytes()[:-5])
    loaded(shapes)
    stored.unlink()
    loaded(shapes)
    assert len(decoded) == 4


def test_images_that_stay_in_the_cache_give_the_batches_of_those_in_memory(shapes, monkeypatch):
    inside = loaded(shapes)
    monkeypatch.setattr(own, "IN_MEMORY", 0)
    mapped = loaded(shapes)
    assert mapped.train.pixels.data_ptr() == mapped.test.pixels.data_ptr()
    assert torch.equal(inside.test.pixels, mapped.test.cut().pixels)
    assert len(mapped.with_train(6).train) == 6
    for augment in ("shift", "affine", "none"):
        for left, right in zip(*(Batches(s.train, 8, augment=augment).epoch(1) for s in (inside, mapped)), strict=True):
            assert torch.equal(left[0], right[0]) and torch.equal(left[1], right[1])


def test_bad_files_are_listed_and_left_out_when_asked(shapes, caplog):
    (shapes / "dark" / "broken.png").write_bytes(b"no picture")
    whole = (shapes / "light" / "03.bmp").read_bytes()
    (shapes / "light" / "half.bmp").write_bytes(whole[: len(whole) // 2])
    for _ in range(2):  # the second time from the cache
        with pytest.raises(
            InputError,
            match=r"42 images that can be read, got 2 that can't(.|\n)*broken.png(.|\n)*half.bmp(.|\n)*--skip-bad",
        ):
            loaded(shapes)
    splits = loaded(shapes, skip_bad=True)
    assert len(splits.train) + len(splits.val) + len(splits.test) == 40 and "broken.png" in caplog.text


def test_a_file_that_is_a_program_is_not_run(shapes):
    (shapes / "dark" / "program.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n%%EndComments\n")
    with pytest.raises(InputError, match="program.png"):
        loaded(shapes)


def test_a_run_on_a_folder_is_named_and_names_its_classes_wherever_it_is_shown(shapes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = ["--dataset", "folder:shapes", "--size", "12", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    run = tmp_path / "runs" / "shapes-compact-1"

    def says(*words: str) -> str:
        assert main([*words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert "2 classes of 14 training images, grey, 12 x 12 pixels" in says("train", *config)
    assert Run.open(run).config.dataset == "folder:shapes"
    network = load(run)
    assert network.class_names == ("dark", "light") == Run.open(run).trace().class_names
    assert Run.open(run).trace().about["dataset"] == "shapes"
    assert "dark " in says("evaluate", str(run)) and (run / "figures" / "confusion.png").exists()
    says("viz", str(run), "--what", "sheet")
    paper = tmp_path / "paper.png"
    picture(paper, 255)
    answer = says("predict", str(run), str(paper), "--save-inputs", "seen")
    assert "blank" in answer and Image.open("seen/paper-input.png").getpixel((0, 0)) == 255
    page = Path(says("explore", str(run), "--no-open").split()[-1])
    assert page.exists() and {"dark", "light"} <= {each["name"] for each in carried(Run.open(run))[1]["shelf"]}
    assert "network.pt2" in says("export", str(run), "--format", "pt2", "--check", "3")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shapes.rename(moved / "shapes")
    assert "light" in says("evaluate", str(run), "--data", str(moved))
    (moved / "shapes" / "light").rename(moved / "shapes" / "bright")
    assert main(["evaluate", str(run), "--data", str(moved)]) == 2
    assert "expected the classes of its training, dark, light, got bright, dark" in capsys.readouterr().err
