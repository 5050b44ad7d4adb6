"""Moving pictures: draw each frame once, write a small GIF with Pillow, or an mp4 through imageio-ffmpeg."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from graphcaps.atomic import replacing
from graphcaps.errors import GraphcapsError
from graphcaps.viz import style
from graphcaps.viz.routing.timeline import Timeline

FORMATS = ("gif", "mp4")

_COLORS = 224
_NEAR = np.geomspace(4, 256, 40)  # in steps of a ninth, so that most of the colours are used
_FPS = 50 / 3  # an mp4 frame is 0.06 s, the shortest frame of a timeline


class Picture(Protocol):
    """What can be filmed."""

    figure: Figure
    timeline: Timeline
    moving: list[Artist]
    """What ``show`` changes, from back to front; nothing of the rest lies over it."""

    def show(self, position: float) -> None: ...


class Film:
    """A picture frame by frame: what stands still is drawn once, what moves is drawn over it."""

    def __init__(self, picture: Picture):
        canvas = picture.figure.canvas
        assert isinstance(canvas, FigureCanvasAgg), "style.blank gives each figure one"
        self._picture, self._canvas = picture, canvas
        with style.applied():
            self._set_aside(True)
            self._canvas.draw()
            self._set_aside(False)
        self._still = self._canvas.copy_from_bbox(picture.figure.bbox)

    def _set_aside(self, aside: bool) -> None:
        for artist in self._picture.moving:
            artist.set_animated(aside)

    def pixels(self, position: float) -> np.ndarray:
        """The picture at ``position`` as (height, width, 4) uint8: red, green, blue, 255."""
        self._canvas.restore_region(self._still)
        self._picture.show(position)
        for artist in self._picture.moving:
            self._picture.figure.draw_artist(artist)
        return np.array(self._canvas.buffer_rgba())


class Palette:
    """At most 224 colours for a GIF, such that every colour seen more than twice in sample frames is near one.

    The most frequent colours come first, so that paper, ink and the classes' colours stay what they are. Near is about
    as near as that many colours can be.
    """

    def __init__(self, samples: list[np.ndarray]):
        codes, times = np.unique(np.concatenate([_codes(sample).ravel() for sample in samples]), return_counts=True)
        seen = _values(codes[np.argsort(-times, kind="stable")][: (times > 2).sum()])  # (n, 3)
        nearest = bisect.bisect_left(_NEAR, True, key=lambda near: len(_cover(seen, near)) <= _COLORS)
        self._chosen = _cover(seen, _NEAR[nearest])  # (colours, 3)
        self.colors = self._chosen.astype(np.uint8)
        self._nearest = np.zeros(1 << 24, np.uint8)  # of every colour there is, from 1; 0 is not looked for yet

    def image(self, pixels: np.ndarray) -> Image.Image:
        """(height, width, 4) uint8 with each pixel as the nearest colour, which is looked for once per colour."""
        codes = _codes(pixels)
        new = np.unique(codes[self._nearest[codes] == 0])
        # |new - chosen|^2 without |new|^2, which is the same for every choice
        distance = (self._chosen**2).sum(axis=1) - 2 * _values(new) @ self._chosen.T
        self._nearest[new] = 1 + distance.argmin(axis=1)
        image = Image.fromarray(self._nearest[codes])
        image.putpalette([0, 0, 0, *self.colors.ravel().tolist()])
        return image


def _cover(seen: np.ndarray, near: float) -> np.ndarray:
    """The first of ``seen`` (n, 3), the first that is not ``near`` it, and so on; one too many if 224 don't reach."""
    chosen: list[np.ndarray] = []
    while len(seen) and len(chosen) <= _COLORS:
        chosen.append(seen[0])
        seen = seen[((seen - seen[0]) ** 2).sum(axis=1) > near**2]
    return np.stack(chosen)


def _codes(pixels: np.ndarray) -> np.ndarray:
    """(height, width, 4) uint8 as one number a pixel, its lowest byte red, then green and blue."""
    return pixels.view("<u4")[..., 0] & 0xFFFFFF


def _values(codes: np.ndarray) -> np.ndarray:
    """(n,) colours in one number as (n, 3) of red, green and blue."""
    return np.stack((codes & 255, codes >> 8 & 255, codes >> 16), axis=-1).astype(np.float32)


def write_gif(picture: Picture, path: Path, on_frame: Callable[[], object]) -> None:
    """Film ``picture``; one palette, taken from frames over the whole timeline, serves all frames.

    Raises:
        GraphcapsError: the file can't be written; an older one is then left as it was.
    """
    frames = picture.timeline.frames()
    with replacing(path) as temporary:
        film = Film(picture)
        palette = Palette([film.pixels(position) for position in np.linspace(0, picture.timeline.end, 4)])

        def images() -> Iterator[Image.Image]:
            for frame in frames:
                yield palette.image(film.pixels(frame.position))
                on_frame()

        first, *others = images()
        milliseconds = [round(1000 * frame.seconds) for frame in frames]
        first.save(temporary, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0, disposal=1)


def write_mp4(picture: Picture, path: Path, on_frame: Callable[[], object]) -> None:
    """Film ``picture`` at a constant rate; held frames are repeated.

    Raises:
        GraphcapsError: the file can't be written; an older one is then left as it was.
    """
    from imageio_ffmpeg import write_frames

    with replacing(path) as temporary:
        film = Film(picture)
        height, width = film.pixels(0.0).shape[:2]
        options = {"fps": _FPS, "macro_block_size": 2, "quality": 8, "pix_fmt_in": "rgba"}
        with contextlib.closing(write_frames(str(temporary), (width, height), **options)) as writer:
            writer.send(None)
            for frame in picture.timeline.frames():
                image = film.pixels(frame.position)
                for _ in range(round(frame.seconds * _FPS)):
                    writer.send(image)
                on_frame()


def check_video() -> None:
    """Raise ``GraphcapsError`` where mp4 can't be written."""
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        raise GraphcapsError(
            'format: expected imageio-ffmpeg for mp4, got none installed. pip install -e ".[video]", or use gif'
        ) from None
