"""Compiled kernels are kept in the user's cache folder, named by their sources; nothing is written beside the code."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from numba import config

from graphcaps.kernels.cpu import kernel_cache
from graphcaps.kernels.cpu.kernel_cache import KERNELS, compiled, hash_of


def doubled(x):
    return 2 * x


@pytest.fixture
def home(monkeypatch, tmp_path) -> Path:
    """The home folder of a user on Linux who has set nothing."""
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.nb?") if path.is_file()]


def test_a_kernel_is_kept_in_the_users_cache_folder(home):
    kernel = compiled(doubled)
    assert kernel(3) == 6
    assert written(home) == written(home / ".cache" / "graphcaps" / KERNELS) != []
    again = compiled(doubled)
    assert again(3) == 6 and sum(again.stats.cache_hits.values()) == 1
    assert config.CACHE_DIR == ""  # the user's own functions are cached as before


def test_the_folder_has_another_name_where_any_source_has_changed(tmp_path):
    for name in ("kernels.py", "tiles.py"):
        (tmp_path / name).write_text("a = 1\n")
    before = hash_of(*tmp_path.iterdir())
    assert hash_of(*tmp_path.iterdir()) == before
    (tmp_path / "tiles.py").write_text("a = 2\n")
    assert hash_of(*tmp_path.iterdir()) != before


def test_the_users_own_setting_of_numba_wins(home, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(home / "mine"))
    assert compiled(doubled)(3) == 6
    assert written(home) == written(home / "mine") != []


@pytest.mark.parametrize("why", ["a file", "no home"])
def test_where_the_folder_cant_be_written_kernels_still_run_and_nothing_is_written(home, monkeypatch, why):
    if why == "a file":
        (home / ".cache").write_text("where the folder should be")
    else:
        # os.path leaves it as it is
        monkeypatch.setattr(kernel_cache, "user_cache_dir", lambda *_, **__: "~/.cache/graphcaps")
    kernel = compiled(doubled)
    assert kernel(3) == 6 and kernel.stats.cache_path is None
    assert written(home) == [] and not list(Path(__file__).parent.rglob("*doubled*.nb?"))


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [(".nbi", lambda b: b[: len(b) // 2]), (".nbc", lambda b: b[:-90] + bytes([b[-90] ^ 1]) + b[-89:])],
)
def test_a_damaged_file_is_replaced(home, suffix, damage):
    assert compiled(doubled)(3) == 6
    (path,) = (path for path in written(home) if path.suffix == suffix)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = compiled(doubled)
    assert again(3) == 6 and sum(again.stats.cache_hits.values()) == 0
    third = compiled(doubled)
    assert third(3) == 6 and sum(third.stats.cache_hits.values()) == 1


def test_processes_that_save_at_once_do_not_write_to_the_same_file(home, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(kernel_cache.CheckedFiles, "_load_index", lambda self: {})  # both read it before either saved
        assert compiled(doubled)(3) == 6 and compiled(doubled)(3.5) == 7
    assert len([path for path in written(home) if path.suffix == ".nbc"]) == 2
    again = compiled(doubled)
    assert again(3.5) == 7 and sum(again.stats.cache_hits.values()) == 1


def test_a_full_disk_and_a_folder_that_others_may_write_cost_only_a_compilation(home, monkeypatch):
    with monkeypatch.context() as patched:
        full = Mock(side_effect=OSError(28, "No space left on device"))
        patched.setattr(kernel_cache.CheckedFiles, "_open_for_write", full)
        assert compiled(doubled)(3) == 6 and written(home) == []
    (home / ".cache" / "graphcaps" / KERNELS).chmod(0o777)
    kernel = compiled(doubled)
    assert kernel(3) == 6 and kernel.stats.cache_path is None
