"""Write moving pictures as films: GIF and WebP with Pillow, mp4 with imageio-ffmpeg."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from PIL import Image

from graphcaps.atomic import replacing
from graphcaps.errors import GraphcapsError
from graphcaps.progress import bar
from graphcaps.viz import style
from graphcaps.viz.routing.picture import Picture

_NEAR = 6  # colours this near to the paper's (on a scale to 255) become the paper's, so that white paper stays white
_FPS = 50 / 3  # an mp4 frame is 0.06 s, the shortest frame of a timeline


def write_film(picture: Picture, path: Path) -> None:
    """Film ``picture`` in the format of the path's suffix: .gif, .webp or .mp4.

    Raises:
        GraphcapsError: mp4 without imageio-ffmpeg.
    """
    frames = picture.frames()
    with replacing(path) as temporary, bar(path.name) as on_progress:

        def images() -> Iterator[np.ndarray]:
            for done, frame in enumerate(frames, 1):
                yield pixels(picture, frame.position)
                on_progress(done / len(frames))

        seconds = [frame.seconds for frame in frames]
        if path.suffix == ".mp4":
            _write_mp4(temporary, images(), seconds, picture.figure.canvas.get_width_height())
            return
        shown = (Image.fromarray(image) for image in images())
        kind: dict[str, Any] = {"format": "WEBP", "quality": 70}
        if path.suffix == ".gif":
            palette = palette_of(picture)
            shown = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in shown)
            kind = {"format": "GIF", "disposal": 1}
        first, *others = shown
        milliseconds = [round(1000 * duration) for duration in seconds]
        first.save(temporary, save_all=True, append_images=others, duration=milliseconds, loop=0, **kind)


def pixels(picture: Picture, position: float) -> np.ndarray:
    """Render the picture at ``position`` as (height, width, 3) uint8."""
    picture.show(position)
    canvas = picture.figure.canvas
    assert isinstance(canvas, FigureCanvasAgg), "style.blank gives each figure one"
    with style.applied(picture.medium):
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def palette_of(picture: Picture) -> Image.Image:
    """An image with the palette that fits four frames over the whole timeline best, and has the paper's colour."""
    samples = [pixels(picture, position) for position in np.linspace(0, picture.timeline.end, 4)]
    looks: dict[str, Any] = {"method": Image.Quantize.MAXCOVERAGE, "dither": Image.Dither.NONE}
    # kmeans: large areas keep their colour
    image = Image.fromarray(np.concatenate(samples)).quantize(picture.colors, kmeans=2, **looks)
    colors, paper = np.reshape(image.getpalette(), (-1, 3)), np.round(255 * np.array(to_rgb(picture.medium.paper)))
    colors[abs(colors - paper).max(axis=1) <= _NEAR] = paper
    image.putpalette([*paper.astype(int).tolist(), *colors.ravel().tolist()])
    return image


def _write_mp4(path: Path, images: Iterator[np.ndarray], seconds: list[float], size: tuple[int, int]) -> None:
    """Write a film at a constant frame rate by repeating the frames that are held."""
    try:
        from imageio_ffmpeg import write_frames
    except ImportError:
        raise GraphcapsError(
            'format: expected imageio-ffmpeg for mp4, got none installed. pip install -e ".[video]", or use gif'
        ) from None
    with contextlib.closing(write_frames(str(path), size, fps=_FPS, macro_block_size=2, quality=8)) as writer:
        writer.send(None)
        for image, duration in zip(images, seconds, strict=True):
            for _ in range(round(duration * _FPS)):
                writer.send(image)
