"""Online continual self-supervised learning: an encoder that learns from a changing stream seen once.

The public API is `Learner`, `load_encoder` and the modules below: what they list in `__all__`, their registries and
base classes. All other modules, and those with an underscore, serve the command line and may change.
"""

from typing import TYPE_CHECKING

from ocssl._core.lazy import lazy

if TYPE_CHECKING:
    from ocssl import checks, data, encoders, errors, evaluate, memory, objectives, recipes, settings, terms, views
    from ocssl.embed.encoder import load_encoder
    from ocssl.learner import Learner

__version__ = "0.1.0.dev0"
__all__ = [
    "Learner",
    "__version__",
    "checks",
    "data",
    "encoders",
    "errors",
    "evaluate",
    "load_encoder",
    "memory",
    "objectives",
    "recipes",
    "settings",
    "terms",
    "views",
]

# Imported when first used: `import ocssl` does not import torch.
__getattr__, __dir__ = lazy(__name__, {"Learner": "ocssl.learner", "load_encoder": "ocssl.embed.encoder"}, __all__)
