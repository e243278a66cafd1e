"""Batch norm over the rows of several processes, on any device: torch's own works on GPUs only."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Sum = Callable[[Tensor], Tensor]  # of a tensor over all processes


class _Normalise(torch.autograd.Function):
    """Batch norm by the mean and variance of all processes' rows, which gradients pass through.

    A process without rows takes part in the sums.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, total: Sum
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        n = x.numel() // x.shape[1]
        sums = total(_sums(x, n))  # [2 C + 1]: of values, of their squares, and how many
        count, (first, second) = sums[-1], sums[:-1].view(2, -1)
        mean = first / count
        variance = (second / count - mean.square()).clamp_min(0)
        mean, variance = (v.to(torch.float32 if x.dtype.itemsize < 4 else x.dtype) for v in (mean, variance))
        ctx.save_for_backward(x, weight, mean, variance, count)
        ctx.eps, ctx.total = eps, total
        out = nn.functional.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps) if n else torch.empty_like(x)
        ctx.mark_non_differentiable(mean, variance, count)
        return out, mean, variance, count

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, count = ctx.saved_tensors
        slope = slopes[0]
        if x.numel():  # with mean and variance as constants; `along` is the sum of slope x normalised value
            by_x, along, plain = torch.ops.aten.native_batch_norm_backward(
                slope, x, weight, mean, variance, None, None, False, ctx.eps, [True, True, True]
            )
        else:
            by_x, along, plain = slope, torch.zeros_like(mean), torch.zeros_like(mean)
        all_along, all_plain = ctx.total(torch.stack([along, plain]).double()) / count
        scale = (variance.double() + ctx.eps).rsqrt()
        factor = scale if weight is None else scale * weight
        per_x = -factor * scale * all_along  # through the variance and the mean: a straight line in x, by channel
        constant = -factor * all_plain - per_x * mean
        shape = (1, -1, *[1] * (x.ndim - 2))
        by_x = by_x + torch.addcmul(constant.to(mean).view(shape), x, per_x.to(mean).view(shape))
        affine = (None, None) if weight is None else (along, plain)
        return by_x.to(x.dtype), *affine, None, None


def _sums(x: Tensor, n: int) -> Tensor:
    """Sum, sum of squares of each channel and number of values, in float64: so that means may be large."""
    if not n:
        return torch.zeros(2 * x.shape[1] + 1, dtype=torch.float64, device=x.device)
    values = x.float() if x.dtype.itemsize < 4 else x
    mean, variance = (v.double() for v in torch.ops.aten.batch_norm_update_stats(values, None, None, 0.0))
    return torch.cat([n * mean, n * (variance + mean.square()), mean.new_full((1,), n)])


class SyncedNorm(_BatchNorm):
    """A batch norm layer that takes the statistics of its batch from all processes. It has the other's weights."""

    def __init__(self, norm: _BatchNorm, total: Sum) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self.weight, self.bias, self._total = norm.weight, norm.bias, total
        for name, buffer in norm.named_buffers(recurse=False):
            setattr(self, name, buffer)
        self.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected [B, C, ...], got {list(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        self._check_input_dim(input)
        out: Tensor
        out, mean, variance, count = _Normalise.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps, self._total
        )
        if self.training and self.track_running_stats and self.running_mean is not None:
            self._remember(mean, variance * (count / (count - 1)))
        return out

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(variance.to(self.running_var), share)


def synchronise(network: nn.Module, total: Sum) -> None:
    """Put a synchronised layer in the place of every batch norm layer of a network, weights and names kept."""
    made: dict[nn.Module, SyncedNorm] = {}  # a layer in two places stays one
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm) and not isinstance(child, SyncedNorm):
                if child not in made:
                    made[child] = SyncedNorm(child, total)
                parent._modules[name] = made[child]
