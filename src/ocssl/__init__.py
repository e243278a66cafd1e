"""Online continual self-supervised learning: an encoder that learns from a changing stream seen once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"
__all__ = ["Learner", "__version__"]

if TYPE_CHECKING:
    from ocssl.learner import Learner


def __getattr__(name: str) -> Any:
    if name == "Learner":  # torch is imported when it is needed, not by `import ocssl`
        from ocssl.learner import Learner

        return Learner
    raise AttributeError(f"module 'ocssl' has no attribute {name!r}")
