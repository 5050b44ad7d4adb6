"""Your own images: a folder per class, MNIST's format, .npz and .csv; split, cached, or refused in a sentence."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import datasets

from graphcaps import TrainConfig, load, train
from graphcaps.cli import main
from graphcaps.data import Batches, load_images, write_image
from graphcaps.data.listing import image_files
from graphcaps.errors import InputError
from graphcaps.training.run_folder import Run
from graphcaps.viz import confusion, save

from .test_checkpoint import Hostile
from .test_data_torchvision import idx


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


def every(splits):
    return splits.train, splits.val, splits.test


def tones(images) -> list[int]:
    return sorted(images.cut().pixels[:, 0, 14, 14].tolist())


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


MODES = {
    "palette.gif": ("P", 7),
    "alpha.png": ("RGBA", (9, 9, 9, 0)),
    "sixteen.png": ("I;16", 257 * 50),
    "bits.png": ("1", 1),
    "print.tif": ("CMYK", (0, 255, 255, 0)),
    "colour.bmp": ("RGB", (0, 0, 255)),
}


def test_all_modes_and_sizes_come_out_upright_in_one_frame(tmp_path):
    for name, (mode, value) in MODES.items():
        picture(tmp_path / "pets" / "a" / name, value, (40, 20), mode)
    turned = Image.Exif()
    turned[0x0112] = 6
    for k in range(3):
        picture(tmp_path / "pets" / "b" / "deeper" / f"{k}.JPG", (10, 200, 10), (20, 60), "RGB", exif=turned)
    (tmp_path / "pets" / "a" / "notes.txt").write_text("no image")
    picture(tmp_path / "pets" / ".hidden" / "a.png", 0)
    picture(tmp_path / "pets" / "a" / ".thumbnails" / "a.png", 0)
    splits = loaded(tmp_path / "pets")
    assert splits.image_shape == (3, 40, 40) and splits.class_names == ("a", "b")
    middle = sum(((part.pixels[part.labels == 0][:, :, 20, 20]).tolist() for part in every(splits)), [])
    assert len(middle) == 6 and all(tone in middle for tone in ([255] * 3, [50] * 3, [0, 0, 255], [255, 0, 0]))


def test_images_are_grey_or_rgb_as_asked_and_each_from_a_cache_of_its_own(shapes, tmp_path):
    picture(shapes / "dark" / "red.png", (255, 0, 0), mode="RGB")
    for kind, path in (("folder", shapes), ("npz", write_npz(tmp_path / "a.npz", images=COLOURS, labels=LABELS))):
        for _ in range(2):  # the second time from the cache
            parts = [every(loaded(path, kind, channels=channels)) for channels in (1, 3, None)]
            grey, colour, either = (torch.cat([part.cut().pixels for part in three]) for three in parts)
            assert torch.equal(colour, either)
            images = colour.permute(0, 2, 3, 1).numpy()
            wanted = [np.asarray(Image.fromarray(image).convert("L")) for image in images]
            assert np.array_equal(grey[:, 0].numpy(), wanted)
    assert len([*(tmp_path / "data" / "cache").glob("*.npy")]) == 3


def test_a_folder_is_decoded_again_only_when_a_file_changes_or_the_cache_is_damaged(shapes):
    first = loaded(shapes)
    stored = next((shapes.parent / "data" / "cache").glob("*.npy"))
    written = stored.stat().st_mtime_ns
    assert torch.equal(first.test.pixels, loaded(shapes, size=28).test.pixels) and stored.stat().st_mtime_ns == written
    picture(shapes / "dark" / "00.png", 77)
    assert 77 in sum(map(tones, every(loaded(shapes))), [])
    for stored in (shapes.parent / "data" / "cache").glob("*.npy"):
        stored.write_bytes(stored.read_bytes()[:-5])
    assert 77 in sum(map(tones, every(loaded(shapes))), [])


def test_what_graphcaps_wrote_is_never_read_and_nothing_is_written_beside_what_is_read(shapes, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(shapes.parent))
    monkeypatch.chdir(shapes)
    first = load_images("folder:.", "data")
    assert not Path("data").exists() and len([*Path("../graphcaps").glob("*.npy")]) == 1
    Run.create(TrainConfig(dataset="folder:."))
    for folder in ("data/cache", "inputs", "dark/figures", "runs/shapes-compact-1/evaluate"):
        write_image(Path(folder, "a.png"), torch.ones(1, 28, 28))
    again = load_images("folder:.", "data")
    assert again.class_names == ("dark", "light") and list(map(len, every(again))) == list(map(len, every(first)))
    assert len(image_files(Path("."))) == 40


def test_images_that_stay_in_the_cache_give_the_batches_of_those_in_memory(shapes, monkeypatch):
    inside = loaded(shapes)
    monkeypatch.setattr("graphcaps.data.splits.MAX_BYTES_IN_MEMORY", 0)
    mapped = loaded(shapes)
    assert mapped.train.pixels.data_ptr() == mapped.test.pixels.data_ptr()
    assert torch.equal(inside.test.pixels, mapped.test.cut().pixels)
    assert len(mapped.with_train(6).train) == 6
    for augment in ("shift", "affine", "none"):
        for left, right in zip(*(Batches(s.train, 8, augment=augment).epoch(1) for s in (inside, mapped)), strict=True):
            assert torch.equal(left[0], right[0]) and torch.equal(left[1], right[1])


def test_files_that_no_program_can_read_are_counted_and_names_of_any_bytes_can_be_drawn(tmp_path, caplog):
    composed, apart, bytes_name = "caf\u00e9", "cafe\u0301", os.fsdecode(b"caf\xe9")
    top = few(tmp_path / bytes_name, **{f"train/{composed}": 6, f"train/{bytes_name}": 6, "train/\u732b$x$": 6})
    few(top, **{f"test/{apart}": 3, f"test/{bytes_name}": 3, "test/\u732b$x$": 3})
    bad = top / "train" / composed
    (bad / "phone.HEIC").write_bytes(b"ftypheic"), (bad / "lost.png").symlink_to("nowhere.png")
    (bad / "program.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n%%EndComments\n")
    (bad / "folder.png").mkdir(), (bad / "cut.gif").write_bytes(b"GIF89a\x10\0\x10\0"), (bad / "loop").symlink_to(top)
    for _ in range(2):  # the second time from the cache
        with pytest.raises(InputError, match=r"31 images that can be read, got 4 that can't") as error:
            loaded(top, skip_bad=False)
        for words in (
            "lost.png: expected an image file, got nothing there",
            "phone.HEIC: ",
            "program.png: ",
            "--skip-bad",
        ):
            assert words in str(error.value)
    splits = loaded(top, skip_bad=True)
    assert splits.class_names == (r"caf\xe9", composed, "\u732b$x$") and splits.name == r"caf\xe9"
    assert len(splits.train) + len(splits.val) == 18 and len(splits.test) == 9
    assert "12 images are both in training and in validation or test: train/" in caplog.text
    save(confusion(np.eye(3, dtype=int), splits.class_names), tmp_path / "confusion.png")


def test_a_run_names_the_classes_of_its_folder_and_finds_it_where_it_has_moved(shapes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["--dataset", "folder:shapes", "--size", "12", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    assert main(["train", *settings]) == 0
    said = capsys.readouterr().out
    assert "2 classes of 14 training images, each 1 x 12 x 12\n100% of them are blank: " in said
    run = Run.open("runs/shapes-compact-1")
    assert (run.config.dataset, run.config.size, run.config.channels) == (f"folder:{Path.cwd() / 'shapes'}", 12, 1)
    older = run.config.to_json().replace('"separator": null,', "")
    assert TrainConfig.from_json(older).separator == "+" and run.config.separator is None
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
    Path(run.path, "config.json").write_text(
        (saved := Path(run.path, "config.json").read_text()).replace('hs": 1', 'hs": 3')
    )
    assert main(["train", "--resume", str(run), "--data", "elsewhere"]) == 1
    assert "epochs: expected 1, as in its checkpoint, got 3" in capsys.readouterr().err
    Path(run.path, "config.json").write_text(saved)
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


LABELS = np.arange(30, dtype=np.uint8) % 3 + 1
GREYS = np.random.default_rng(0).integers(0, 256, (30, 28, 20), np.uint8)
COLOURS = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), np.uint8)
SQUARES = GREYS[:, :20].reshape(30, 400)


def write_idx(folder: Path) -> Path:
    """Under Kaggle's names, one of them gzipped, another in a folder of its own."""
    (folder / "t10k-images-idx3-ubyte").mkdir(parents=True)
    (folder / "train-images.idx3-ubyte.gz").write_bytes(gzip.compress(idx(GREYS)))
    (folder / "train-labels.idx1-ubyte").write_bytes(idx(LABELS))
    (folder / "t10k-images-idx3-ubyte" / "t10k-images-idx3-ubyte").write_bytes(idx(GREYS[:6]))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:6]))
    return folder


def write_npz(path: Path, **arrays) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def write_csv(path: Path, pixels=SQUARES, labels=LABELS, head=True, last=False) -> Path:
    path.parent.mkdir(exist_ok=True)
    names = [f"pixel{k}" for k in range(pixels.shape[1])]
    rows = [["label", *names]] * head + [[label, *row] for label, row in zip(labels, pixels.tolist(), strict=True)]
    lines = [",".join(map(str, (*row[1:], row[0]) if last else row)) for row in rows]
    path.write_bytes((gzip.compress if path.suffix == ".gz" else bytes)("\n".join(lines).encode()))
    return path


MEDMNIST = {"train_images": COLOURS, "train_labels": LABELS[:, None]}
MEDMNIST |= {"val_images": COLOURS[:6], "val_labels": LABELS[:6]}
FIRST = COLOURS.transpose(0, 3, 1, 2)
ARRAYS = {
    "idx": lambda to: ("idx", write_idx(to / "raw"), GREYS, 6),
    "medmnist": lambda to: ("npz", write_npz(to / "a.npz", **MEDMNIST), COLOURS, None),
    "fractions": lambda to: ("npz", write_npz(to / "a.npz", images=GREYS / 255, labels=LABELS), GREYS, None),
    "channels first": lambda to: ("npz", write_npz(to / "a.npz", X=FIRST, y=LABELS), COLOURS, None),
    "csv in colour": lambda to: ("csv", write_csv(to / "a.csv.gz", COLOURS.reshape(30, -1), last=True), COLOURS, None),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_bit_for_bit(tmp_path, name):
    kind, path, images, test = ARRAYS[name](tmp_path)
    splits = loaded(path, kind)
    assert splits.class_names == ("1", "2", "3") and (test is None or len(splits.test) == test)
    assert splits.name == ("raw" if kind == "idx" else "a")
    wanted = images[..., None] if images.ndim == 3 else images
    number = {wanted[n].tobytes(): n for n in range(30)}
    seen = []
    for part in (splits.train, splits.val, *[splits.test] * (test is None)):
        for pixels, label in zip(part.pixels.permute(0, 2, 3, 1).contiguous(), part.labels.tolist(), strict=True):
            seen.append(number[pixels.numpy().tobytes()])
            assert LABELS[seen[-1]] == label + 1
    assert set(seen) == set(range(30))


def test_a_folder_of_csv_has_its_parts_and_leaves_out_what_has_no_labels(tmp_path, caplog):
    names = np.array(list("abc"))
    write_csv(tmp_path / "kaggle" / "sign_mnist_train.csv", head=False, labels=names[LABELS - 1])
    write_csv(tmp_path / "kaggle" / "valid.csv.gz", SQUARES[:4], labels=names[:1].repeat(4))
    unlabelled = ",".join(f"pixel{k}" for k in range(400)) + "\n" + ",".join(["0"] * 400)
    (tmp_path / "kaggle" / "test.csv").write_text(unlabelled)
    splits = loaded(tmp_path / "kaggle", "csv")
    assert splits.class_names == ("a", "b", "c") and splits.image_shape == (1, 28, 28) and "test.csv" in caplog.text
    assert splits.val.labels.tolist() == [0] * 4


def few(to: Path, **counts: int) -> Path:
    for name, count in counts.items():
        for k in range(count):
            picture(to / name / f"{k}.png", k)
    return to


def refuses(kind: str, path: Path, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        loaded(path, kind)


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
    ("train/a train/b test a_log", "a b", "9 images outside these folders (a_log/0.png, "),
    ("own/own/a own/own/b", "a b", "own: a 4, b 4"),
    ("train/train/a train/train/b test/test/a test/test/b", "a b", "test is test: a 4, b 4; train is train: a 4, b 4"),
    ("a b __MACOSX/a .cache/a", "a b", "1 hidden (.cache), 1 of other programs (__MACOSX)"),
    ("car plane train", "car plane train", "car 4, plane 4, train 4"),
    ("train/a train/test", "a test", "a 4, test 4"),
    ("a b test", None, "either folders of classes, or train, val and test .* got test beside a, b. Put the folders of"),
    ("train/steam train/diesel car plane", None, "got train beside car, plane. Put"),
    (
        "train/a train/b val/a valid/b",
        None,
        "one folder each for training, validation and testing, got train, val, valid",
    ),
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


NAMES = ["+", "c+d", "a, b", "nan", "None", "NA", "1.0", "07", ".net", "*", "x:y", "a  b", '"', "label"]


@pytest.mark.parametrize("kind", ["folder", "csv", "npz", "pixels"])
def test_a_class_may_be_called_anything(tmp_path, kind):
    named, path = [name for name in NAMES if kind != "folder" or name != ".net"], tmp_path / "own"
    few(path, **dict.fromkeys(named, 3))
    if kind == "npz":
        write_npz(path := tmp_path / "a.npz", x=np.zeros((3 * len(named), 8, 8)), y=np.array(named * 3))
    if kind in ("csv", "pixels"):
        cells = (
            [f"own/{name}/{k}.png", name] if kind == "csv" else [name, 0.1, 1.5e-05, 0, 1]
            for name in named
            for k in range(3)
        )
        with open(path := tmp_path / "own.csv", "w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file).writerows(cells)
    splits = loaded(path, "csv" if kind == "pixels" else kind)
    assert splits.class_names == tuple(sorted(named)) and sum(map(len, every(splits))) == 3 * len(named)


def test_columns_of_a_csv_are_found_by_their_names(tmp_path, caplog):
    few(tmp_path, cat=9, dog=9)
    rows = [f"{k},{'test' if k > 5 else 'training'},{name}/{k}.png,{name}" for name in ("cat", "dog") for k in range(9)]
    (tmp_path / "own.csv").write_text("\n".join(["id,Split,filename,label", *rows]))
    assert list(map(len, every(loaded(tmp_path / "own.csv", "csv")))) == [10, 2, 6]
    header = ",".join(["label", *map(str, range(64))])
    (tmp_path / "numbers.csv").write_text("\n".join([header, *(f"{k % 11}" + ",0" * 64 for k in range(33))]))
    assert loaded(tmp_path / "numbers.csv", "csv").class_names == tuple(map(str, range(11)))
    few(tmp_path / "own", **{"a": 4, "b": 4, "a+b": 4})
    assert loaded(tmp_path / "own").objects == 1 and "a+b: each a class of its own; with --separator +" in caplog.text
    (tmp_path / "blank.csv").write_text("file,label\ncat/1.png,\ncat/2.png,cat")
    refuses(
        "csv", tmp_path / "blank.csv", "a label for each image, got 1 of 2 without. For images of no class .* --sep"
    )
    (tmp_path / "more.csv").write_text("file,height,kind\ncat/1.png,2,cat")
    refuses("csv", tmp_path / "more.csv", "a column of labels, called label .* got file, height, kind")


def test_arrays_that_cannot_be_used_are_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, labels = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "train-labels-idx1-ubyte"
    images.write_bytes(gzip.compress(idx(GREYS))[:-9])
    refuses("idx", tmp_path, "train-labels-idx1-ubyte or its .gz beside it")
    labels.write_bytes(idx(LABELS))
    refuses("idx", tmp_path, "images-idx3-ubyte.gz: expected a whole file, got: Compressed file ended")
    images.write_bytes(gzip.compress(idx(GREYS)[:-1]))
    refuses("idx", tmp_path, r"16816 bytes for \(30, 28, 20\), got 16815")
    for array, number, wanted in (
        (np.array([Hostile()]), LABELS, "Arrays of objects are pickles, which can run code"),
        (GREYS, LABELS[1:], "of 0 and 1, got .29,"),
        (GREYS * np.nan, LABELS, "fractions from 0 to 1, got float64 from nan"),
    ):
        refuses("npz", write_npz(tmp_path / "a.npz", images=array, labels=number), wanted)
    refuses("csv", write_csv(tmp_path / "a.csv", SQUARES[:, :8]), "grey or RGB image, got 8 numbers")
    assert not Path("was run").exists()


def test_arrays_are_trained_on_and_found_again(tmp_path):
    digits = datasets.load_digits()
    words = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])[digits.target]
    config = TrainConfig(epochs=1, device="cpu", size=12, channels=3, out=tmp_path, data=tmp_path / "data", name="run")
    result = train(config, images=digits.images / 16, labels=words, progress=False)
    assert result["test_images"] == 269 and set(load(tmp_path / "run").class_names) == set(words)
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    with pytest.raises(InputError, match="float64 from 0 to 16. Divide .*: images / 16"):
        train(config, images=digits.images, labels=words)
    with pytest.raises(InputError, match="images and labels: expected both"):
        train(config, images=digits.images / 16)
