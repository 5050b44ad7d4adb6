"""Numbers of features, as PyG has them: an integer, or -1 for one that is found out."""

from __future__ import annotations

from ..errors import check_whole


def check_channels(**sizes: int | None) -> None:
    """Raise ``InputError`` unless sizes are integers >= 1, or -1 where they are found out."""
    for name, size in sizes.items():
        if name == "out_channels" or size != -1:
            check_whole(name, size)
