"""Which examples a loss learns from: how much of its gradient comes from examples that are already classified well."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from ..curves import Curve, conservative, cross_entropy, focal, normal
from ..curves._curve import check_curve
from ..errors import ShapeError
from ._inputs import as_tensor

SURE = (0.5, 0.9, 0.99)


def usual() -> dict[str, Curve]:
    """The losses that every diagnosis shows."""
    return {"cross-entropy": cross_entropy(), "encouraging, LE 0.5": conservative(0.5),
            "encouraging, LE 0.75": conservative(0.75), "encouraging, LE 1": normal(), "focal, gamma 2": focal(2.0)}


def _gaps(values: Tensor | np.ndarray, name: str) -> Tensor:
    """The gaps, one per example: logits would silently be taken for as many gaps."""
    gap = as_tensor(values).detach()
    if gap.ndim != 1:
        raise ShapeError(f"{name}: expected one gap per example, the shape (N,), got {tuple(gap.shape)}. Pass "
                         "read(logits, labels).gap.")
    return gap.double()


def gradient_mass(gap: Tensor | np.ndarray, curve: Curve, above: tuple[float, ...] = SURE) -> dict[str, float]:
    r"""The fraction of the gradient on the logits that comes from examples whose label's probability is above a level.

    The gradient of an example is measured by the sum of its absolute values, which is twice the example's pull: the
    label is pulled as hard as all its rivals together are pushed.

    Args:
        gap: (N), such as ``gap`` of :class:`Readings`.
        curve: The loss.
        above: The levels of the probability.

    Returns:
        One fraction per level, by the level as text; 0 where there is no gradient at all.

    Raises:
        ShapeError: The gaps have another number of dimensions than one.
        DtypeError: The curve is something else.

    >>> import torch
    >>> gap = torch.tensor([0.0, 5.0])  # p = 0.5 and 0.993
    >>> {p: round(share, 2) for p, share in gradient_mass(gap, cross_entropy()).items()}
    {'0.5': 0.01, '0.9': 0.01, '0.99': 0.01}
    >>> gradient_mass(gap, normal())["0.9"]
    0.5
    """
    gap = _gaps(gap, "gradient_mass")
    check_curve(curve)
    pull = curve.pull(gap).abs()
    total, p = float(pull.sum()), gap.sigmoid()
    return {f"{level:g}": float(pull[p > level].sum()) / total if total else 0.0 for level in above}


def mean_pulls(gap: Tensor | np.ndarray, curves: Mapping[str, Curve] | None = None) -> dict[str, float]:
    """The mean pull per example under several losses: the size of the gradient that :func:`gradient_mass` shares out.

    Args:
        gap: (N), such as ``gap`` of :class:`Readings`.
        curves: The losses by name; by default cross-entropy, three encouraging losses and focal loss.

    Returns:
        One number per loss; 0 without examples.

    >>> import torch
    >>> {name: round(pull, 3) for name, pull in mean_pulls(torch.tensor([0.0, 5.0])).items()}["cross-entropy"]
    0.253
    """
    gap = _gaps(gap, "mean_pulls")
    return {name: float(curve.pull(gap).abs().mean()) if len(gap) else 0.0
            for name, curve in (curves or usual()).items()}


def teaching(gap: Tensor | np.ndarray, curves: Mapping[str, Curve] | None = None) -> dict[str, dict[str, float]]:
    """The gradient mass of several losses, beside the fraction of examples.

    Args:
        gap: (N), such as ``gap`` of :class:`Readings`.
        curves: The losses by name; by default cross-entropy, three encouraging losses and focal loss.

    Returns:
        The result of :func:`gradient_mass` per loss, and under ``examples`` the fraction of examples above each level.

    >>> import torch
    >>> teaching(torch.tensor([0.0, 5.0]), {"normal": normal()})
    {'examples': {'0.5': 0.5, '0.9': 0.5, '0.99': 0.5}, 'normal': {'0.5': 0.5, '0.9': 0.5, '0.99': 0.5}}
    """
    gap = _gaps(gap, "teaching")
    p = gap.sigmoid()
    examples = {f"{level:g}": float((p > level).double().mean()) if len(p) else 0.0 for level in SURE}
    return {"examples": examples} | {name: gradient_mass(gap, curve) for name, curve in (curves or usual()).items()}
