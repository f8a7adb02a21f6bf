"""Long-tailed data: who is rare, and what to do about it."""

from .reweight import effective_weights

__all__ = ["effective_weights"]
