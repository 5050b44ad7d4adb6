"""Write moving pictures as films: GIF and WebP with Pillow, mp4 with imageio-ffmpeg."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from PIL import Image

from graphcaps.atomic import replacing
from graphcaps.errors import GraphcapsError
from graphcaps.viz import style
from graphcaps.viz.routing.picture import Picture

_NEAR = 6  # leave out colours this near to the paper's (on a scale to 255), so that white paper stays white
_FPS = 50 / 3  # an mp4 frame is 0.06 s, the shortest frame of a timeline


def pixels(picture: Picture, position: float) -> np.ndarray:
    """Render the picture at ``position`` as (height, width, 3) uint8."""
    picture.show(position)
    canvas = picture.figure.canvas
    assert isinstance(canvas, FigureCanvasAgg), "style.blank gives each figure one"
    with style.applied(picture.medium):
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def palette_of(samples: list[np.ndarray], picture: Picture) -> Image.Image:
    """An image whose palette has the paper's colour, and the colours that fit the samples best."""
    sample = Image.fromarray(np.concatenate(samples))
    looks: dict[str, Any] = {"method": Image.Quantize.MAXCOVERAGE, "dither": Image.Dither.NONE}
    chosen = sample.quantize(picture.colors, kmeans=2, **looks).getpalette()  # kmeans: large areas keep their colour
    colors, paper = np.array(chosen).reshape(-1, 3), np.round(255 * np.array(to_rgb(picture.medium.paper))).astype(int)
    image = Image.new("P", (1, 1))
    image.putpalette([*paper.tolist(), *colors[abs(colors - paper).max(axis=1) > _NEAR].ravel().tolist()])
    return image


def write_gif(picture: Picture, path: Path, on_frame: Callable[[], object]) -> None:
    """Film ``picture`` as GIF, with one palette chosen from frames over the whole timeline, or as WebP."""
    frames = picture.frames()
    with replacing(path) as temporary:
        samples = [pixels(picture, position) for position in np.linspace(0, picture.timeline.end, 4)]
        palette = palette_of(samples, picture) if path.suffix == ".gif" else None

        def images() -> Iterator[Image.Image]:
            for frame in frames:
                image = Image.fromarray(pixels(picture, frame.position))
                yield image.quantize(palette=palette, dither=Image.Dither.NONE) if palette else image
                on_frame()

        first, *others = images()
        milliseconds = [round(1000 * frame.seconds) for frame in frames]
        kind: dict[str, Any] = {"format": "GIF", "disposal": 1} if palette else {"format": "WEBP", "quality": 70}
        first.save(temporary, save_all=True, append_images=others, duration=milliseconds, loop=0, **kind)


def write_mp4(picture: Picture, path: Path, on_frame: Callable[[], object]) -> None:
    """Film ``picture`` at a constant frame rate by repeating the frames that are held.

    Raises:
        GraphcapsError: imageio-ffmpeg is not installed.
    """
    try:
        from imageio_ffmpeg import write_frames
    except ImportError:
        raise GraphcapsError(
            'format: expected imageio-ffmpeg for mp4, got none installed. pip install -e ".[video]", or use gif'
        ) from None
    with replacing(path) as temporary:
        height, width = pixels(picture, 0.0).shape[:2]
        options = {"fps": _FPS, "macro_block_size": 2, "quality": 8}
        with contextlib.closing(write_frames(str(temporary), (width, height), **options)) as writer:
            writer.send(None)
            for frame in picture.frames():
                image = pixels(picture, frame.position)
                for _ in range(round(frame.seconds * _FPS)):
                    writer.send(image)
                on_frame()
