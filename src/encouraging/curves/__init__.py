"""What is taught, at which confidence: every loss of the paper as a curve of the gap.

>>> from encouraging import curves
>>> curves.by_name("conservative", log_end=0.5)
conservative(log_end=0.5)
"""

from .bonus import Aggressive as aggressive
from .bonus import Conservative as conservative
from .bonus import CrossEntropy as cross_entropy
from .bonus import Normal as normal
from .bonus import Poly as poly
from .bonus import Power as power
from .bonus import encouraging
from .catalogue import by_name, names
from .curve import Curve
from .curve import Custom as custom
from .curve import FromProbability as from_probability
from .focal import Focal as focal
from .focal import HaltedFocal as halted_focal
from .square import Square as square

__all__ = [
    "Curve", "aggressive", "by_name", "conservative", "cross_entropy", "custom", "encouraging", "focal",
    "from_probability", "halted_focal", "names", "normal", "poly", "power", "square",
]
