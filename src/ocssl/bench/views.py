"""Two views of a batch, beside making them one image at a time.

The peer makes them the way torchvision's transforms do: every operation takes an image of bytes and gives one back,
computing in float32 in between.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ocssl.bench.steps import ROWS
from ocssl.bench.timing import Bar, Effort, Row, interleaved, ratio, spread
from ocssl.cost.layers import noise
from ocssl.settings import ViewSettings
from ocssl.views import Views

FASTER = 20  # times, at 32 px


def views_rows(effort: Effort) -> Iterator[Row]:
    yield from compared(32, effort.rounds(30, 8), Bar(FASTER, at_least=True))
    if not effort.quick:
        yield from compared(16, 15)
        yield from compared(96, 8)
        yield from compared(224, 3)


def compared(size: int, rounds: int, bar: Bar | None = None, batch: int = ROWS) -> Iterator[Row]:
    """Two views of a batch of images of the views' own size; drawing random numbers counts on both sides."""
    settings, generator = ViewSettings(), torch.Generator().manual_seed(0)
    views, images = Views(settings, size), noise(batch, size, generator)
    times = interleaved(
        {
            "batched": lambda: views(images, generator),
            "single": lambda: one_at_a_time(images, settings, size, generator, views=2),
        },
        rounds,
    )
    shape = f"two views of {batch} at {size} px"
    yield Row("views", f"{shape}, faster than one at a time", ratio(times, "single", "batched"), "x", bar, faster=True)
    for name, seconds in times.items():
        yield Row("views", f"{shape}, {name}", spread(seconds, 1e3), "ms")


# ---- one image at a time --------------------------------------------------------------------------------------------


def one_at_a_time(images: Tensor, settings: ViewSettings, size: int, generator: torch.Generator, views: int) -> Tensor:
    """Views of every image: uint8 [B, 3, H, W] -> float32 [views, B, 3, size, size]; numbers are drawn when needed."""
    made = [[view(image, drawn(image, settings, generator), settings, size) for image in images] for _ in range(views)]
    return torch.stack([torch.stack(batch) for batch in made])


@dataclass(frozen=True)
class Drawn:
    """Everything random about one view."""

    box: tuple[int, int, int, int]  # left, top, width, height
    flip: bool
    factors: tuple[float, float, float, float] | None  # brightness, contrast, saturation, hue turn; None: no jitter
    order: list[int]
    gray: bool


def drawn(image: Tensor, settings: ViewSettings, generator: torch.Generator) -> Drawn:
    def uniform(low: float = 0.0, high: float = 1.0) -> float:
        return float(torch.empty(1).uniform_(low, high, generator=generator))

    def around(strength: float) -> float:
        return uniform(1 - strength, 1 + strength)

    s = settings
    box, flip = crop(image.shape[-1], image.shape[-2], s, uniform, generator), uniform() < s.flip
    order, factors = torch.randperm(4, generator=generator).tolist(), None
    if uniform() < s.jitter:
        factors = (around(s.brightness), around(s.contrast), around(s.saturation), uniform(-s.hue, s.hue))
    return Drawn(box, flip, factors, order, uniform() < s.gray)


def crop(
    width: int, height: int, settings: ViewSettings, uniform: Callable[..., float], generator: torch.Generator
) -> tuple[int, int, int, int]:
    """The first of ten random boxes that fits, else the whole image, which is square here."""
    low, high = (math.log(ratio) for ratio in settings.crop_ratio)
    for _ in range(10):
        area = width * height * uniform(*settings.crop_scale)
        ratio = math.exp(uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(torch.randint(0, width - w + 1, (1,), generator=generator))
            top = int(torch.randint(0, height - h + 1, (1,), generator=generator))
            return left, top, w, h
    return 0, 0, width, height


def view(image: Tensor, drawn: Drawn, settings: ViewSettings, size: int) -> Tensor:
    """One view: uint8 [3, H, W] -> float32 [3, size, size]."""
    left, top, width, height = drawn.box
    cut = image[:, top : top + height, left : left + width]
    resized = F.interpolate(cut[None].float(), (size, size), mode="bilinear", align_corners=False, antialias=True)[0]
    out = resized.round().to(torch.uint8)
    if drawn.flip:
        out = out.flip(-1)
    if drawn.factors:
        for operation in drawn.order:
            out = OPERATIONS[operation](out, drawn.factors[operation])
    if drawn.gray:
        out = grey(out).expand(3, -1, -1)
    mean, std = torch.tensor(settings.mean)[:, None, None], torch.tensor(settings.std)[:, None, None]
    return (out.float() / 255 - mean) / std


def grey(image: Tensor) -> Tensor:
    """Luminance: uint8 [3, H, W] -> [1, H, W]."""
    r, g, b = image.unbind(0)
    return (0.299 * r + 0.587 * g + 0.114 * b).to(image.dtype)[None]


def blend(image: Tensor, other: Tensor, share: float) -> Tensor:
    return (share * image + (1 - share) * other).clamp(0, 255).to(image.dtype)


def hue(image: Tensor, turn: float) -> Tensor:
    """Through hue, saturation and value, and back."""
    colours = image.float() / 255
    value, _ = colours.max(0)
    chroma = value - colours.min(0)[0]
    r, g, b = colours
    safe = torch.where(chroma == 0, 1.0, chroma)
    angle = torch.where(value == r, (g - b) / safe, torch.where(value == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    angle = (angle / 6 + turn) % 1.0
    sectors = (torch.tensor([5.0, 3.0, 1.0])[:, None, None] + 6 * angle) % 6
    turned = value - chroma * torch.minimum(sectors, 4 - sectors).clamp(0, 1)
    return (turned * 255).round().to(image.dtype)


OPERATIONS: tuple[Callable[[Tensor, float], Tensor], ...] = (
    lambda image, factor: blend(image, torch.zeros_like(image), factor),  # brightness
    lambda image, factor: blend(image, grey(image).float().mean((-3, -2, -1), keepdim=True), factor),  # contrast
    lambda image, factor: blend(image, grey(image), factor),  # saturation
    hue,
)
