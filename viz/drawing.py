"""Draw a trace into files: the chosen pictures, over iterations or epochs, in a chosen format."""

import base64
import html
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.figure import Figure

from graphcaps import viz
from graphcaps.errors import check_name, expect
from graphcaps.viz import PICTURES, style
from graphcaps.viz.results.reconstructions import has_reconstructions, sheet
from graphcaps.viz.routing.film import write_film
from graphcaps.viz.routing.timeline import OVER, size_in_words
from graphcaps.viz.routing_trace import RoutingTrace

STILL = ("png", "svg", "pdf")
FORMATS = ("gif", "webp", "mp4", *STILL)


def draw(
    trace: RoutingTrace,
    folder: str | os.PathLike,
    *,
    what: str = "all",
    over: str = "both",
    format: str = "gif",
    image: int = 0,
    node: int | None = None,
    dark: bool = False,
) -> list[Path]:
    """Draw a trace into files of ``folder``: NAME.gif for each picture that suits it, NAME-epochs.gif if the trace has
    several epochs, and sheet.png if it has reconstructions. For story, also a still of three rounds, story.png.

    Args:
        folder: made if it is missing; files of the same names are replaced.
        what: a name of ``viz.PICTURES``, sheet or all.
        over: iterations, epochs or both. Both leaves epochs out if the trace has one, and for stills but entropy's.
        format: gif, webp or mp4 (needs ``pip install -e ".[video]"``) for films, and png, svg or pdf for stills. A
            still shows the network's answer in the last epoch, or all of the entropy's curves. It is 3.4 inches wide
            for a column of a paper. The graph is 6.9 inches wide for a page, and the sheet 9 inches.
        image: index of the image that is drawn.
        node: draw this node of a graph and those that vote for it; None: the whole graph, or as much as fits.
        dark: make the pictures of the graph and the story for a dark page.

    Returns:
        Paths of the files, in the order of writing.

    Raises:
        InputError: an argument that doesn't fit the trace.
        GraphcapsError: a folder that can't be written, mp4 without imageio-ffmpeg, couplings that are not finite.
    """
    check_name("what", what, (*PICTURES, "sheet", "all"))
    check_name("over", over, ("both", *OVER))
    check_name("format", format, FORMATS)
    folder = Path(folder)
    fitting = ["entropy", "graph"] if trace.nodes is None else ["entropy", "graph", "nodes"]
    moving = fitting if what == "all" else [what] if what in PICTURES else []
    expect(node is None or "nodes" in moving, "node", "none unless a graph's nodes are drawn", node)
    spans = [over] if over != "both" else ["iterations", "epochs"] if len(trace.epochs) > 1 else ["iterations"]
    written: list[Path] = []
    for span in spans:
        for name in moving:
            if over == "both" and span == "epochs" and (name == "story" or (format in STILL and name != "entropy")):
                continue  # the still over iterations already shows the last epoch
            for kind in dict.fromkeys((format, "png") if name == "story" else (format,)):
                medium = kind_of(name).still if kind in STILL else kind_of(name).film
                medium = style.dark(medium) if dark and name in ("graph", "story") else medium
                options: dict[str, Any] = {"node": node} if name == "nodes" else {}
                path = folder / f"{name}{'-epochs' if span == 'epochs' else ''}.{kind}"
                picture(trace, name, path, over=span, image=image, medium=medium, **options)
                written.append(path)
    if what == "sheet" or (what == "all" and has_reconstructions(trace)):
        path = folder / f"sheet.{format if format in STILL else 'png'}"
        style.save(sheet(trace), path)
        written.append(path)
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
        write_film(drawn, path)
    return path


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
