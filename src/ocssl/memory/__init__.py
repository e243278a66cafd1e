"""Replay memory: a store of slots, a rule for what is kept, a rule for what is drawn."""

from ocssl.memory.context import Context
from ocssl.memory.draw import DRAWS, Draw
from ocssl.memory.keep import KEEPS, Keep
from ocssl.memory.memory import Memory, Replay
from ocssl.memory.store import Store

__all__ = ["DRAWS", "KEEPS", "Context", "Draw", "Keep", "Memory", "Replay", "Store"]
