"""The former home of the bonus curves, for the kernels that import them from here."""

from ._cross_entropy import CrossEntropy
from ._log_bonus import Aggressive, Conservative, Normal, encouraging
from ._log_bonus import clamp_edge as _clamp_edge
from ._log_bonus import log_or_minus_infinity as _log
from ._polynomial import Poly, Power

__all__ = ["Aggressive", "Conservative", "CrossEntropy", "Normal", "Poly", "Power", "_clamp_edge", "_log",
           "encouraging"]
