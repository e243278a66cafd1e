"""Draws the images of the embedded benchmark `synthetic`: a textured shape in front of clutter.

It exists so that methods can be compared with no download. An image is a pure function of (label, key, size, seed).
Two things keep its bits the same in any batch: every random number is a hash of (seed, key, number of the draw), and
pixels are computed only with operations that IEEE 754 rounds exactly (no sin, exp or matrix product, whose vectorised
and scalar versions differ in the last bit). In numpy, because torch would wake its threads for such small arrays.
"""

# mypy: disable-error-code="no-any-return"

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Plane = npt.NDArray[np.floating[Any]]  # float32, [n, S, S] or, one value per image, [n, 1, 1]
Hash = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Integers = Tensor | npt.NDArray[np.integer]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's step
_PIXEL_NOISE = 1 << 20  # numbers from here on belong to pixels, those below to the image's parameters
_MOSAIC_CELL = 1 << 40
_PIXELS_AT_ONCE = 1 << 16  # a plane of 256 KB stays in the cache; also what bounds the memory
_ANGLES = 4096
_COSINE = np.cos(np.arange(_ANGLES) * (2 * np.pi / _ANGLES)).astype(np.float32)

# Difficulty: lengths in half image widths, colours in 0 to 1. Chosen so that a linear probe on a random encoder does
# badly and self-supervision pays within some hundred steps. Light and polarity (which colour is dark) vary widely and
# spoil random features. Views keep rotation, noise and background, which so tell images apart without their class:
# these vary little. A wider pose, a smaller shape or a smaller grey gap slows learning down most.
_GREY_GAP = (0.3, 0.36)  # between background, first and second colour; lower hides the texture
_CHROMA = 0.15
_SCALE = (0.8, 1.1)  # a small shape shows too little texture at 16 px
_SHIFT = 0.15
_TURN = 0.1  # the whole range of rotation, as a part of a full turn
_SLANT = 0.1
_PHASE = 0.4
_BRIGHTNESS = (0.75, 1.25)
_SHADING = 0.3
_NOISE = 0.05
_SLOPE = 0.05
_RIPPLE = 0.03
_CLUTTER = 4
_CLUTTER_RADIUS = (0.06, 0.2)
_CLUTTER_TONE = 0.2


def _mix(z: Hash) -> Hash:
    """The output function of splitmix64: a bijection of 64 bits that leaves no visible pattern of its counter."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _number(state: Hash, index: Hash) -> Hash:
    """The index-th number of each image's own splitmix64 sequence."""
    return _mix(state + index * _GAMMA)


def _unit(bits: Hash) -> Plane:
    """Hashes to float32 in [0, 1): the top 24 bits, which float32 holds exactly."""
    return (bits >> np.uint64(40)).astype(np.float32) * 2.0**-24


class _Draws:
    """The random parameters of a chunk of images, [n, 1, 1] each: the i-th call hashes (seed, key, i)."""

    def __init__(self, state: Hash) -> None:
        self.state = state.reshape(-1, 1, 1)
        self.count = 0

    def __call__(self, low: float = 0.0, high: float = 1.0) -> Plane:
        self.count += 1
        return low + (high - low) * _unit(_number(self.state, np.array([self.count], np.uint64)))

    def direction(self, turns: float = 1.0) -> tuple[Plane, Plane]:
        """Cosine and sine of an angle within -turns / 2 to turns / 2, from a table for the sake of exact bits."""
        step = np.floor(self(-turns / 2, turns / 2) * _ANGLES).astype(np.int64)
        return _COSINE[step % _ANGLES], _COSINE[(step - _ANGLES // 4) % _ANGLES]

    def colour(self, tone: Plane, chroma: float) -> list[Plane]:
        """Red, green and blue of this grey, with at most this chroma and any hue."""
        amount = self(0.0, chroma)
        c, s = self.direction()
        return [tone + amount * c, tone + amount * (0.866 * s - 0.5 * c), tone - amount * (0.866 * s + 0.5 * c)]


def _radius(x: Plane, y: Plane) -> Plane:
    return np.sqrt(x * x + y * y)


def _box(x: Plane, y: Plane, cx: float, cy: float, half_width: float, half_height: float) -> Plane:
    return np.maximum(np.abs(x - cx) - half_width, np.abs(y - cy) - half_height)


def _heart(x: Plane, y: Plane) -> Plane:
    lobes = _radius(np.abs(x) - 0.45, y + 0.35) - 0.55
    return np.minimum(lobes, np.maximum(0.72 * (np.abs(x) + y - 0.9), -y - 0.3))


def _star(x: Plane, y: Plane) -> Plane:
    """Five points: the plane is folded on two mirrors until one edge is left."""
    x = np.abs(x)
    for mx in (0.809, -0.809):
        across = 2 * np.maximum(mx * x + 0.588 * y, 0)
        x, y = x - across * mx, y - across * 0.588
    return 0.923 * np.abs(x) - 0.384 * (y + 1.1)


# Signed distance to the outline (negative inside) of a shape about 1 in radius; y points down.
_SHAPES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "disc": lambda x, y: _radius(x, y) - 0.85,
    "cross": lambda x, y: np.minimum(_box(x, y, 0, 0, 0.3, 0.95), _box(x, y, 0, 0, 0.95, 0.3)),
    "triangle": lambda x, y: np.maximum(0.894 * np.abs(x) - 0.447 * (y + 1.0), y - 0.8),
    "crescent": lambda x, y: np.maximum(_radius(x, y) - 0.95, 0.75 - _radius(x - 0.5, y)),
    "square": lambda x, y: _box(x, y, 0, 0, 0.75, 0.75),
    "ring": lambda x, y: np.abs(_radius(x, y) - 0.67) - 0.26,
    "arrow": lambda x, y: np.minimum(np.maximum(0.707 * (np.abs(x) - y - 0.95), y), _box(x, y, 0, 0.4, 0.3, 0.55)),
    "hourglass": lambda x, y: np.maximum(0.707 * (np.abs(x) - np.abs(y) - 0.1), np.abs(y) - 0.85),
    "heart": _heart,
    "corner": lambda x, y: np.minimum(_box(x, y, -0.5, 0, 0.3, 0.9), _box(x, y, 0, 0.6, 0.8, 0.3)),
    "bars": lambda x, y: _box(np.abs(x), y, 0.58, 0, 0.27, 0.85),
    "star": _star,
}


def _wave(z: Plane) -> Plane:
    """A triangle wave of period 1 between -1 and 1."""
    return 4 * np.abs(z - np.floor(z) - 0.5) - 1


def _step(z: Plane) -> Plane:
    """A soft step at 0: steep enough to be seen, soft enough not to alias at 16 px."""
    return np.clip(0.5 + 1.5 * z, 0, 1)


def _mosaic(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    cell = np.floor(3 * x + 64) * 128 + np.floor(3 * y + 64)
    return _unit(_number(state, cell.astype(np.uint64) + np.uint64(_MOSAIC_CELL)))


# How much of the second colour a pixel of the shape takes, 0 to 1. Periods are long, so that they survive 16 px.
_TEXTURES: dict[str, Callable[[Plane, Plane, Plane, Hash], Plane]] = {
    "stripes": lambda x, y, d, state: _step(_wave(1.3 * x)),
    "plain": lambda x, y, d, state: np.zeros_like(x),
    "checker": lambda x, y, d, state: _step(2 * _wave(0.75 * x + 0.25) * _wave(0.75 * y + 0.25)),
    "rim": lambda x, y, d, state: _step(4 * (d + 0.22)),
    "mosaic": _mosaic,
    "gradient": lambda x, y, d, state: np.clip(0.5 + 0.7 * y, 0, 1),
    "dots": lambda x, y, d, state: _step(_wave(1.25 * x) + _wave(1.25 * y) - 0.3),
    "rings": lambda x, y, d, state: _step(_wave(1.3 * _radius(x, y))),
}

CLASSES: int = len(_SHAPES) * len(_TEXTURES)
_FAMILY = 4  # shapes that follow each other under one texture


def _shape_and_texture(labels: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers of a label's shape and texture.

    Each block of four labels has one texture and one family of shapes, and both change with the next block. Texture is
    what an encoder learns first and what crops keep, so a stream in which it changes really drifts; were it the faster
    one, each experience would hold every texture and the low layers would never be surprised. Neighbours in a block
    differ only in shape.
    """
    block, member = labels // _FAMILY, labels % _FAMILY
    texture, cycle = block % len(_TEXTURES), block // len(_TEXTURES)
    return (texture + cycle) % (len(_SHAPES) // _FAMILY) * _FAMILY + member, texture


def class_names() -> list[str]:
    """The names of all labels, as "disc stripes"."""
    shapes, textures = _shape_and_texture(np.arange(CLASSES))
    names, ways = list(_SHAPES), list(_TEXTURES)
    return [f"{names[shape]} {ways[texture]}" for shape, texture in zip(shapes, textures, strict=True)]


def _colours(draw: _Draws) -> list[list[Plane]]:
    """Background, first and second colour of the shape, apart in grey so that the shape survives greyscale.

    Which of the three is darkest is random, and nothing here knows the label: neither mean colour nor polarity says
    anything of the class.
    """
    orders = np.array([(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)], np.float32)
    order = orders[(6 * draw()).astype(np.int64)]  # [n, 1, 1, 3]
    darkest, gap = draw(0.1, 0.25), draw(*_GREY_GAP)
    return [draw.colour(darkest + gap * order[..., i], _CHROMA) for i in range(3)]


def _over(below: list[Plane], above: list[Plane], cover: Plane) -> list[Plane]:
    return [b + cover * (a - b) for b, a in zip(below, above, strict=True)]


def _cover(d: Plane, size: int) -> Plane:
    """How much of a pixel lies inside, from the signed distance of its centre: a smooth step 1.5 pixels wide."""
    t = np.clip(0.5 - d * (size / 3), 0, 1)
    return t * t * (3 - 2 * t)


def _background(draw: _Draws, size: int, u: Plane, v: Plane, colour: list[Plane]) -> list[Plane]:
    """A slope of light, faint waves, and a few discs and sticks as distractors."""
    c, s = draw.direction()
    ripple = draw(0.0, _RIPPLE) * _wave(draw(0.5, 1.5) * (c * v - s * u) + draw())
    pattern = draw(0.0, _SLOPE) * (c * u + s * v) + ripple
    canvas: list[Plane] = [channel + pattern for channel in colour]
    for _ in range(_CLUTTER):
        c, s = draw.direction()
        x, y = u - draw(-1.0, 1.0), v - draw(-1.0, 1.0)
        length = np.maximum(draw(-0.5, 0.5), 0)  # half of them are discs
        beyond = np.maximum(np.abs(c * x + s * y) - length, 0)
        d = _radius(beyond, c * y - s * x) - draw(*_CLUTTER_RADIUS)
        tint = draw.colour(draw(-_CLUTTER_TONE, _CLUTTER_TONE), _CHROMA)
        canvas = _over(canvas, [a + b for a, b in zip(colour, tint, strict=True)], _cover(d, size))
    return canvas


def _object(draw: _Draws, size: int, u: Plane, v: Plane, shape: Numbers, texture: Numbers) -> tuple[Plane, Plane]:
    """Where the posed shape covers the background, and how much of the second colour its pixels take."""
    c, s = draw.direction(_TURN)
    scale, shear = draw(*_SCALE), draw(-_SLANT, _SLANT)
    depth = 1 + draw(-_SLANT, _SLANT) * u + draw(-_SLANT, _SLANT) * v
    right, down = (u - draw(-_SHIFT, _SHIFT)) / depth, (v - draw(-_SHIFT, _SHIFT)) / depth
    x = (c * right + s * down) / scale
    y = (c * down - s * right) / scale + shear * x
    d, second = np.empty_like(x), np.empty_like(x)
    for number, distance in enumerate(_SHAPES.values()):
        rows = np.flatnonzero(shape == number)
        if len(rows):
            d[rows] = distance(x[rows], y[rows])
    x, y = x + draw(-_PHASE, _PHASE), y + draw(-_PHASE, _PHASE)
    for number, mixture in enumerate(_TEXTURES.values()):
        rows = np.flatnonzero(texture == number)
        if len(rows):
            second[rows] = mixture(x[rows], y[rows], d[rows], draw.state[rows])
    return _cover(d * scale, size), second


def _draw(shape: Numbers, texture: Numbers, state: Hash, size: int) -> npt.NDArray[np.uint8]:
    """A chunk of images, painted from back to front."""
    draw = _Draws(state)
    centres = (np.arange(size, dtype=np.float32) * 2 + 1) / size - 1
    u, v = centres[None, None, :], centres[None, :, None]
    behind, first, other = _colours(draw)
    cover, second = _object(draw, size, u, v, shape, texture)
    canvas = _over(_background(draw, size, u, v, behind), _over(first, other, second), cover)

    c, s = draw.direction()
    light = draw(*_BRIGHTNESS) + draw(0.0, _SHADING) * (c * u + s * v)
    strength = draw(0.0, _NOISE)
    pixels = np.arange(_PIXEL_NOISE, _PIXEL_NOISE + size * size, dtype=np.uint64).reshape(1, size, size)
    bits = _number(draw.state, pixels)
    noise = [_unit(bits << np.uint64(21 * channel)) - 0.5 for channel in range(3)]
    lit = [255 * (channel * light + strength * grain) + 0.5 for channel, grain in zip(canvas, noise, strict=True)]
    return np.stack([np.clip(channel, 0, 255).astype(np.uint8) for channel in lit], 1)


def _integers(name: str, values: Integers) -> Numbers:
    tensor = torch.as_tensor(values)
    if tensor.is_floating_point():
        raise ValueError(f"{name} must be integers, but {tensor.dtype} was given.")
    return tensor.to("cpu", torch.int64).numpy()


def render(labels: Integers, keys: Integers, size: int, seed: int) -> Tensor:
    """Draws the images of these classes with these numbers: uint8 [n, 3, size, size].

    Nothing but the shape and its texture depends on the label: images of two classes under one key share pose, colours,
    light and clutter. So give every image its own key.
    """
    label, key = _integers("labels", labels), _integers("keys", keys)
    if label.ndim != 1 or label.shape != key.shape:
        raise ValueError(f"labels of shape {label.shape} and keys of shape {key.shape} must both be [n].")
    wrong = label[(label < 0) | (label >= CLASSES)]
    if len(wrong):
        raise ValueError(f"label {wrong[0]} cannot be drawn: labels go from 0 to {CLASSES - 1}.")
    if size < 8:
        raise ValueError(f"size is {size}, but images must be at least 8 pixels wide.")
    shape, texture = _shape_and_texture(label)
    origin = _mix(np.array([seed % 2**64], np.uint64) + _GAMMA)
    state = _mix(_mix(key.astype(np.uint64)) ^ origin)
    images = np.empty((len(label), 3, size, size), np.uint8)
    order = label.argsort(kind="stable")  # like with like: a chunk then holds few shapes and textures
    step = max(1, _PIXELS_AT_ONCE // size**2)
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        images[rows] = _draw(shape[rows], texture[rows], state[rows], size)
    return torch.from_numpy(images)
