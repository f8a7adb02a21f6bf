"""Long-tailed data: class profiles, weights, balanced sampling, re-weighting, shifts of the logits by frequency."""

from ._profile import exponential_counts, long_tail_indices
from ._reweighted import reweighted_loss
from ._sampling import balanced_indices
from ._shift import adjusted_logits, balanced_logits, log_prior
from ._weights import effective_weights

__all__ = ["adjusted_logits", "balanced_indices", "balanced_logits", "effective_weights", "exponential_counts",
           "log_prior", "long_tail_indices", "reweighted_loss"]
