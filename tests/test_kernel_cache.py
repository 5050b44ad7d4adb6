"""Compiled kernels are kept in the user's cache folder, and nothing is written beside the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba import config

import graphcaps
from graphcaps.routing.fused import user_cache
from graphcaps.routing.fused.cpu import kernel_cache, kernels, kernels_em
from graphcaps.routing.fused.cpu.kernel_cache import cache_folder, compiled

PACKAGE = Path(graphcaps.__file__).parent


def doubled(x):
    return 2 * x


@pytest.fixture
def home(monkeypatch, tmp_path) -> Path:
    """Of a user on Linux who has set nothing."""
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(user_cache.sys, "platform", "linux")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.nb?") if path.is_file()]


def test_the_kernels_are_not_kept_in_the_package():
    for kernel in (kernels.iterate, kernels.gather_votes, kernels_em.moments):
        assert not Path(kernel.stats.cache_path).is_relative_to(PACKAGE)


def test_a_kernel_is_kept_in_the_users_cache_folder(home):
    kernel = compiled(doubled)
    assert kernel(3) == 6
    assert written(home) == written(home / ".cache" / "graphcaps") != []
    again = compiled(doubled)
    assert again(3) == 6 and sum(again.stats.cache_hits.values()) == 1
    assert config.CACHE_DIR == ""  # the user's own functions are cached as before


@pytest.mark.parametrize(
    ("platform", "name", "value", "folder"),
    [
        ("linux", "XDG_CACHE_HOME", "", ".cache"),
        ("linux", "XDG_CACHE_HOME", "relative", ".cache"),
        ("linux", "XDG_CACHE_HOME", "/elsewhere", "/elsewhere"),
        ("darwin", "XDG_CACHE_HOME", "/elsewhere", "Library/Caches"),
        ("win32", "LOCALAPPDATA", "", "AppData/Local"),
        ("win32", "LOCALAPPDATA", "/elsewhere", "/elsewhere"),
    ],
)
def test_each_platform_has_its_place_for_caches(home, monkeypatch, platform, name, value, folder):
    monkeypatch.setattr(user_cache.sys, "platform", platform)
    monkeypatch.setenv(name, value)
    assert cache_folder().parent == home / folder / "graphcaps"


def test_a_version_of_graphcaps_finds_no_other_ones_kernels(home, monkeypatch):
    ours = cache_folder()
    monkeypatch.setattr(kernel_cache, "__version__", "99.0")
    assert cache_folder() != ours


def test_the_users_own_setting_of_numba_wins(home, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(home / "mine"))
    assert compiled(doubled)(3) == 6
    assert written(home) == written(home / "mine") != []


def test_where_the_folder_cant_be_written_kernels_still_run_and_nothing_is_written(home):
    (home / ".cache").write_text("a file, where the folder should be")
    kernel = compiled(doubled)
    assert kernel(3) == 6 and kernel.stats.cache_path is None
    assert written(home) == [] and not list(Path(__file__).parent.rglob("*doubled*.nb?"))


def test_a_user_without_a_home_can_run_kernels(home, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    kernel = compiled(doubled)
    assert kernel(3) == 6 and kernel.stats.cache_path is None
