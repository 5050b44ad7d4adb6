"""From a trace to files: which pictures, over what, in which format."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.figure import Figure

from graphcaps.atomic import made, write_text
from graphcaps.errors import GraphcapsError, check_name, expect
from graphcaps.progress import bar
from graphcaps.routing_trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.explorer.html import explorer_page
from graphcaps.viz.results.training_sheet import is_drawable, sheet
from graphcaps.viz.routing.bipartite import GraphPicture
from graphcaps.viz.routing.entropy import EntropyPicture
from graphcaps.viz.routing.histogram import HistogramPicture
from graphcaps.viz.routing.molecule import MoleculePicture, has_bonds
from graphcaps.viz.routing.movie import Picture, check_video, write_gif, write_mp4
from graphcaps.viz.routing.nodes import NodesPicture, has_nodes
from graphcaps.viz.routing.places import PlacesPicture, has_places
from graphcaps.viz.routing.timeline import OVER, size_in_words

_PICTURES: dict[str, Callable[..., Picture]] = {
    "entropy": EntropyPicture,
    "graph": GraphPicture,
    "histogram": HistogramPicture,
    "places": PlacesPicture,
    "molecule": MoleculePicture,
    "nodes": NodesPicture,
}
WHAT = (*_PICTURES, "sheet", "all")
STILL = ("png", "svg", "pdf")
FORMATS = ("gif", "mp4", *STILL, "html")


def draw(
    trace: RoutingTrace,
    folder: str | os.PathLike,
    *,
    what: str = "all",
    over: str = "both",
    format: str = "gif",
    image: int = 0,
    node: int | None = None,
    on_written: Callable[[Path], object] | None = None,
) -> list[Path]:
    """Draw a trace into files of ``folder``: entropy.gif, graph.gif, histogram.gif, the same over epochs
    (entropy-epochs.gif, ...) where the trace holds several; places.gif where children see a part of the image each;
    molecule.gif where they are the nodes of a graph whose bonds are known; nodes.gif of ``CapsuleConv``; and sheet.png
    where the trace holds what a sheet shows; or all of it as one page, explorer.html.

    Args:
        trace: what routing did.
        folder: made where it is missing; files of the same names are replaced.
        what: entropy, graph, histogram, places, molecule, nodes, sheet or all.
        over: iterations, epochs or both; both leaves epochs out where the trace has one.
        format: gif or mp4 (needs ``pip install -e ".[video]"``); png, svg or pdf: the network's answer, after the
            last iteration of training, in the last epoch (over both, once), and all of the entropy's curves; 3.4 inches
            wide for a column of a paper (the sheet: 9, for a page); html: the explorer, which shows everything.
        image: which image of the trace moves, or is shown first in the explorer, from 0.
        node: which node of a graph is drawn, with those that vote for it; None: the whole graph, or what fits.
        on_written: called with each path when its file is complete.

    Returns:
        The files written, in that order.

    Raises:
        InputError: an argument that doesn't fit the trace.
        GraphcapsError: a folder that can't be written, mp4 without imageio-ffmpeg, couplings that are not finite.
    """
    for name, value, known in (("what", what, WHAT), ("over", over, ("both", *OVER)), ("format", format, FORMATS)):
        expect(value in known, name, f"{', '.join(known[:-1])} or {known[-1]}", repr(value))
    if format == "mp4" and what != "sheet":
        check_video()
    if format == "html":
        whole = (what, over) == ("all", "both")
        expect(whole, "what and over", "all and both for html", f"{what} and {over}", "The explorer shows everything")
    folder = Path(folder)
    of_all = {"places": has_places(trace), "molecule": has_bonds(trace), "nodes": has_nodes(trace)}
    moving = [name for name in _PICTURES if what == name or (what == "all" and of_all.get(name, True))]
    expect(node is None or "nodes" in moving, "node", "none where no graph's nodes are drawn", node)
    spans = [over] if over != "both" else ["iterations", "epochs"] if len(trace.epochs) > 1 else ["iterations"]
    medium = style.COLUMN if format in STILL else style.SCREEN
    written = []

    def done(path: Path) -> None:
        written.append(path)
        if on_written is not None:
            on_written(path)

    with writable(folder):
        if format == "html":
            path = folder / "explorer.html"
            with bar(path.name):
                write_text(path, explorer_page(trace, image))
            done(path)
            return written
        for span in spans:
            for name in moving:
                if format in STILL and name != "entropy" and span == "epochs" and over == "both":
                    continue  # the last epoch after the iterations of training: what the still over iterations shows
                path = folder / f"{name}{'-epochs' if span == 'epochs' else ''}.{format}"
                options = {"node": node} if name == "nodes" else {}
                _write(_PICTURES[name](trace, span, image, medium=medium, **options), path, medium)
                done(path)
        if what == "sheet" or (what == "all" and is_drawable(trace)):
            path = folder / f"sheet.{format if format in STILL else 'png'}"
            style.save(sheet(trace), path)
            done(path)
        return written


def picture(
    trace: RoutingTrace, what: str = "auto", path: str | os.PathLike | None = None, **options: Any
) -> Figure | Path:
    """One picture, as a figure or as a file.

    Args:
        trace: what routing did.
        what: entropy, graph, histogram, places, molecule or nodes; auto: nodes where routing is along the edges of a
            graph, molecule where the trace has bonds, else graph.
        path: a file to write, that ends in .gif, .mp4, .png, .svg or .pdf; None: the figure is returned.
        options: ``over`` ("iterations" or "epochs") and ``image``; of nodes also ``node`` and ``view``.

    Returns:
        The path, or a matplotlib figure of the network's answer.
    """
    if what == "auto":
        what = "nodes" if has_nodes(trace) else "molecule" if has_bonds(trace) else "graph"
    check_name("what", what, tuple(_PICTURES))
    if path is None:
        return _PICTURES[what](trace, **options).figure
    path = Path(path)
    check_name("path", path.suffix[1:], FORMATS[:-1])
    if path.suffix == ".mp4":
        check_video()
    _write(_PICTURES[what](trace, **options), path, style.SCREEN)
    return path


def animations(traces: dict[str, RoutingTrace]) -> str:
    """HTML for a notebook: a moving picture of each layer, the last one unfolded; nothing else is loaded."""
    parts = []
    with TemporaryDirectory() as folder:
        for name, trace in traces.items():
            over = "epochs" if len(trace.epochs) > 1 else "iterations"
            film = Path(folder) / "routing.gif"
            picture(trace, path=film, over=over)
            data = base64.b64encode(film.read_bytes()).decode()
            said = html.escape(f"{name}: {size_in_words(trace)}")
            image = f'<img src="data:image/gif;base64,{data}" alt="{said}" style="max-width: 100%">'
            opened = " open" * (name == list(traces)[-1])
            parts.append(f"<details{opened}><summary>{said}</summary>{image}</details>")
    return "\n".join(parts) or "Nothing has routed in watch's block"


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Make the folder, or say why files can't be written there before anything is drawn; errors leave no empty one."""
    with ExitStack() as stack:
        try:
            stack.enter_context(made(folder))
            got = "" if os.access(folder, os.W_OK) else "no permission"
        except OSError as error:
            got = error.strerror or str(error)
        if got:
            raise GraphcapsError(f"folder: expected one that can be written, got {folder}: {got}. Choose another")
        yield


def _write(picture: Picture, path: Path, medium: style.Medium) -> None:
    style.save(picture.figure, path, medium) if path.suffix[1:] in STILL else _film(picture, path)


def _film(picture: Picture, path: Path) -> None:
    """Write the file, and show how far it is."""
    write, frames, done = write_gif if path.suffix == ".gif" else write_mp4, len(picture.timeline.frames()), count(1)
    with bar(path.name) as on_progress:
        write(picture, path, lambda: on_progress(next(done) / frames))
