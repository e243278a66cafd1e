"""Replay memory: a store of slots, a rule for what is kept, a rule for what is drawn."""

from ocssl.memory.context import Context
from ocssl.memory.draw import DRAWS, Draw
from ocssl.memory.gss import Gss
from ocssl.memory.keep import KEEPS, Keep
from ocssl.memory.memory import Memory, Replay
from ocssl.memory.minred import MinRed
from ocssl.memory.mir import Mir
from ocssl.memory.psa import Psa
from ocssl.memory.store import Store

__all__ = ["DRAWS", "KEEPS", "Context", "Draw", "Gss", "Keep", "Memory", "MinRed", "Mir", "Psa", "Replay", "Store"]
