"""Replay memory: a store of slots, a rule for what is kept, a rule for what is drawn."""

from ocssl.memory.climb import Climb
from ocssl.memory.draw import DRAWS, Draw
from ocssl.memory.gss import Gss
from ocssl.memory.keep import KEEPS, Keep
from ocssl.memory.memory import Memory, Replay
from ocssl.memory.minred import MinRed
from ocssl.memory.psa import Psa
from ocssl.memory.store import Context, Store
from ocssl.memory.storyboard import Storyboard

__all__ = [
    "DRAWS",
    "KEEPS",
    "Climb",
    "Context",
    "Draw",
    "Gss",
    "Keep",
    "Memory",
    "MinRed",
    "Psa",
    "Replay",
    "Store",
    "Storyboard",
]
