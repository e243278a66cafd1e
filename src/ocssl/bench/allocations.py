"""Large tensors that a piece of code makes: counted operation by operation, as torch runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Made(TorchDispatchMode):
    """Counts storages of at least so many elements that operations inside it bring forth: `with Made(1000) as made`.

    A view, an operation in place and one that writes to `out` make none. What an operation needs for itself while it
    runs is not seen.
    """

    def __init__(self, elements: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = elements
        self.names: list[str] = []  # of the operations, one for each storage

    def __len__(self) -> int:
        return len(self.names)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        known = {_storage(tensor) for tensor in _tensors([*args, *(kwargs or {}).values()])}
        for tensor in _tensors(out):
            if _storage(tensor) not in known:
                known.add(_storage(tensor))
                if tensor.untyped_storage().nbytes() >= self.elements * tensor.element_size():
                    self.names.append(str(func))
        return out


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: Any) -> Iterator[Tensor]:
    """Tensors among arguments or results, also inside lists."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
