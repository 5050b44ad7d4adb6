"""Your own images in files of any kind: pictures, MNIST's format, .npz and .csv; read, or refused in a sentence."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image
from sklearn import datasets

from graphcaps import TrainConfig, load, train
from graphcaps.cli import main
from graphcaps.errors import InputError
from graphcaps.images.data import load_images
from graphcaps.viz import confusion, save

from .test_checkpoint import Hostile
from .test_data_torchvision import idx

LABELS = np.arange(30, dtype=np.uint8) % 3 + 1
GREYS = np.random.default_rng(0).integers(0, 256, (30, 28, 20), np.uint8)
COLOURS = np.random.default_rng(0).integers(0, 256, (30, 4, 4, 3), np.uint8).repeat(8, 1).repeat(8, 2)
SQUARES = GREYS[:, :20].reshape(30, 400)


def picture(path: Path, value: object, size=(28, 28), mode="L", **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path, **options)


def loaded(path, kind="folder", **options):
    return load_images(f"{kind}:{path}", Path(path).parent / "data", **options)


def every(splits):
    return splits.train, splits.val, splits.test


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


def few(to: Path, **counts: int) -> Path:
    for name, count in counts.items():
        for k in range(count):
            picture(to / name / f"{k}.png", k)
    return to


def refuses(kind: str, path: Path, wanted: str, label_column: str = "") -> None:
    with pytest.raises(InputError, match=wanted):
        loaded(path, kind, label_column=label_column)


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


def test_files_that_no_program_can_read_are_counted_and_names_of_any_bytes_can_be_drawn(tmp_path, caplog):
    composed, apart, bytes_name = "caf\u00e9", "cafe\u0301", os.fsdecode(b"caf\xe9")
    top = few(tmp_path / bytes_name, **{f"train/{composed}": 6, f"train/{bytes_name}": 6})
    few(top, **{f"test/{apart}": 3, f"test/{bytes_name}": 3})
    bad = top / "train" / composed
    (bad / "phone.HEIC").write_bytes(b"ftypheic"), (bad / "lost.png").symlink_to("nowhere.png")
    (bad / "program.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n%%EndComments\n")
    (bad / "large.png").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0")
    picture(bad / "stack.tif", 0, save_all=True, append_images=[Image.new("L", (28, 28))])
    (bad / "folder.png").mkdir(), (bad / "cut.gif").write_bytes(b"GIF89a\x10\0\x10\0"), (bad / "loop").symlink_to(top)
    for _ in range(2):  # the second time from the cache
        with pytest.raises(InputError, match=r"24 images that can be read, got 6 that can't") as error:
            loaded(top, skip_bad=False)
        for words in ("lost.png: expected an image file, got nothing", "phone.HEIC: ", "program.png: ", "a stack of 2"):
            assert words in str(error.value)
        assert "git lfs pull" in str(error.value) and "--skip-bad" in str(error.value)
    splits = loaded(top, skip_bad=True)
    assert splits.class_names == (r"caf\xe9", composed) and splits.name == r"caf\xe9"
    assert len(splits.train) + len(splits.val) == 12 and len(splits.test) == 6
    assert "8 images are both in training and in validation or test: train/" in caplog.text
    save(confusion(np.eye(2, dtype=int), splits.class_names), tmp_path / "confusion.png")


MEDMNIST = {"train_images": COLOURS, "train_labels": LABELS[:, None]}
MEDMNIST |= {"val_images": COLOURS[:6], "val_labels": LABELS[:6]}
FIRST = COLOURS.transpose(0, 3, 1, 2)
ARRAYS = {
    "idx": lambda to: ("idx", write_idx(to / "raw"), GREYS, 6),
    "medmnist": lambda to: ("npz", write_npz(to / "a.npz", **MEDMNIST), COLOURS, None),
    "fractions": lambda to: ("npz", write_npz(to / "a.npz", images=GREYS / 255, labels=LABELS), GREYS, None),
    "channels first": lambda to: ("npz", write_npz(to / "a.npz", X=FIRST, y=LABELS), COLOURS, None),
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
    names, folder = np.array(list("abc")), tmp_path / "kaggle"
    folder.mkdir()
    (folder / "sign_mnist_train.csv").write_text(table(labels=names[LABELS - 1]))
    (folder / "valid.csv.gz").write_bytes(gzip.compress(table(greys=SQUARES[:4], labels=["a"] * 4).encode()))
    unlabelled = ",".join(f"pixel{k}" for k in range(400)) + "\n" + ",".join(["0"] * 400)
    (folder / "test.csv").write_text(unlabelled)
    splits = loaded(folder, "csv")
    assert splits.class_names == ("a", "b", "c") and splits.image_shape == (1, 28, 28) and "test.csv" in caplog.text
    assert splits.val.labels.tolist() == [0] * 4


NAMES = ["+", "c+d", "a, b", "nan", "None", "NA", "1.0", "07", "*", "x:y", "a  b", '"', "label"]


@pytest.mark.parametrize("kind", ["folder", "csv", "pixels"])
def test_a_class_may_be_called_anything(tmp_path, caplog, kind):
    path = few(tmp_path / "own", **dict.fromkeys(NAMES, 3))
    if kind != "folder":
        files = [(f"own/{name}/{k}.png", name) for name in NAMES for k in range(3)]
        cells = files if kind == "csv" else [(name, 0, 100, 200, 255) for _, name in files]
        with open(path := tmp_path / "own.csv", "w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file).writerows(cells)
    splits = loaded(path, "csv", label_column="first") if kind == "pixels" else loaded(path, kind)
    assert splits.class_names == tuple(sorted(NAMES)) and sum(map(len, every(splits))) == 3 * len(NAMES)
    assert kind == "folder" or "read as a class: NA, None, nan. Leave out" in caplog.text


def table(first=True, header="label,{}", joined=",", greys=SQUARES, labels=LABELS) -> str:
    """A table of pixels; its header has the names of the pixels' columns in place of {}."""
    rows = [
        [*([label] if first else []), *row, *([] if first else [label])]
        for label, row in zip(labels, greys, strict=True)
    ]
    names = ",".join(f"p{k}" for k in range(greys.shape[1]))
    lines = [joined.join(map(str, row)) for row in rows]
    return "\n".join([header.format(names).replace(",", joined), *lines] if header else lines)


PLANES = COLOURS.transpose(0, 3, 1, 2).reshape(30, -1)
DECIMALS = np.vectorize(lambda value: f"{value / 255:.4f}".replace(".", ","))
TABLES = {  # the bytes of a file of GREYS[:, :20] or COLOURS
    "label last, named y": table(False, "{},y").encode(),
    "comment, blank lines, tabs": ("# mine\n\n" + table(joined="\t") + "\n\n\t\t\n").encode(),
    "decimal commas": table(joined=";", greys=DECIMALS(SQUARES)).encode(),
    "UTF-16": table().encode("utf-16"),
    "cp1252": table().replace("label", "# caf\u00e9\nlabel").encode("cp1252"),
    "gzip called csv": gzip.compress(table().encode()),
    "numbered rows": "\n".join(f"{k},{row}" for k, row in enumerate(table().split("\n")))
    .replace("0,", "id,", 1)
    .encode(),
    "planes of colour": table(greys=PLANES).encode(),
    "colour, label last": table(False, "{},label", greys=COLOURS.reshape(30, -1)).encode(),
}
REFUSED = {
    "short row": (table().replace(",", "", 1), "own.csv, row 2: expected 400 cells, as in row 1, got 401"),
    "text": (table().replace("\n1,", "\n1,?", 1), r"row 2, column 2 \(p0\): expected a number, got '\?"),
    "blank label": (table().replace("\n1,", "\n,", 1), r"row 2, column 1 \(label\): expected a label for each image"),
    "two ends": (table(header=""), "got the first has 1, 2, 3; the last has .* --label-column first or last"),
    "16 x 4": (table(greys=GREYS[:, ::7, ::5].repeat(4, 1).reshape(30, 64)), "expected 8 x 8 grey .* 16 x 4 grey"),
    "number": (table(header=""), "label_column: expected first or last, as the table has no header, got 1", "1"),
    "8 numbers": (table(greys=SQUARES[:, :8]), "grey or RGB image, got 8 numbers"),
    "units": (table(greys=SQUARES // 16), "int64 from 0 to 15, which would be nearly black. Divide .* / 15, or by 255"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_any_form_is_read_as_the_same_images(tmp_path, name):
    (tmp_path / "own.csv").write_bytes(TABLES[name])
    splits = loaded(tmp_path / "own.csv", "csv", size=None if "colour" in name else 20)
    wanted = FIRST if "colour" in name else SQUARES
    images = {image.tobytes(): label for image, label in zip(wanted, LABELS, strict=True)}
    for part in every(splits):
        for pixels, label in zip(part.pixels.numpy(), part.labels.tolist(), strict=True):
            assert images[pixels.tobytes()] == int(splits.class_names[label])
    assert sum(map(len, every(splits))) == 30


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_is_damaged_or_has_two_readings_is_refused_with_its_place(tmp_path, name):
    text, wanted, *column = REFUSED[name]
    (tmp_path / "own.csv").write_text(text)
    refuses("csv", tmp_path / "own.csv", wanted, *column)


def test_a_list_of_files_has_its_columns_found_by_their_names_and_keeps_groups_together(tmp_path):
    for k in range(24):
        picture(tmp_path / "all" / f"im{k}.png", 10 * k)
    rows = [f"im{k},{k % 2},{1 - k % 2},p{k // 4}" for k in range(24)]
    own = tmp_path / "own.csv"
    own.write_text("\n".join(["image_id,cat,dog,patient", *rows]))
    splits = loaded(own, "csv", group_by="patient")
    groups = [{*splits.files["group"][splits.files["split"] == part]} for part in ("train", "val", "test")]
    assert splits.class_names == ("cat", "dog") and sum(map(len, groups)) == len(set.union(*groups)) == 6
    files = [f"all/im{k}.png,{'ab'[k % 2]}" for k in range(24)]
    own.write_text("\n".join([",file,label", *(f"{k},{row}" for k, row in enumerate(files))]))
    assert "group" not in loaded(own, "csv").files  # the index that pandas writes has no name
    picture(tmp_path / "all" / "#1.png", 7)
    own.write_text("\n".join(["# mine", "File Name, label", *files, "all/#1.png, a", "#1.png, b"]))
    refuses("csv", own, r"row 28, .* each image in one class, got .*#1.png in a \(row 27\), b \(row 28\)")
    own.write_text("\n".join(["file,label", *files, "all/im0.png,b"]))
    refuses("csv", own, r"row 26, .* each image in one class, got .*im0.png in a \(row 2\), b \(row 26\)")
    own.write_text("\n".join(["file,label", *files, f"{'a' * 300},b"]))
    refuses(
        "csv", own, "25 images that can be read, got 1 that can't:\n.*aaa: expected an image file, got nothing there"
    )
    for label, wanted in (("-1", "row 2, .* a label for each image, got '-1'"), ("a|b", "one class for each image")):
        own.write_text("\n".join(["file,label", files[0][:-1] + label, *files[1:]]))
        refuses("csv", own, wanted)
    picture(tmp_path / "more" / "im0.png", 1)
    own.write_text("\n".join(["id,label", *(row[4:] for row in files)]))
    refuses("csv", own, "where no image, or several, are called so. Write their paths")
    own.write_text("\n".join(["file,label", *(row.replace("/", "\\") for row in files)]))
    assert len(loaded(own, "csv").files) == 24
    own.write_text("\n".join(["file,label", *(f"/elsewhere/{row}" for row in files)]))
    refuses("csv", own, "an image that can be read, got none: .*/elsewhere/all/im0.png")
    own.write_text("\n".join(["file,kind,owner", *(f"{row},x" for row in files)]))
    refuses("csv", own, "a column of labels, called label .* Name it with --label-column")
    assert loaded(own, "csv", label_column="kind").class_names == ("a", "b")


def test_emnist_is_turned_upright_and_labels_that_mean_none_are_refused(tmp_path):
    few_pixels = GREYS[:, :20].swapaxes(1, 2).reshape(30, 400)
    (tmp_path / "emnist-train.csv").write_text(table(greys=few_pixels))
    splits = loaded(tmp_path / "emnist-train.csv", "csv", size=20)
    assert {image.tobytes() for image in splits.train.pixels.numpy()} < {image.tobytes() for image in GREYS[:, :20]}
    for labels in (LABELS.astype(int) - 2, LABELS - np.uint8(2)):
        path = write_npz(tmp_path / "a.npz", images=GREYS, labels=labels)
        refuses("npz", path, "numbers of classes, got 10 of (-1|255, which is -1 as uint8). Leave out the images")


def test_arrays_that_cannot_be_used_are_refused_in_a_sentence(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    images, labels = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "train-labels-idx1-ubyte"
    images.write_bytes(gzip.compress(idx(GREYS))[:-9])
    refuses("idx", tmp_path, "train-labels-idx1-ubyte or its .gz beside it")
    labels.write_bytes(idx(LABELS))
    refuses("idx", tmp_path, "images-idx3-ubyte.gz: expected a whole file in .*, got: Compressed file ended")
    images.write_bytes(gzip.compress(idx(GREYS)[:-1]))
    refuses("idx", tmp_path, r"cannot reshape array of size 16799 into shape \(30, ?28, ?20\)")
    for array, number, wanted in (
        (np.array([Hostile()]), LABELS, "Arrays of objects are pickles, which can run code"),
        (GREYS, LABELS[1:], "of 0 and 1, got .29,"),
        (GREYS / 250, LABELS, "fractions from 0 to 1, got float64 from 0 to 1.02. Divide"),
        (GREYS * np.nan, LABELS, "fractions from 0 to 1, got float64 from nan to nan$"),
        (GREYS / 127.5 - 1, LABELS, r"from -1 to 1. If -1 is black: \(images \+ 1\) / 2. If 0 is black: abs"),
    ):
        refuses("npz", write_npz(tmp_path / "a.npz", images=array, labels=number), wanted)
    assert not Path("was run").exists()
    some = {"x_train": GREYS / 254.99, "y_train": LABELS, "x_valid": GREYS[:9] / 255, "y_valid": LABELS[:9]}
    splits = loaded(write_npz(tmp_path / "a.npz", **some, x_test=GREYS), "npz")
    assert len(splits.val) == 9 and "left out arrays without images or labels: x_test" in caplog.text
    some |= {"images": GREYS, "labels": LABELS}
    refuses("npz", write_npz(tmp_path / "a.npz", **some), "one array of images for each part, got images, x_train, x_v")


def test_arrays_are_trained_on_and_found_again(tmp_path):
    digits, labels = datasets.load_digits(return_X_y=True)
    images, words = digits[:200].reshape(200, 8, 8), np.array(list("abcdefghij"))[labels[:200]]
    config = TrainConfig(epochs=1, device="cpu", size=12, channels=3, out=tmp_path, data=tmp_path / "data", name="run")
    result = train(config, images=images / 16, labels=words, progress=False)
    assert result["test_images"] == 30 and set(load(tmp_path / "run").class_names) == set(words)
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    for images_of_call, labels_of_call, wanted in (
        (images, words, "float64 from 0 to 16. Divide .*: images / 16"),
        ([*images[:199], images[0, 1:]], words, "images: expected arrays of one shape"),
        (images / 16, pandas.Series(words).sample(frac=1, random_state=0), "or labels.to_numpy.. if row k is of image"),
        (images / 16, pandas.Series(words).replace("a", None), "a label for each image, got 2. of 200 without"),
    ):
        with pytest.raises(InputError, match=wanted):
            train(config, images=images_of_call, labels=labels_of_call)
