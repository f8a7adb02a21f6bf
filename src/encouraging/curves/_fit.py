"""Whether a curve's pull is minus the derivative of its value, from the numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import CurveError

if TYPE_CHECKING:
    from ._curve import Curve

Numbers = NDArray[np.float64]

# Pairs of neighbours, away from round numbers such as 0 or 5, where kinks are likely. A pull is wrong where both of a
# pair are: beside a kink one of them may be. Beyond 8, formulas with 1 - p have no exact digits left in float32.
GAPS: Numbers = np.repeat(np.arange(-8, 8, 0.25), 2) + np.tile([0.0731, 0.1031], 64)
# The narrow step is right for curves that bend sharply, the wide one for curves that compute in float32. It is enough
# that a pull agrees with one of them.
STEPS = (2.0**-16, 2.0**-6)
RELATIVE, ABSOLUTE = 1e-2, 1e-3  # the second one in units of the mean slope


def check_pull(curve: Curve) -> None:
    """Refuse a curve whose pull is not minus the derivative of its value.

    The losses use ``pull`` as the gradient. If it is wrong, training minimises something else than it reports.
    ``curves.custom`` is checked when it is made; use this for a class of your own. ``value`` is compared with
    ``pull`` by its differences at gaps from -8 to 8. Kinks, jumps and pieces are allowed, and so are pulls that fall
    and rise again or are negative. Nothing is said about gaps at which either is infinite or NaN.

    Args:
        curve: Any curve whose functions take torch tensors.

    Raises:
        CurveError: Where the two do not fit. It names a gap, and both numbers there. Also where one of them is not
            computed element by element.

    >>> from encouraging import curves
    >>> check_pull(curves.halted_focal(2.0, 0.5))
    >>> check_pull(curves.custom(lambda gap: gap, torch.ones_like, check=False))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    encouraging.errors.CurveError: custom('custom'): its pull is 1 at a gap of -7.927, where minus the derivative ...
    """
    def in_numpy(function: Callable[[Tensor], Tensor]) -> Callable[[Numbers], Numbers]:
        return lambda gap: function(torch.from_numpy(gap)).detach().double().cpu().numpy()

    with torch.no_grad():
        check_fit(repr(curve), in_numpy(curve.value), in_numpy(curve.pull))


def check_fit(name: str, value: Callable[[Numbers], Numbers], pull: Callable[[Numbers], Numbers]) -> None:
    """The same for functions of numpy arrays. A pull may be one number for all gaps; other shapes are refused."""
    pulls = pull(GAPS)
    pulls = np.broadcast_to(pulls, GAPS.shape) if not pulls.ndim else pulls
    around = [(value(GAPS - step), value(GAPS + step)) for step in STEPS]
    for part, result in (("pull", pulls), ("value", around[0][0])):
        if result.shape != GAPS.shape:
            raise CurveError(f"{name}: its {part} for gaps of shape {GAPS.shape} has the shape {result.shape}: "
                             "expected the same shape. Compute it element by element.")
    with np.errstate(all="ignore"):
        slopes = np.stack([(below - above) / (2 * step) for step, (below, above) in zip(STEPS, around, strict=True)])
        counted = np.isfinite(slopes).all(0) & np.isfinite(pulls)
        if not counted.any():
            return
        allowed = ABSOLUTE * np.abs(slopes[0][counted]).mean() + RELATIVE * np.maximum(np.abs(slopes), np.abs(pulls))
        wrong = counted & (np.abs(slopes - pulls) > allowed).all(0)
        pairs = wrong[::2] & wrong[1::2]
        sign_flipped = counted & (np.abs(slopes + pulls) <= allowed).any(0)
    if not pairs.any():
        return
    index = 2 * int(pairs.argmax())
    gap, actual = GAPS[index], pulls[index]
    expected = min(slopes[:, index], key=lambda slope: abs(slope - actual))
    if (sign_flipped == counted).all():
        hint = "The sign is wrong: pull is minus the derivative."
    else:
        hint = f"They differ at {wrong.sum()} of {counted.sum()} gaps from {GAPS[0]:.4g} to {GAPS[-1]:.4g}."
    raise CurveError(f"{name}: its pull is {actual:.4g} at a gap of {gap:.4g}, where minus the derivative of its value "
                     f"is {expected:.4g}. {hint} The losses use pull as the gradient, so that training would minimise "
                     "something else than it reports. Pass check=False to curves.custom where that is meant, or use "
                     "curves.from_probability, which derives the pull.")
