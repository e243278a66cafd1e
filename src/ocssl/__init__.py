"""Online continual self-supervised learning: an encoder that learns from a changing stream seen once."""

from typing import TYPE_CHECKING

from ocssl._core.lazy import lazy

if TYPE_CHECKING:
    from ocssl.learner import Learner

__version__ = "0.1.0.dev0"
__all__ = ["Learner", "__version__"]

__getattr__, __dir__ = lazy(__name__, {"Learner": "ocssl.learner"})  # torch is imported when it is needed
