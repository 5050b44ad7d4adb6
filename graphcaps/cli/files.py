"""The command that writes networks for other programs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..errors import GraphcapsError, check_whole
from .arguments import Data, Out, Run, open_run


def export(
    run: Run = None,
    format: Literal["onnx", "pt2"] = "onnx",
    to: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    check: int = 256,
    data: Data = None,
    out: Out = Path("runs"),
) -> None:
    """Write a trained network for other people's programs, and check that the file gives the same scores.

    The file takes one or more images and gives the classes' lengths, their capsules and the couplings. It also holds
    class names, input range and size, preset, routing and version.

    Args:
        format: onnx: for onnxruntime and others; needs: pip install -e ".[export]". pt2: for torch.export.load.
        to: The file; default: export/network.onnx or network.pt2 in the run folder.
        check: The number of validation images that the file is run on; 0: none. A file whose scores differ by more than
            1e-4 isn't written. onnxruntime runs an ONNX file, if it is installed.
    """
    check_whole("check", check, 0)
    chosen = open_run(run, out)
    from .. import export as exporting
    from ..data import Batches, load_images
    from ..models.answers import overlaid
    from ..training.run_folder import load

    path = to or chosen.results / "export" / f"network.{format}"
    exporting.check_installed(format)
    network, images = load(chosen), None
    if check:
        try:
            splits = load_images(chosen.config.dataset, data or chosen.config.data, **chosen.config.of_images)
        except GraphcapsError as error:
            then = "Without the data set: --check 0, which writes a file that isn't checked"
            raise type(error)(f"{error}. {then}") from error
        val = splits.for_augment(chosen.config.augment).val
        images = overlaid(next(Batches(val, check).in_order())[0])
    metadata = exporting.metadata_of(network, chosen.config.dataset)
    written = exporting.export(network, path, format, metadata, images)
    sizes = ", ".join(map(str, network.image_shape))
    print(f"{chosen}: {chosen.config.model} on {chosen.config.dataset_name}")
    print(f"images (batch, {sizes}) in [0, 1] -> {', '.join(written.shapes())}")
    if images is None:
        print("not checked: --check 0")
    elif written.difference is None:
        print("not checked: onnxruntime isn't installed. Run: pip install onnxruntime")
    else:
        first = next(iter(written.outputs))
        print(f"{first} of {len(images)} validation images are within {written.difference:.1e} of graphcaps' own")
    print(path)
