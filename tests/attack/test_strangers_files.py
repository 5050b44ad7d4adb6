"""Files made to fill the memory, to run for ever or to make a command wait: each is refused in a sentence.

The limits are small here. With those of graphcaps, 5 GB of zeros in each of the packed files end within seconds, too.
"""

import gzip
import os
import shutil
import signal
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphcaps import files
from graphcaps.cli import main
from graphcaps.images.data import tables
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import PRETRAINED

ZEROS = bytes(2**20)
TRAIN, WEIGHTS, CONFIG = "train --epochs 1 --dataset", "run/checkpoints/best.safetensors", "run/config.json"


def png(path: Path) -> None:
    """A file of 33 bytes whose header promises 10 ** 10 pixels."""
    chunk = b"IHDR" + (10**5).to_bytes(4, "big") * 2 + b"\x08\0\0\0\0"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\x0d" + chunk + zlib.crc32(chunk).to_bytes(4, "big"))


def large(path: Path) -> None:
    tensors, head = checkpoint.read(path)
    head["preset"]["num_classes"] = 10**9
    checkpoint.write(path, tensors, head)


def packed(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("images.npy", ZEROS)


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def endless_beside_an_image(path: Path) -> None:
    path.parent.mkdir(parents=True)
    Image.new("L", (4, 4)).save(path.with_name("image.png"))
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("name", "make", "command"),
    [
        ("run/trace.npz", lambda path: np.savez_compressed(path, head=np.frombuffer(ZEROS, np.uint8)), "viz run"),
        ("train-images-idx3-ubyte.gz", lambda path: path.write_bytes(gzip.compress(ZEROS)), f"{TRAIN} idx:."),
        ("x.npy", packed, f"{TRAIN} npz:x.npy"),
        ("x.csv", lambda path: path.write_bytes(ZEROS), f"{TRAIN} csv:x.csv"),
        ("x.csv", lambda path: path.write_bytes(gzip.compress(ZEROS)), f"{TRAIN} csv:x.csv"),
        (CONFIG, lambda path: path.write_bytes(ZEROS), "evaluate run"),
        ("x.png", png, "predict x.png"),
        *((name, fifo, "evaluate run") for name in (CONFIG, WEIGHTS)),
        ("x.csv", fifo, f"{TRAIN} csv:x.csv"),
        ("x.png", fifo, "predict x.png"),
        ("f/a/x.png", endless_beside_an_image, f"{TRAIN} folder:f"),
        (WEIGHTS, large, "evaluate run"),
    ],
)
def test_a_strangers_file_is_refused_before_it_takes_memory_or_time(tmp_path, monkeypatch, capsys, name, make, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "MOST_BYTES", 2**16)
    for module in (files, tables):
        monkeypatch.setattr(module, "MOST_TEXT", 2**16)
    shutil.copytree(PRETRAINED / "mnist", "run")
    make(Path(name))
    signal.alarm(60)  # ends a test that waits for ever
    code = main(command.split())
    signal.alarm(0)
    error = capsys.readouterr().err
    assert code in (1, 2) and "\ngraphcaps: " in "\n" + error and Path(name).name in error, error
