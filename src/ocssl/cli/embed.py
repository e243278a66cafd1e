"""Commands that use what was learned: `ocssl embed`, `search`, `export`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ocssl.cli.app import IMAGES, app, console, print_json
from ocssl.cli.options import Count, Device, Json, Number, Quiet, Switch
from ocssl.errors import SettingError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.embed.embed import Mode, Result
    from ocssl.embed.index import Index
    from ocssl.embed.search_page import Section

Encoder = Annotated[Path, Parameter(help="A run folder, a saved learner, or an export of safetensors.")]
SHOWN = 3  # skipped images that are named


@app.command(group=IMAGES)
def embed(
    run: Encoder,
    source: str,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    update: Switch = False,
    refresh: Switch = False,
    align: Switch = False,
    dtype: Literal["float16", "float32"] | None = None,
    workers: Count | None = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> int:
    """Write the vectors of a folder of images to a parquet file, with path, checksum and the encoder's fingerprint.

    Stopped or killed, the same command continues. Vectors of two encoders are never mixed in a file.

    Example: ocssl embed runs/solar-photos-seed0 photos -o vectors.parquet

    Parameters
    ----------
    source
        A folder of images, or parquet:PATH, wds:PATTERN or hf:NAME.
    output
        The parquet file to write.
    update
        Embed only new and changed images, and remove the rows of deleted ones.
    refresh
        Embed again the images whose vectors come from another encoder or from --align.
    align
        Instead of embedding again, map the vectors of another encoder into this one's space, by a linear fit on some
        images.
    dtype
        float32 (the default), or float16 for half the size.
    workers
        Processes that decode images; by default one less than there are cores, at most 8.
    """
    import os

    from ocssl.cli.run import chosen_device
    from ocssl.embed.embed import embed as run_embed
    from ocssl.embed.image_encoder import load_encoder
    from ocssl.embed.image_files import open_source
    from ocssl.runs.progress import Bars

    chosen = [name for name, on in (("update", update), ("refresh", refresh), ("align", align)) if on]
    if len(chosen) > 1:
        raise SettingError(f"--{chosen[0]} and --{chosen[1]} exclude each other: use one of them.")
    mode: Mode = chosen[0] if chosen else "new"  # type: ignore[assignment]
    if workers is not None and workers < 1:
        raise SettingError(f"--workers is {workers}: at least 1 is wanted.")
    count = workers or max(1, min(8, (os.cpu_count() or 1) - 1))
    screen = console()
    encoder = load_encoder(run, device=chosen_device(device))
    try:
        with Bars(screen, quiet) as bars:
            images = open_source(source, bars.report)
            result = run_embed(encoder, images, output, mode=mode, dtype=dtype, workers=count, report=bars.report)
    except KeyboardInterrupt:
        screen.print("stopped; the same command continues")
        return 130
    _show(result, screen)
    return 0


def _show(result: Result, screen: Console) -> None:
    from ocssl.data.decode.decode_processes import by_reason

    say = partial(screen.print, soft_wrap=True)
    if result.finished_before:
        say(f"{result.output} is up to date: {result.vectors:,} vectors of encoder {result.encoder}")
        return
    removed = f", {result.removed:,} removed" if result.removed else ""
    kinds = f"{result.vectors:,} vectors of {result.dimension:,} dimensions, {result.embedded:,} of them new{removed}"
    say(f"{result.output}: {kinds}; encoder {result.encoder}")
    if result.skipped:
        few = ", ".join(printable(fault.name) for fault in result.skipped[:SHOWN])
        more = ", ..." if len(result.skipped) > SHOWN else ""
        say(f"skipped {len(result.skipped):,}: {by_reason(result.skipped)} ({few}{more})")
    if result.alignment:
        a = result.alignment
        mapped = result.vectors - result.embedded
        kept = f"{mapped:,} vectors are mapped" if mapped else "all images were embedded again, so no vector is mapped"
        say(
            f"{kept}; the linear map is fitted on {a.fitted:,} images, and on {a.held_out:,} others its error is "
            f"{a.error:.3f} of their spread, the similarity to the true vector {a.cosine:.3f}, and "
            f"{100 * a.neighbours:.0f} % of the ten nearest neighbours are the same",
        )


@app.command(group=IMAGES)
def search(
    vectors: Path,
    images: Annotated[list[str] | None, Parameter(negative=())] = None,
    /,
    *,
    top: Count = 20,
    duplicates: Switch = False,
    threshold: Number = 0.97,
    encoder: Path | None = None,
    html: Path | None = None,
    json: Json = False,
) -> int:
    """Find the images most similar to yours in a file of vectors, or list its near-duplicates and outliers.

    Example: ocssl search vectors.parquet cat.jpg --top 10 --html cats.html

    Parameters
    ----------
    vectors
        The file that ocssl embed wrote.
    images
        The query images.
    top
        Results for each image.
    duplicates
        Show groups of near-duplicates, and the images that are least like all others.
    threshold
        The cosine similarity from which two images count as near-duplicates.
    encoder
        The run or export that made the vectors, if it has been moved.
    html
        Also write a page of pictures, which opens offline.
    """
    from ocssl._core.table import Row, Table
    from ocssl.embed.index import Index

    if duplicates == bool(images):
        wanted = "images to search for, or --duplicates" if not images else "either images or --duplicates, not both"
        raise SettingError(f"ocssl search takes {wanted}.")
    index = Index.load(vectors, encoder)
    found = _duplicates(index, threshold, top) if duplicates else _nearest(index, list(images or []), top)
    if html is not None:
        from ocssl.embed.search_page import write_page

        what = "near-duplicates and outliers" if duplicates else "search"
        write_page(html, f"{what} in {vectors.name}: {len(index):,} images", found)
    if json:
        rows = [[{"path": match.path, "similarity": match.similarity} for match in part.found] for part in found]
        return print_json({"duplicates": rows[:-1], "outliers": rows[-1]} if duplicates else rows)
    screen = console()
    for part in found:
        rows_shown = [Row((printable(match.path), f"{match.similarity:.3f}")) for match in part.found]
        Table(("path", "similarity"), rows_shown, title=printable(part.title)).show(screen)
    if html is not None:
        screen.print(f"page: {html}", soft_wrap=True)
    return 0


def _nearest(index: Index, images: list[str], top: int) -> list[Section]:
    from ocssl.embed.search_page import Section

    return [
        Section(image, image, matches) for image, matches in zip(images, index.search(images, top=top), strict=True)
    ]


def _duplicates(index: Index, threshold: float, top: int) -> list[Section]:
    from ocssl.embed.search_page import Section

    groups = index.duplicates(threshold)
    found = [Section(f"{len(group):,} near-duplicates", None, group) for group in groups]
    return [*found, Section("outliers: the images least like their ten nearest", None, index.outliers(top))]


@app.command(group=IMAGES)
def export(
    run: Encoder,
    /,
    *,
    format: Literal["safetensors", "onnx", "timm", "hf"],
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    license: str = "",
) -> int:
    """Export the encoder of a run as safetensors, ONNX, or a model of timm or transformers, with a model card.

    safetensors is for ocssl.load_encoder. onnx takes uint8 images, with the normalisation inside, and is verified
    with ONNX Runtime. timm and hf are folders for timm.create_model and transformers.AutoModel, where those libraries
    have the architecture.

    Example: ocssl export runs/solar-photos-seed0 --format onnx -o encoder.onnx

    Parameters
    ----------
    format
        safetensors, onnx, timm or hf (transformers).
    output
        A folder; or, for onnx, a file that ends in .onnx.
    license
        The licence of the weights, for the model card.
    """
    from ocssl.embed.export import export as write
    from ocssl.embed.image_encoder import load_encoder

    encoder = load_encoder(run)
    files = write(encoder, format, output, license)
    names = ", ".join(path.name for path in files)
    console().print(f"{output}: {names}; encoder {encoder.fingerprint}", soft_wrap=True)
    return 0
