"""Draw a trace into files: the chosen pictures, over iterations or epochs, in a chosen format.

Pillow writes GIF and WebP, and imageio-ffmpeg mp4.
"""

import base64
import contextlib
import html
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from graphcaps import viz
from graphcaps.errors import GraphcapsError, check_name, expect
from graphcaps.files import replacing
from graphcaps.progress import bar
from graphcaps.viz import PICTURES, style
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.timeline import OVER, size_in_words
from graphcaps.viz.routing_trace import RoutingTrace

STILL = ("png", "svg", "pdf")
FORMATS = ("gif", "webp", "mp4", *STILL)
_NEAR = 6  # colours this near to the paper's (on a scale to 255) become the paper's, so that white paper stays white
_FPS = 50 / 3  # an mp4 frame is 0.06 s, the shortest frame of a timeline


def draw(
    trace: RoutingTrace,
    folder: str | os.PathLike,
    *,
    what: str = "all",
    format: str = "gif",
    image: int = 0,
    node: int | None = None,
    dark: bool = False,
) -> list[Path]:
    """Draw a trace into files of ``folder``: NAME.gif for each picture that suits it, and NAME-epochs.gif if the trace
    has several epochs. Of stills, only the entropy's is drawn over epochs too. For story, also a still of three rounds,
    story.png.

    Args:
        folder: made if it is missing; files of the same names are replaced.
        what: a name of ``viz.PICTURES``, or all.
        format: gif, webp or mp4 (needs ``pip install -e ".[video]"``) for films, and png, svg or pdf for stills. A
            still shows the network's answer in the last epoch, or all of the entropy's curves. It is 3.4 inches wide
            for a column of a paper. The graph is 6.9 inches wide for a page.
        image: index of the image that is drawn.
        node: draw this node of a graph and those that vote for it; None: the whole graph, or as much as fits.
        dark: make the pictures of the graph and the story for a dark page.

    Returns:
        Paths of the files, in the order of writing.

    Raises:
        InputError: an argument that doesn't fit the trace.
        GraphcapsError: a folder that can't be written, mp4 without imageio-ffmpeg, couplings that are not finite.
    """
    check_name("what", what, (*PICTURES, "all"))
    check_name("format", format, FORMATS)
    folder = Path(folder)
    fitting = ["entropy", "graph"] if trace.nodes is None else ["entropy", "graph", "nodes"]
    names = fitting if what == "all" else [what]
    expect(node is None or "nodes" in names, "node", "none unless a graph's nodes are drawn", node)
    written: list[Path] = []
    for over in OVER if len(trace.epochs) > 1 else ("iterations",):
        for name in names:
            if over == "epochs" and (name == "story" or (format in STILL and name != "entropy")):
                continue  # the still over iterations already shows the last epoch
            for kind in dict.fromkeys((format, "png") if name == "story" else (format,)):
                medium = kind_of(name).still if kind in STILL else kind_of(name).film
                medium = style.dark(medium) if dark and name in ("graph", "story") else medium
                options: dict[str, Any] = {"node": node} if name == "nodes" else {}
                written.append(folder / f"{name}{'-epochs' if over == 'epochs' else ''}.{kind}")
                picture(trace, name, written[-1], over=over, image=image, medium=medium, **options)
    return written


def kind_of(name: str) -> Any:
    """The class that draws a picture of ``viz.PICTURES``."""
    return getattr(viz, f"{name.title()}Picture")


def picture(
    trace: RoutingTrace, what: str = "auto", path: str | os.PathLike | None = None, **options: Any
) -> Figure | Path:
    """One picture, as a figure or as a file.

    Args:
        what: a name of ``viz.PICTURES``; auto: nodes if routing follows the edges of a graph, else graph.
        path: a file to write that ends in .gif, .webp, .mp4, .png, .svg or .pdf; None: return a figure.
        options: ``over`` ("iterations" or "epochs"), ``image``, ``medium``; for graph also ``shown_edges``;
            for nodes also ``node``.

    Returns:
        The path, or a matplotlib figure of the network's answer.
    """
    if what == "auto":
        what = "graph" if trace.nodes is None else "nodes"
    check_name("what", what, tuple(PICTURES))
    drawn = kind_of(what)(trace, **options)
    if path is None:
        return drawn.figure
    path = Path(path)
    check_name("path", path.suffix[1:], FORMATS)
    if path.suffix[1:] in STILL:
        style.save(drawn.figure, path, drawn.medium)
    else:
        _write_film(drawn, path)
    return path


def _write_film(picture: Picture, path: Path) -> None:
    """Film ``picture`` in the format of the path's suffix: .gif, .webp or .mp4."""
    frames = picture.frames()
    with replacing(path) as temporary, bar(path.name) as on_progress:

        def images() -> Iterator[np.ndarray]:
            for done, frame in enumerate(frames, 1):
                yield _pixels(picture, frame.position)
                on_progress(done / len(frames))

        seconds = [frame.seconds for frame in frames]
        if path.suffix == ".mp4":
            _write_mp4(temporary, images(), seconds, picture.figure.canvas.get_width_height())
            return
        shown = (Image.fromarray(image) for image in images())
        kind: dict[str, Any] = {"format": "WEBP", "quality": 70}
        if path.suffix == ".gif":
            palette = _palette_of(picture)
            shown = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in shown)
            kind = {"format": "GIF", "disposal": 1}
        first, *others = shown
        milliseconds = [round(1000 * duration) for duration in seconds]
        first.save(temporary, save_all=True, append_images=others, duration=milliseconds, loop=0, **kind)


def _pixels(picture: Picture, position: float) -> np.ndarray:
    """Render the picture at ``position`` as (height, width, 3) uint8."""
    picture.show(position)
    canvas = picture.figure.canvas
    assert isinstance(canvas, FigureCanvasAgg), "style.blank gives each figure one"
    with style.applied(picture.medium):
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _palette_of(picture: Picture) -> Image.Image:
    """An image with the palette that fits four frames over the whole timeline best, and has the paper's colour."""
    samples = [_pixels(picture, position) for position in np.linspace(0, picture.timeline.end, 4)]
    looks: dict[str, Any] = {"method": Image.Quantize.MAXCOVERAGE, "dither": Image.Dither.NONE}
    # kmeans: large areas keep their colour
    image = Image.fromarray(np.concatenate(samples)).quantize(picture.colors, kmeans=2, **looks)
    colors, paper = np.array(image.getpalette()).reshape(-1, 3), np.round(255 * np.array(to_rgb(picture.medium.paper)))
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


def animations(traces: dict[str, RoutingTrace]) -> str:
    """Self-contained HTML for a notebook: a moving picture of each layer, with the last one open."""
    parts = []
    with TemporaryDirectory() as folder:
        for name, trace in traces.items():
            over = "epochs" if len(trace.epochs) > 1 else "iterations"
            film = Path(folder) / "routing.gif"
            picture(trace, path=film, over=over)
            data = base64.b64encode(film.read_bytes()).decode()
            summary = html.escape(f"{name}: {size_in_words(trace)}")
            image = f'<img src="data:image/gif;base64,{data}" alt="{summary}" style="max-width: 100%">'
            opened = " open" * (name == list(traces)[-1])
            parts.append(f"<details{opened}><summary>{summary}</summary>{image}</details>")
    return "\n".join(parts) or "Nothing has routed in watch's block"
