"""What is taught, at which confidence: every loss of the paper as a curve of the gap.

>>> from encouraging import curves
>>> curves.by_name("conservative", log_end=0.5)
conservative(log_end=0.5)
"""

from ._bonus import Aggressive as aggressive
from ._bonus import Conservative as conservative
from ._bonus import CrossEntropy as cross_entropy
from ._bonus import Normal as normal
from ._bonus import Poly as poly
from ._bonus import Power as power
from ._bonus import encouraging
from ._catalogue import by_name, names
from ._curve import Curve
from ._curve import Custom as custom
from ._curve import FromProbability as from_probability
from ._focal import Focal as focal
from ._focal import HaltedFocal as halted_focal
from ._square import Square as square

__all__ = [
    "Curve", "aggressive", "by_name", "conservative", "cross_entropy", "custom", "encouraging", "focal",
    "from_probability", "halted_focal", "names", "normal", "poly", "power", "square",
]
