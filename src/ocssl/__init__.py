"""Online continual self-supervised learning: an encoder that learns from a changing stream seen once.

The public API is `Learner`, `images`, `load_encoder`, `Index` and the modules below: what they list in `__all__`, their
registries and base classes. All other modules, and those with an underscore, serve the command line and may change.
"""

from typing import TYPE_CHECKING

from ocssl._core.lazy_import import lazy

if TYPE_CHECKING:
    from ocssl import checks, data, encoders, errors, evaluate, memory, objectives, recipes, settings, terms, views
    from ocssl._core.version import __version__
    from ocssl.data.images import images
    from ocssl.embed.image_encoder import load_encoder
    from ocssl.embed.index import Index
    from ocssl.learner import Learner

__all__ = [
    "Index",
    "Learner",
    "__version__",
    "checks",
    "data",
    "encoders",
    "errors",
    "evaluate",
    "images",
    "load_encoder",
    "memory",
    "objectives",
    "recipes",
    "settings",
    "terms",
    "views",
]

# Imported when first used: `import ocssl` does not import torch.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Index": "ocssl.embed.index",
        "Learner": "ocssl.learner",
        "__version__": "ocssl._core.version",
        "images": "ocssl.data.images",
        "load_encoder": "ocssl.embed.image_encoder",
    },
    __all__,
)
