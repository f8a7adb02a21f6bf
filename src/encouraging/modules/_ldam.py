"""Label-distribution-aware margins as a module.

Annotations are evaluated here, as in ``torch.nn``: libraries that wrap a loss (fastai) read them from its instances,
where the names of this file are not known.
"""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from .. import curves
from ..class_counts import Counts
from ..curves import Curve
from ..errors import ArgumentError, ShapeError
from ..margins import ldam_margins, number_or_nan, subtract_margin
from ..ops.reduction import Divisor
from ..ops.rows import compute_dtype
from ..targets import as_rows, result_dtype
from ._arguments import changed, defaults_of
from ._curve_loss import Arguments, CurveLoss


class LDAMLoss(CurveLoss):
    """Label-distribution-aware margins: the class's margin is subtracted from the label's logit, all logits are scaled,
    and a curve follows.

    Args:
        class_counts: The number of training examples per class, all at least 1: a tensor, a numpy array, a list or a
            tuple of C numbers, or a mapping from class index to number.
        curve: Any curve; cross-entropy is LDAM as published.
        max_margin: The rarest class's margin.
        scale: The factor of the logits, which LDAM expects to be cosines.
        **arguments: As in :class:`CurveLoss`.

    Raises:
        SignatureError: An argument is not known.
        ArgumentError, DtypeError, ShapeError: An argument cannot be used; in the call also for probabilities as target.

    >>> LDAMLoss({0: 16, 1: 1}).margins
    tensor([0.2500, 0.5000])
    """

    margins: Tensor
    _rounded_off: Tensor

    def __init__(self, class_counts: Counts, curve: Curve | None = None, *, max_margin: float = 0.5,
                 scale: float = 30.0, **arguments: Unpack[Arguments]) -> None:
        super().__init__(curves.cross_entropy() if curve is None else curve, **arguments)
        if not 0 < number_or_nan(scale) < math.inf:
            raise ArgumentError(f"scale={scale!r}: expected a positive number, by which the logits are multiplied.")
        self.scale, self.max_margin = scale, max_margin
        margins, exact = (ldam_margins(class_counts, max_margin, "LDAMLoss", dtype)
                          for dtype in (torch.float32, torch.float64))
        self.register_buffer("margins", margins)
        # What float32 rounds off, for float64 logits. Not the margins in float64, which some devices cannot hold.
        self.register_buffer("_rounded_off", (exact - margins.double()).float(), persistent=False)

    def forward(self, input: Tensor, target: Tensor, *, divisor: Divisor = None) -> Tensor:
        rows = as_rows(input, target)
        if input.ndim != 2 or rows.soft:
            raise ShapeError(f"LDAM takes logits (N, C) with labels (N): got {tuple(input.shape)} with a target of "
                             f"{target.dtype} {tuple(target.shape)}.")
        if input.shape[-1] != len(self.margins):
            raise ShapeError(f"input has {input.shape[-1]} classes but class_counts named {len(self.margins)}.")
        # The scale would enlarge the rounding errors of 16 bits.
        wide = input.to(compute_dtype(input.dtype))
        margins = self.margins
        if wide.dtype == torch.float64:
            margins = margins.double() + self._rounded_off.double()
        loss = super().forward(self.scale * subtract_margin(wide, target, margins), target, divisor=divisor)
        return loss.to(result_dtype(input))

    def _load_from_state_dict(self, *arguments: Any) -> None:
        before = self.margins if self.margins.is_meta else self.margins.clone()
        super()._load_from_state_dict(*arguments)
        # Margins that were not computed here have lost what was rounded off; after to_empty it would be noise.
        if before.is_meta or not torch.equal(before.to(self.margins), self.margins):
            self._rounded_off = torch.zeros_like(self.margins)

    def extra_repr(self) -> str:
        margin = changed(self, {"max_margin": defaults_of(LDAMLoss)["max_margin"]})
        return ", ".join([f"classes={len(self.margins)}", *margin, f"scale={self.scale}", super().extra_repr()])
