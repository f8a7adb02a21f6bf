"""Every loss of the paper as a curve: a function of the gap between the label's logit and its rivals'.

>>> from encouraging import curves
>>> curves.by_name("conservative", log_end=0.5)
conservative(log_end=0.5)
"""

from ._catalogue import Entry, Parameter, by_name, catalogue, names
from ._cross_entropy import CrossEntropy as cross_entropy
from ._curve import Curve
from ._curve import Custom as custom
from ._curve import FromProbability as from_probability
from ._fit import check_pull
from ._focal import Focal as focal
from ._focal import HaltedFocal as halted_focal
from ._log_bonus import Aggressive as aggressive
from ._log_bonus import Conservative as conservative
from ._log_bonus import Normal as normal
from ._log_bonus import encouraging
from ._polynomial import Poly as poly
from ._polynomial import Power as power
from ._square import Square as square

__all__ = [
    "Curve", "Entry", "Parameter", "aggressive", "by_name", "catalogue", "check_pull", "conservative", "cross_entropy",
    "custom", "encouraging", "focal", "from_probability", "halted_focal", "names", "normal", "poly", "power", "square",
]
