"""Draws the images of the embedded benchmark `synthetic`: a textured shape in front of clutter.

It exists so that methods can be compared with no download. An image is a pure function of (label, key, size, seed).
Two things keep its bits the same in any batch: every random number is a hash of (seed, key, number of the draw), and
pixels are computed only with operations that IEEE 754 rounds exactly (no sin, exp or matrix product, whose vectorised
and scalar versions differ in the last bit).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

Plane = npt.NDArray[np.float32]  # [n, S, S] one value per pixel, or [n, 1, 1] one value per image
Hash = npt.NDArray[np.uint64]

_GAMMA = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_ANGLES = 4096
_COSINE = np.cos(np.arange(_ANGLES) * (2 * np.pi / _ANGLES)).astype(np.float32)
_PIXEL_NOISE = 1 << 20  # numbers from here on belong to pixels, those below to the image's parameters
_MOSAIC_CELL = 1 << 40
_PIXELS_AT_ONCE = 1 << 16  # a plane of 256 KB stays in the cache; also what bounds the memory
_CLUTTER = 4


def _mix(z: Hash) -> Hash:
    """The output function of splitmix64: a bijection of 64 bits that leaves no visible pattern of its counter."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _number(state: Hash, index: Hash | int) -> Hash:
    """The index-th number of an image's own splitmix64 sequence."""
    return _mix(state + np.asarray(index, np.uint64) * np.uint64(_GAMMA))


def _unit(bits: Hash) -> Plane:
    """Hashes to float32 in [0, 1): the top 24 bits, which float32 holds exactly."""
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


class _Draws:
    """The random parameters of a chunk of images, one after the other: the i-th call hashes (seed, key, i)."""

    def __init__(self, state: Hash) -> None:
        self.state = state.reshape(-1, 1, 1)
        self.count = 0

    def __call__(self, low: float = 0.0, high: float = 1.0) -> Plane:
        self.count += 1
        return low + (high - low) * _unit(_number(self.state, self.count))

    def choice(self, options: int) -> npt.NDArray[np.int64]:
        return (self() * options).astype(np.int64)

    def direction(self, turns: float = 1.0) -> tuple[Plane, Plane]:
        """Cosine and sine of an angle within +- turns / 2, from a table: libm would not give the same bits everywhere."""
        step = np.floor(self(-turns / 2, turns / 2) * _ANGLES).astype(np.int64)
        return _COSINE[step % _ANGLES], _COSINE[(step - _ANGLES // 4) % _ANGLES]


def _radius(x: Plane, y: Plane) -> Plane:
    return np.sqrt(x * x + y * y)


def _box(x: Plane, y: Plane, cx: float, cy: float, half_width: float, half_height: float) -> Plane:
    return np.maximum(np.abs(x - cx) - half_width, np.abs(y - cy) - half_height)


def _disc(x: Plane, y: Plane) -> Plane:
    return _radius(x, y) - 0.85


def _cross(x: Plane, y: Plane) -> Plane:
    return np.minimum(_box(x, y, 0, 0, 0.3, 0.95), _box(x, y, 0, 0, 0.95, 0.3))


def _triangle(x: Plane, y: Plane) -> Plane:
    return np.maximum(0.894 * np.abs(x) - 0.447 * (y + 1.0), y - 0.8)


def _crescent(x: Plane, y: Plane) -> Plane:
    return np.maximum(_radius(x, y) - 0.95, 0.75 - _radius(x - 0.5, y))


def _square(x: Plane, y: Plane) -> Plane:
    return _box(x, y, 0, 0, 0.75, 0.75)


def _ring(x: Plane, y: Plane) -> Plane:
    return np.abs(_radius(x, y) - 0.67) - 0.26


def _arrow(x: Plane, y: Plane) -> Plane:
    head = np.maximum(0.707 * (np.abs(x) - (y + 0.95)), y)
    return np.minimum(head, _box(x, y, 0, 0.4, 0.3, 0.55))


def _hourglass(x: Plane, y: Plane) -> Plane:
    return np.maximum(0.707 * (np.abs(x) - np.abs(y) - 0.1), np.abs(y) - 0.85)


def _heart(x: Plane, y: Plane) -> Plane:
    lobes = _radius(np.abs(x) - 0.45, y + 0.35) - 0.55
    return np.minimum(lobes, np.maximum(0.72 * (np.abs(x) + y - 0.9), -y - 0.3))


def _corner(x: Plane, y: Plane) -> Plane:
    return np.minimum(_box(x, y, -0.5, 0, 0.3, 0.9), _box(x, y, 0, 0.6, 0.8, 0.3))


def _bars(x: Plane, y: Plane) -> Plane:
    return _box(np.abs(x), y, 0.58, 0, 0.27, 0.85)


def _star(x: Plane, y: Plane) -> Plane:
    """Five points: the plane is folded on two mirrors until one edge is left."""
    x = np.abs(x)
    for mx, my in ((0.809, 0.588), (-0.809, 0.588)):
        across = 2 * np.maximum(mx * x + my * y, 0)
        x, y = x - across * mx, y - across * my
    return 0.923 * np.abs(x) - 0.384 * (y + 1.1)


def _wave(z: Plane) -> Plane:
    """A triangle wave of period 1 between -1 and 1."""
    return 4 * np.abs(z - np.floor(z) - 0.5) - 1


def _sharp(z: Plane) -> Plane:
    """A soft step at 0: steep enough to be seen, soft enough not to alias at 16 px."""
    return np.clip(0.5 + 1.5 * z, 0, 1)


def _plain(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    return np.zeros_like(x)


def _stripes(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    return _sharp(_wave(1.3 * x))


def _rim(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    return _sharp(4 * (d + 0.22))


def _checker(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    return _sharp(2 * _wave(0.75 * x + 0.25) * _wave(0.75 * y + 0.25))


def _gradient(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    return np.clip(0.5 + 0.7 * y, 0, 1)


def _mosaic(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    cell = np.floor(3 * x + 64) * 128 + np.floor(3 * y + 64)
    return _unit(_number(state, cell.astype(np.uint64) + np.uint64(_MOSAIC_CELL)))


def _dots(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    return _sharp(_wave(1.25 * x) + _wave(1.25 * y) - 0.3)


def _rings(x: Plane, y: Plane, d: Plane, state: Hash) -> Plane:
    return _sharp(_wave(1.3 * _radius(x, y)))


_SHAPES: tuple[Callable[[Plane, Plane], Plane], ...] = (
    *(_disc, _cross, _triangle, _crescent),
    *(_square, _ring, _arrow, _hourglass),
    *(_heart, _corner, _bars, _star),
)
_TEXTURES: tuple[Callable[[Plane, Plane, Plane, Hash], Plane], ...] = (
    *(_stripes, _plain, _checker, _rim),
    *(_mosaic, _gradient, _dots, _rings),
)
_FAMILY = 4  # shapes that follow each other under one texture
_FAMILIES = len(_SHAPES) // _FAMILY
_ORDERS = np.array([(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)], np.float32)

CLASSES: int = len(_SHAPES) * len(_TEXTURES)


def _shape_and_texture(labels: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Each block of four labels has one texture and one family of shapes, and both change with the next block.

    Texture is what an encoder learns first and what crops keep, so a stream in which it changes really drifts; were
    it the fastest, each experience would hold every texture and the low layers would never be surprised. Neighbours
    in a block differ only in shape, the harder half.
    """
    block, member = np.divmod(labels, _FAMILY)
    cycle, texture = np.divmod(block, len(_TEXTURES))
    return (texture + cycle) % _FAMILIES * _FAMILY + member, texture


def _colours(draw: _Draws) -> list[list[Plane]]:
    """Three colours as [background, shape, second of the texture][r, g, b], at least 0.2 apart in grey.

    The grey gap keeps the shape visible after greyscale. Which of the three is dark is random, so that neither mean
    colour nor polarity says anything of the class, for which this function is not given the label.
    """
    order = _ORDERS[draw.choice(len(_ORDERS))]  # [n, 1, 1, 3]
    gap = draw(*GAP)
    darkest = draw(0.1, 0.25)
    colours = []
    for i in range(3):
        tone, chroma = darkest + gap * order[..., i], draw(0.0, CHROMA)
        c, s = draw.direction()
        colours.append(
            [tone + chroma * c, tone + chroma * (0.866 * s - 0.5 * c), tone - chroma * (0.866 * s + 0.5 * c)]
        )
    return colours


def _over(canvas: list[Plane], colour: list[Plane], cover: Plane) -> list[Plane]:
    return [below + cover * (above - below) for below, above in zip(canvas, colour, strict=True)]


def _scene(draw: _Draws, size: int, u: Plane, v: Plane, colours: list[list[Plane]]) -> list[Plane]:
    """The background: a gradient, faint waves, and a few discs and sticks as distractors."""
    background = colours[0]
    c, s = draw.direction()
    along = c * u + s * v
    slope, ripple = draw(0.0, BG_SLOPE), draw(0.0, BG_RIPPLE)
    pattern = slope * along + ripple * _wave(draw(0.5, 1.5) * (c * v - s * u) + draw())
    canvas = [channel + pattern for channel in background]
    for _ in range(_CLUTTER):
        c, s = draw.direction()
        x, y = u - draw(-1.0, 1.0), v - draw(-1.0, 1.0)
        length = draw(-0.5, 0.5)  # a disc if negative
        along = np.maximum(np.abs(c * x + s * y) - np.maximum(length, 0), 0)
        across = c * y - s * x
        d = _radius(along, across) - draw(0.06, CL_MAX)
        tone = draw(-CL_TONE, CL_TONE)
        c, s = draw.direction()
        tint = draw(0.0, 0.2)
        colour = [background[0] + tone + tint * c, background[1] + tone + tint * s, background[2] + tone - tint * c]
        canvas = _over(canvas, colour, np.clip(0.5 - d * (size / 2), 0, 1))
    return canvas


def _draw(
    shape: npt.NDArray[np.int64], texture: npt.NDArray[np.int64], state: Hash, size: int
) -> npt.NDArray[np.uint8]:
    draw = _Draws(state)
    centres = (np.arange(size, dtype=np.float32) * 2 + 1) / size - 1
    u, v = centres[None, None, :], centres[None, :, None]
    colours = _colours(draw)

    c, s = draw.direction(TURN)
    scale, shear = draw(*SCALE), draw(-0.2, 0.2)
    depth = 1 + draw(-0.15, 0.15) * u + draw(-0.15, 0.15) * v
    right, down = (u - draw(-SHIFT, SHIFT)) / depth, (v - draw(-SHIFT, SHIFT)) / depth
    x = (c * right + s * down) / scale
    y = (c * down - s * right) / scale + shear * x
    d, mix = np.empty_like(x), np.empty_like(x)
    for number in np.unique(shape):
        rows = np.flatnonzero(shape == number)
        d[rows] = _SHAPES[number](x[rows], y[rows])
    dx, dy = x + draw(-0.4, 0.4), y + draw(-0.4, 0.4)
    for number in np.unique(texture):
        rows = np.flatnonzero(texture == number)
        mix[rows] = _TEXTURES[number](dx[rows], dy[rows], d[rows], draw.state[rows])

    surface = _over([np.broadcast_to(channel, x.shape) for channel in colours[1]], colours[2], mix)
    edge = np.clip(0.5 - d * scale * (size / 2), 0, 1)
    canvas = _over(_scene(draw, size, u, v, colours), surface, edge)

    c, s = draw.direction()
    light = draw(*BRIGHT) + draw(0.0, LIGHT) * (c * u + s * v)
    pixels = np.arange(_PIXEL_NOISE, _PIXEL_NOISE + size * size, dtype=np.uint64).reshape(1, size, size)
    bits = _number(draw.state, pixels)
    strength = draw(0.0, NOISE)
    image = np.empty((len(shape), 3, size, size), np.uint8)
    for channel, plane in enumerate(canvas):
        noise = _unit(bits << np.uint64(20 * channel)) - 0.5
        image[:, channel] = np.clip(255 * (plane * light + strength * noise) + 0.5, 0, 255)
    return image


def render(
    labels: torch.Tensor | npt.NDArray[np.integer], keys: torch.Tensor | npt.NDArray[np.integer], size: int, seed: int
) -> torch.Tensor:
    """Draws the images with these labels and numbers: uint8 [n, 3, size, size]."""
    label, key = np.asarray(labels, np.int64), np.asarray(keys, np.int64)
    shape, texture = _shape_and_texture(label)
    origin = _mix(np.array([seed & _MASK], np.uint64) + np.uint64(_GAMMA))
    state = _mix(_mix(key.astype(np.uint64)) ^ origin)
    images = np.empty((len(label), 3, size, size), np.uint8)
    order = np.argsort(label, kind="stable")  # like with like: a chunk then holds few shapes and textures
    step = max(1, _PIXELS_AT_ONCE // size**2)
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        images[rows] = _draw(shape[rows], texture[rows], state[rows], size)
    return torch.from_numpy(images)


GAP = (0.22, 0.33)
TURN, SCALE, SHIFT = 0.2, (0.5, 0.85), 0.25
CHROMA, BG_SLOPE, BG_RIPPLE, CL_MAX, CL_TONE = 0.2, 0.15, 0.08, 0.2, 0.3
BRIGHT, LIGHT, NOISE = (0.8, 1.2), 0.3, 0.15
