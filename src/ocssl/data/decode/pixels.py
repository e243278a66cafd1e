"""Images that callers hand in one by one, as PIL images or paths: the same pixels as a run would read."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from ocssl._files.untrusted import open_file, reason
from ocssl.data.decode.decoder import BadImage, Fit, Images, decode, from_pil
from ocssl.data.decode.files import MOST_BYTES
from ocssl.errors import DataError


def pixels_of(images: Sequence[Any], size: int, fit: Fit) -> Images:
    """uint8 [n, 3, size, size] of PIL images and paths; a DataError names the first that cannot be used."""
    found = np.empty((len(images), 3, size, size), np.uint8)
    for row, image in enumerate(images):
        try:
            found[row] = _pixels(image, size, fit)
        except BadImage as error:
            name = image if isinstance(image, str | os.PathLike) else f"number {row}"
            raise DataError(f"cannot use the image {name}: {error}.") from None
    return found


def _pixels(image: Any, size: int, fit: Fit) -> Images:
    if isinstance(image, Image.Image):
        return from_pil(image, size, fit)
    if not isinstance(image, str | os.PathLike):
        raise DataError(f"wanted PIL images or paths, got a list with {type(image).__name__}.")
    try:
        with open_file(os.fsencode(image), MOST_BYTES) as file:
            data = file.read()
    except OSError as error:
        raise DataError(f"cannot read the image {os.fspath(image)}: {reason(error).lower()}.") from None
    return decode(data, size, fit)
