"""Commands that show routing: viz, explain, explore."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..errors import expect
from ..files import check_symlinks, file_name
from ..names import clean
from ..viz import PICTURES
from .arguments import Data, Device, Folder, Out, Run, names_run, open_run
from .columns import show
from .networks import load_with_test

if TYPE_CHECKING:
    What = str
else:
    What = Literal[("all", *PICTURES)]
_WHAT = " ".join(f"{name}: {shows}." for name, shows in PICTURES.items())
_WHAT += " all: all of these that the trace allows, but the story."


def viz(
    run: Run = None,
    what: Annotated[What, tyro.conf.arg(help=_WHAT)] = "all",
    format: Literal["gif", "webp", "mp4", "png", "svg", "pdf"] = "gif",
    image: int = 0,
    node: Annotated[int | None, tyro.conf.arg(help_behavior_hint="")] = None,
    dark: bool = False,
    to: Folder = None,
    out: Out = Path("runs"),
) -> None:
    """Draw how the couplings settle, from a run's routing trace alone.

    RUN may also be an .npz file that graphcaps.watch has saved.

    Args:
        format: gif, webp, mp4: animations; mp4 needs pip install -e ".[video]".
            png, svg, pdf: stills sized for a paper: the network's answer (in the last epoch, after the last iteration
            used in training), and the complete curves of the entropy.
        image: The number of the test image to draw, from 0; the trace has an image of each class.
        node: With --what nodes, draw only this node and the nodes that vote for it; default: the whole graph, or, if
            it is too large, the nodes with the most edges.
        dark: Draw the graph or the story for a dark page.
        to: Folder for the pictures; default: figures in the run folder; figures-NAME beside a file NAME.npz.
    """
    from ..viz import draw

    if run is not None and run.suffix == ".npz":
        from ..viz.routing_trace import RoutingTrace

        trace, folder = RoutingTrace.load(run), run.parent / file_name(f"figures-{run.stem}", "")
        check_symlinks(folder)
    else:
        chosen = open_run(run, out)
        trace, folder = chosen.trace(), chosen.results / "figures"
    show(*draw(trace, to or folder, what=what, format=format, image=image, node=node, dark=dark))


def explain(
    run: Run = None,
    picture: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[PICTURE]", help_behavior_hint="")
    ] = None,
    what: Literal["parts", "capsules"] = "parts",
    image: int = 0,
    keep: float = 0.9,
    data: Data = None,
    device: Device = "auto",
    out: Out = Path("runs"),
) -> None:
    """Show which parts led to an answer, or which capsules are used.

    Writes a picture of the graph with these links to the folder explain in the run folder; for a network that comes
    with graphcaps, to pretrained-NAME/explain beside the run folders.

    Args:
        picture: An image file of your own to explain, instead of a test image.
        what: parts: the strongest links from children to parents for one image, with the run's best weights.
            capsules: dead and starved capsules, and the coupling entropy of the children, on the test images.
        image: The number of the test image, from 0; the trace has an image of each class.
        keep: Show the fewest links that make up this share of all credit above 0. A link's credit is c <u_hat, v>: the
            contribution of its child to the length of its parent, after the iterations used in training.
    """
    if run is not None and picture is None and not names_run(run, out):
        run, picture = None, run
    expect(picture is None or (what == "parts" and not image), "picture", "no --image or --what capsules", picture)
    chosen = open_run(run, out)
    if what == "capsules":
        chosen.check_routes()
        from ..images.analysis.capsule_usage import capsule_usage
        from ..progress import bar
        from .tables import usage_lines

        network, batches = load_with_test(chosen, data, device)
        with bar("test images") as on_progress:
            [usage] = capsule_usage(network, batches, on_progress)
        return show(usage_lines(usage))
    from ..images.analysis.parse_tree import in_words, parse_tree
    from ..images.recording import record_picture, trace_of_best
    from ..viz import picture as draw_picture

    trace, model = trace_of_best(chosen)
    name, file, doubts = f"image {image}", f"image-{image}", []
    if picture is not None:
        from ..images.training.run_folder import load
        from .tables import prediction_line, prediction_of, read_for

        model, image, name, file = model or load(chosen), 0, clean(picture.name), picture.stem
        read = read_for(chosen, model, picture)
        trace = record_picture(trace, model, read.pixels[None], name)
        answer = prediction_of(chosen, model, picture, read, 1)
        if any(doubt["kind"] == "blank" for doubt in answer["doubts"]):
            return show(prediction_line(answer, "auto"))
        doubts = [doubt["text"] for doubt in answer["doubts"]]
    tree, path = parse_tree(trace, image, keep), chosen.results / "explain" / file_name(file, ".png")
    show(in_words(trace, tree, name))
    if doubts:
        show(f"Doubtful: {'; '.join(doubts)}")
    draw_picture(trace, "graph", path, image=image, shown_edges=tree.edges)
    show(path)


def explore(
    run: Run = None,
    open: bool = True,
    image: Annotated[int | None, tyro.conf.arg(help_behavior_hint="")] = None,
    to: Folder = None,
    out: Out = Path("runs"),
) -> None:
    """Write and open a page on which you can draw and see your drawing routed.

    The page is a single file that contains the network. You can send it to someone or put it on any web server.

    Args:
        open: Open the page in the browser, if there is a display.
        image: The number of the test image that is shown first, from 0; the trace has an image of each class. Default:
            the one on which two parents contend most.
        to: Folder for the page; default: figures in the run folder.
    """
    chosen = open_run(run, out)
    from ..explore.network import page_parts
    from ..files import write_text
    from ..viz import explorer_page

    path = (to or chosen.results / "figures") / "explorer.html"
    trace, network, without = page_parts(chosen)
    write_text(path, explorer_page(trace, image, network, without))
    show(path)
    has_display = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if open and has_display:
        webbrowser.open(path.resolve().as_uri())
