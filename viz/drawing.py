"""From a trace to files: which pictures, over what, in which format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from graphcaps.atomic import made, write_text
from graphcaps.errors import GraphcapsError, expect
from graphcaps.progress import bar
from graphcaps.trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.explorer.html import explorer_page
from graphcaps.viz.results.training_sheet import is_drawable, sheet
from graphcaps.viz.routing.bipartite import GraphPicture
from graphcaps.viz.routing.entropy import EntropyPicture
from graphcaps.viz.routing.histogram import HistogramPicture
from graphcaps.viz.routing.molecule import MoleculePicture, has_bonds
from graphcaps.viz.routing.movie import Picture, check_video, write_gif, write_mp4
from graphcaps.viz.routing.places import PlacesPicture, has_places
from graphcaps.viz.routing.timeline import OVER

_PICTURES: dict[str, Callable[..., Picture]] = {
    "entropy": EntropyPicture,
    "graph": GraphPicture,
    "histogram": HistogramPicture,
    "places": PlacesPicture,
    "molecule": MoleculePicture,
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
    on_written: Callable[[Path], object] | None = None,
) -> list[Path]:
    """Draw a trace into files of ``folder``: entropy.gif, graph.gif, histogram.gif, the same over epochs
    (entropy-epochs.gif, ...) where the trace holds several; places.gif where children see a part of the image each;
    molecule.gif where they are the nodes of a graph whose bonds are known; and sheet.png where the trace holds what a
    sheet shows; or all of it as one page, explorer.html.

    Args:
        trace: what routing did.
        folder: made where it is missing; files of the same names are replaced.
        what: entropy, graph, histogram, places, molecule, sheet or all.
        over: iterations, epochs or both; both leaves epochs out where the trace has one.
        format: gif or mp4 (needs ``pip install -e ".[video]"``); png, svg or pdf: the network's answer, after the
            last iteration of training, in the last epoch (over both, once), and all of the entropy's curves; 3.4 inches
            wide for a column of a paper (the sheet: 9, for a page); html: the explorer, which shows everything.
        image: which image of the trace moves, or is shown first in the explorer, from 0.
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
    of_all = {"places": has_places(trace), "molecule": has_bonds(trace)}
    moving = [name for name in _PICTURES if what == name or (what == "all" and of_all.get(name, True))]
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
                picture = _PICTURES[name](trace, span, image, medium=medium)
                path = folder / f"{name}{'-epochs' if span == 'epochs' else ''}.{format}"
                style.save(picture.figure, path, medium) if format in STILL else _film(picture, path)
                done(path)
        if what == "sheet" or (what == "all" and is_drawable(trace)):
            path = folder / f"sheet.{format if format in STILL else 'png'}"
            style.save(sheet(trace), path)
            done(path)
        return written


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


def _film(picture: Picture, path: Path) -> None:
    """Write the file, and show how far it is."""
    write, frames, done = write_gif if path.suffix == ".gif" else write_mp4, len(picture.timeline.frames()), count(1)
    with bar(path.name) as on_progress:
        write(picture, path, lambda: on_progress(next(done) / frames))
