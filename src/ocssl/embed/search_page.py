"""What a search found as a page of pictures: one HTML file that opens offline and runs no script."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from ocssl._files.atomic import write_out
from ocssl._files.untrusted import open_file
from ocssl.data.decode.decoder import BadImage, decode
from ocssl.data.decode.files import MOST_BYTES
from ocssl.embed.image_files import file_of
from ocssl.embed.index import Match
from ocssl.errors import RunFolderError, printable

SIDE = 160  # pixels of a picture


@dataclass(frozen=True)
class Section:
    """A heading, the image that was searched for if there is one, and what was found."""

    title: str
    query: str | None
    found: Sequence[Match]


def write_page(output: Path, title: str, sections: Sequence[Section]) -> None:
    """Write the page, all or nothing."""
    if output.is_dir():
        raise RunFolderError(f"cannot write the page to {output}: it is a folder; name a file.")
    templates = Environment(loader=PackageLoader("ocssl.embed"), autoescape=True, undefined=StrictUndefined)
    pictures = {match.path for section in sections for match in section.found}
    pictures |= {section.query for section in sections if section.query is not None}
    page = templates.get_template("search.html").render(
        title=printable(title),
        sections=sections,
        picture={path: picture(path) for path in sorted(pictures)},
        name=lambda path: printable(path).rpartition("/")[2],
        printable=printable,
    )
    write_out(output, page.encode("utf-8", "replace"))


def picture(path: str) -> str:
    """A small square of an image as a data URI; empty where there is no image."""
    try:
        with open_file(file_of(path), MOST_BYTES) as file:
            pixels = decode(file.read(), SIDE, "crop")
    except (OSError, BadImage):
        return ""
    packed = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(packed, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(packed.getvalue()).decode()}"
