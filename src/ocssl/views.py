"""Views: batched augmentation on the device, from an explicit generator.

A view is a random resized crop, a horizontal flip, colour jitter and greyscale. One image at a time this can cost more
than a training step of a small network; here a batch costs one ``grid_sample`` (crop, resize and flip), one mean and
one ``baddbmm`` (all of the colour and the normalisation), with separate parameters for every sample and view.
Where the settings ask for them, blur and solarization follow, on the rows that get them.

Brightness, contrast, saturation, hue and greyscale are linear maps of a pixel's colour and the mean colour of its view.
A sample's whole chain, in the sample's own order, is therefore one 3 x 6 matrix. That differs from the reference, one
image at a time with torchvision's operations, in two ways. Both are measured in ``tests/test_views.py`` on patches of
photographs, as mean absolute differences of colours in [0, 1]:

- hue turns colours about the grey axis, which keeps r + g + b, instead of the hue of HSV, which keeps the largest
  channel: 0.017 for turns uniform in [-0.1, 0.1], where turning the HSV hue by as much moves colours by 0.021;
- values are clamped to [0, 1] once, at the end, instead of after every operation: 0.0025 with the default settings.

With the default settings both together are 0.013, where the jitter itself moves colours by 0.074.

Resizing is bilinear without antialiasing. A crop of an image of the view's own size only ever enlarges, where
antialiasing has no effect; the learner guarantees that size. Images of any other size work too, but a crop larger than
the view is then sampled with aliasing, which the reference filters out. So is a local crop that covers more pixels
than a local view has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from ocssl._core.transfer import send
from ocssl.errors import DataError
from ocssl.settings import ViewSettings

ATTEMPTS = 10  # boxes tried for a crop before the centre crop is taken, as in torchvision
# uniform numbers of a row: areas, ratios, place, flip, jitter, factors, order, grey
COLUMNS = [ATTEMPTS, ATTEMPTS, 2, 1, 1, 4, 4, 1]
BLOCK = 2**18  # numbers that are worked on at a time
SIGMA = (0.1, 2.0)  # narrowest and widest blur, in pixels
LUMA = torch.tensor([0.299, 0.587, 0.114])


@dataclass(frozen=True)
class Parameters:
    """Everything random about a batch of views, one row each; apart from the pixels, so that a view can be repeated."""

    box: Tensor  # [n, 4] int64: left, top, width, height of the crop in pixels
    flip: Tensor  # [n] bool: mirrored left to right
    factors: Tensor  # [n, 4] float32: brightness, contrast, saturation, hue turn; (1, 1, 1, 0) without jitter
    order: Tensor  # [n, 4] int64: the columns of `factors` in the order of their application
    gray: Tensor  # [n] bool: greyscale, after the jitter
    sigma: Tensor | None = None  # [n] float32: of the Gaussian blur after that, in pixels; 0 for none
    solarize: Tensor | None = None  # [n] bool: the brighter half of the colours inverted, last of all


@dataclass(eq=False)
class Views:
    """Makes views of uint8 batches, each ``image_size`` pixels square, float32, normalised and channels_last."""

    settings: ViewSettings
    image_size: int

    def __call__(self, images: Tensor, generator: torch.Generator, views: int = 2) -> Tensor:
        """Independent views of every image: uint8 [B, 3, H, W] -> float32 [views, B, 3, S, S], channels_last each."""
        _check(images)
        batch, _, height, width = images.shape
        parameters = self.draw(views * batch, generator, (height, width))
        return self.apply(images.repeat(views, 1, 1, 1), parameters).view(views, batch, 3, *[self.image_size] * 2)

    def crops(self, images: Tensor, generator: torch.Generator, views: int = 2) -> tuple[Tensor, ...]:
        """What an objective is called with: the views, then, if `views.local` asks for any, as many local views.

        Local views are small crops of ``views.local_scale``, in their own size: [views.local, B, 3, s, s].
        """
        found = self(images, generator, views)
        return (found, self._local(images, generator, self.settings.local)) if self.settings.local else (found,)

    @cached_property
    def _local(self) -> Views:
        settings = self.settings.model_copy(update={"crop_scale": self.settings.local_scale})
        return Views(settings, self.settings.local_pixels(self.image_size))

    def draw(self, n: int, generator: torch.Generator, size: tuple[int, int] | None = None) -> Parameters:
        """Parameters of n views of images of ``size`` (height, width), by default those of the views.

        The generator lives on the CPU, so that every device gets the same numbers. It is asked for [n, 33] uniform
        numbers, a row's columns in the order of ``COLUMNS``, and a second time if there may be blur or solarization.
        """
        s = self.settings
        uniform = torch.rand(n, sum(COLUMNS), generator=generator)
        area, ratio, place, flip, jitter, strength, rank, gray = torch.split(uniform, COLUMNS, dim=1)
        neutral = torch.tensor([1.0, 1.0, 1.0, 0.0])
        factors = neutral + torch.tensor([s.brightness, s.contrast, s.saturation, s.hue]) * (2 * strength - 1)
        parameters = Parameters(
            box=self._boxes(area, ratio, place, size or (self.image_size, self.image_size)),
            flip=flip[:, 0] < s.flip,
            factors=torch.where(jitter < s.jitter, factors, neutral),
            order=rank.argsort(dim=1),
            gray=gray[:, 0] < s.gray,
        )
        if s.blur == 0 and s.solarize == 0:
            return parameters
        blur, width, solarize = torch.rand(n, 3, generator=generator).unbind(dim=1)
        narrow, wide = SIGMA
        sigma = torch.where(blur < s.blur, narrow + width * (wide - narrow), 0.0)
        return replace(parameters, sigma=sigma, solarize=solarize < s.solarize)

    def apply(self, images: Tensor, parameters: Parameters) -> Tensor:
        """The views that the parameters say, row by row: uint8 [n, 3, H, W] -> float32 [n, 3, S, S], channels_last."""
        _check(images)
        if len(images) != len(parameters.box):
            raise DataError(f"{len(images)} images do not fit {len(parameters.box)} rows of view parameters")
        device, size, n = images.device, self.image_size, len(images)
        positions = send(self._positions(parameters, *images.shape[-2:]), device)
        own, mean = send(_colour(parameters), device).split(3, dim=2)  # [n, 3, 3] each
        scale, shift = self._normalisation(device)  # [3, 1] each
        own = scale * own
        bounds = torch.stack([shift, 255 * scale + shift]).repeat(1, 1, size * size)  # as wide as a view: clamps faster
        out = torch.empty(n, 3, size, size, device=device, memory_format=torch.channels_last)
        for rows in _blocks(n, 3 * size * size, device):
            x, y = positions[rows].unbind(dim=1)  # [b, S] each
            grid = torch.stack([x[:, None, :].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)], dim=3)
            pixels = images[rows].float()
            sampled = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False).flatten(2)
            offset = mean[rows] @ sampled.mean(dim=2, keepdim=True)  # [b, 3, 1]
            colours = torch.baddbmm(scale * offset + shift, own[rows], sampled)
            out[rows] = torch.clamp(colours, *bounds, out=colours).view(-1, 3, size, size)
        if parameters.sigma is not None:
            blurred = parameters.sigma.nonzero()[:, 0]
            at = send(blurred, device)
            out[at] = _blur(out[at], send(parameters.sigma[blurred], device))
        if parameters.solarize is not None:
            black, white = shift[:, :, None], (255 * scale + shift)[:, :, None]
            at = send(parameters.solarize.nonzero()[:, 0], device)
            out[at] = torch.where(out[at] >= (black + white) / 2, black + white - out[at], out[at])
        return out

    def plain(self, images: Tensor) -> Tensor:
        """The images themselves, only normalised: uint8 [B, 3, H, W] -> float32 [B, 3, H, W], channels_last."""
        _check(images)
        scale, shift = self._normalisation(images.device)
        pixels = images.to(torch.float32, memory_format=torch.channels_last)
        return pixels.mul_(scale[:, :, None]).add_(shift[:, :, None])

    def _boxes(self, area: Tensor, ratio: Tensor, place: Tensor, size: tuple[int, int]) -> Tensor:
        """The first of the tried boxes that fits the image, else the centre crop of the nearest ratio: [n, 4]."""
        (height, width), (narrow, wide) = size, self.settings.crop_ratio
        smallest, largest = self.settings.crop_scale
        pixels = height * width * (smallest + area * (largest - smallest))  # [n, ATTEMPTS]
        aspect = torch.exp(math.log(narrow) + ratio * math.log(wide / narrow))
        tried = torch.stack([(pixels * aspect).sqrt(), (pixels / aspect).sqrt()], dim=2).round()  # [n, ATTEMPTS, 2]
        whole = torch.tensor([width, height])
        fits = ((tried >= 1) & (tried <= whole)).all(dim=2)
        first = fits.byte().argmax(dim=1)  # of equal values the first
        extent = tried[torch.arange(len(tried)), first].long()  # [n, 2] width, height
        centre = torch.tensor([min(width, round(height * wide)), min(height, round(width / narrow))])
        found = fits.any(dim=1, keepdim=True)
        extent = torch.where(found, extent, centre)
        corner = torch.where(found, (place * (whole - extent + 1)).long(), (whole - centre) // 2)
        return torch.cat([corner, extent], dim=1)

    def _positions(self, parameters: Parameters, height: int, width: int) -> Tensor:
        """Where a view's columns and rows are read, in grid_sample's coordinates: [n, 2, S].

        Positions have half-pixel centres and stay between the centres of the box's outermost pixels, as if the box had
        been cut out before it was resized.
        """
        centres = ((torch.arange(self.image_size) + 0.5) / self.image_size).expand(len(parameters.box), -1)  # [n, S]
        across = torch.where(parameters.flip[:, None], 1 - centres, centres)
        corner, extent = torch.split(parameters.box[:, :, None].float(), 2, dim=1)  # [n, 2, 1] each
        inside = torch.minimum((torch.stack([across, centres], dim=1) * extent - 0.5).clamp(min=0), extent - 1)
        position: Tensor = (2 * (corner + inside) + 1) / torch.tensor([[width], [height]]) - 1
        return position

    def _normalisation(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Scale and shift that bring 0 ... 255 to zero mean and unit deviation of the data: [3, 1] each."""
        mean, std = send(torch.tensor([self.settings.mean, self.settings.std]), device)[:, :, None]
        return 1 / (255 * std), -mean / std


def _blocks(n: int, numbers: int, device: torch.device) -> Iterator[slice]:
    """Rows of `numbers` numbers, as many at a time as stay in a processor's cache; on other devices all at once."""
    rows = max(1, BLOCK // numbers) if device.type == "cpu" else n
    return (slice(first, first + rows) for first in range(0, n, rows))


def _check(images: Tensor) -> None:
    """Refuses what would give wrong views in silence, above all floats that were scaled before."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise DataError(f"views need uint8 images [n, 3, height, width], not {images.dtype} {list(images.shape)}")


def _blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur, each image with its own sigma [n]; beyond the border the image is mirrored: [n, 3, S, S].

    It may follow the normalisation: weights that add up to 1 leave scale and shift alone.
    """
    n, channels, size, _ = images.shape
    if n == 0:
        return images
    reach = max(1, size // 20)  # a kernel of about a tenth of the image
    distance = torch.arange(-reach, reach + 1, device=images.device)
    kernel = torch.softmax(-0.5 * (distance / sigma[:, None]).square(), dim=1)  # [n, K]
    kernel = kernel.repeat_interleave(channels, dim=0)[:, None, None, :]  # [3 n, 1, 1, K]: a group a channel
    padded = F.pad(images, [reach] * 4, mode="reflect").reshape(1, n * channels, size + 2 * reach, size + 2 * reach)
    blurred = F.conv2d(F.conv2d(padded, kernel, groups=n * channels), kernel.mT, groups=n * channels)
    return blurred.view(n, channels, size, size)


def _operations() -> tuple[Tensor, Tensor, Tensor]:
    """Matrices A, B [4, 6, 6] and C [6, 6]: operation k of strength f is A_k + f B_k; hue is A + cos B + sin C.

    They act on a pixel's colour and the view's mean colour together: carrying the mean along makes contrast linear too.
    """
    same, none, gray = torch.eye(3), torch.zeros(3, 3), LUMA.expand(3, 3)
    axis = torch.full((3, 3), 1 / 3)  # projection on the grey axis
    around = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)  # red to green to blue

    def on_both(colour: Tensor) -> Tensor:
        return torch.kron(torch.eye(2), colour)

    mean_gray = torch.cat([none, gray], dim=1).repeat(2, 1)
    constant = torch.stack([on_both(none), mean_gray, on_both(gray), on_both(axis)])
    slope = on_both(same) - constant
    return constant, slope, on_both(around)


CONSTANT, SLOPE, QUARTER_TURN = _operations()
GRAY = CONSTANT[2]


def _colour(parameters: Parameters) -> Tensor:
    """A sample's jitter and greyscale as one map from (colour, mean colour) to colour: [n, 3, 6]."""
    turn = 2 * math.pi * parameters.factors[:, 3:]
    strength = torch.cat([parameters.factors[:, :3], turn.cos()], dim=1)[:, :, None, None]
    steps = CONSTANT + strength * SLOPE  # [n, 4, 6, 6]
    steps[:, 3] += turn.sin()[:, :, None] * QUARTER_TURN
    steps = steps[torch.arange(len(steps))[:, None], parameters.order]
    pairs = steps[:, 1::2] @ steps[:, 0::2]
    jitter = pairs[:, 1] @ pairs[:, 0]
    return torch.where(parameters.gray[:, None, None], GRAY @ jitter, jitter)[:, :3]
