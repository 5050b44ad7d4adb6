"""Files are written whole or not at all."""

import os
from unittest.mock import Mock

import pytest

from graphcaps import GraphcapsError
from graphcaps.files import replacing, write_text


def test_a_crash_a_full_disk_and_a_file_that_is_busy_leave_the_old_file_alone(tmp_path, monkeypatch):
    path, text = tmp_path / "file.txt", "file.txt: expected to be able to write it, got: "
    write_text(path, "old")
    for failure, error in ((RuntimeError("crash"), "crash"), (OSError(28, "No space left"), f"{text}No space left")):
        with pytest.raises((RuntimeError, GraphcapsError), match=error), replacing(path) as temporary:
            temporary.write_text("half")
            raise failure
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError(16, "Device or resource busy")))
    with pytest.raises(GraphcapsError, match=f"{text}Device or resource busy"):
        write_text(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file.txt"]


def test_a_file_is_on_the_disk_before_it_takes_the_old_ones_place(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *arguments: (order.append("fsync"), fsync(*arguments)))
    monkeypatch.setattr(os, "replace", lambda *arguments: (order.append("replace"), replace(*arguments)))
    write_text(tmp_path / "file.txt", "text")
    assert order == ["fsync", "replace"]


def test_a_file_may_be_read_by_others_as_the_umask_says(tmp_path):
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "file.txt", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o644


def test_a_path_that_can_not_be_written_is_named(tmp_path):
    write_text(tmp_path / "folder" / "file", "")
    os.mkfifo(tmp_path / "pipe")
    for path in ("folder/file/inside.txt", "folder", "pipe"):
        with pytest.raises(GraphcapsError, match=f"{path}: expected to be able to write it, got: "):
            write_text(tmp_path / path, "text")
    with pytest.raises(GraphcapsError, match="path: expected the name of a file, got ''"):
        write_text("", "text")
    os.symlink("folder/file", tmp_path / "link")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "folder" / "file").read_text() == "text"
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe"]
