"""The launches of ``labels_split.py``, called as the one launch of other rows is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .cached_launch import Prepared
from .labels_split import NUMBERS, split_end_kernel, split_kernel, split_sums_kernel
from .layout import power_of_two
from .tiling import Tiling, segments_of

Gradient = Callable[[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor], None]


class SplitLabels:
    """The losses of rows that are split into segments. ``gradient`` writes the gradient from logits, target, weight,
    the rows' states and what each row's gradient is multiplied by."""

    __slots__ = ("_end", "_gradient", "_keep", "_passes", "_rows", "_size", "_smooth", "_sums", "programs")

    def __init__(self, tiling: Tiling, sizes: tuple[int, ...], ignore_index: int, phase: int,
                 factors: tuple[float, float], formula: tuple[float, ...], constants: dict[str, Any],
                 gradient: Gradient) -> None:
        rows, class_units, *strides = sizes
        n_segments, blocks = segments_of(tiling, class_units * constants["UNIT"])
        constants["SEGMENTS"] = max(16, power_of_two(n_segments))
        smooth = constants["SMOOTH"]
        every, walk = rows * n_segments, (rows, n_segments, blocks, class_units, *strides, ignore_index, phase)
        self._passes = [_prepared(split_kernel, every, walk, constants)]
        if smooth and not constants["MOMENTS"]:
            self._passes.append(_prepared(split_sums_kernel, every, (*walk, *formula), constants))
        numbers = (rows, n_segments, class_units, *strides, ignore_index, *factors, *formula)
        self._end = _prepared(split_end_kernel, rows, numbers, constants)
        self._rows, self._size, self._gradient = rows, NUMBERS * every, gradient
        self._keep, self._smooth, self._sums = 7 if smooth else 4, smooth, constants["SUMS"]
        self.programs = rows

    def __call__(self, device: int, logits: Tensor, target: Tensor, weight: Tensor | None,
                 partial_weights: Tensor | None, upstream: Tensor | None, loss: Tensor | None, shares: Tensor | None,
                 counter: Tensor | None, grad: Tensor | None, state: Tensor | None, *others: Tensor | None) -> None:
        """The tensors of ``streamed_kernel`` or, with smoothing, of ``streamed_smooth_kernel``."""
        partials = torch.empty(self._size, dtype=torch.float32, device=logits.device)
        for one in self._passes:
            one(device, logits, target, weight, partials)
        if grad is not None and state is None:
            state = torch.empty(self._keep * self._rows + 1, dtype=torch.float32, device=logits.device)
        between = (None,) if self._smooth else ()  # there are no lengths
        self._end(device, logits, target, weight, partials, partial_weights if self._sums else None, loss, shares,
                  counter, state, *between, *others)
        if grad is None:
            return
        assert state is not None
        if self._sums:  # the number behind the states
            above = state[-1].expand(self._rows)
        else:
            above = torch.ones((), device=logits.device) if upstream is None else upstream.float()
            above = above if partial_weights is None else above / partial_weights.sum()
            above = above.expand(self._rows)
        self._gradient(logits, target, weight, state, above, grad)


def _prepared(kernel: Any, programs: int, numbers: tuple[int | float, ...], constants: dict[str, Any]) -> Prepared:
    known = {name: value for name, value in constants.items() if name.islower() or name in kernel.arg_names}
    return Prepared(kernel, programs, numbers, **known)
