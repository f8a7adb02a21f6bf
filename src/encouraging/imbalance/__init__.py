"""Long-tailed data: class profiles, weights, samplers and shifts of the logits."""

from .reweight import effective_weights

__all__ = ["effective_weights"]
