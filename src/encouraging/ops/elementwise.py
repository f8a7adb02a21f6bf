"""A curve applied to gaps of any shape, with its pull as the gradient: what the sigmoid losses are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..torch_state import needs_plain_operations


def curve_values(gap: Tensor, curve: Curve) -> Tensor:
    """``curve.value(gap)`` with the derivative ``-curve.pull(gap)``, under every transform."""
    if needs_plain_operations():
        return curve.value(gap)
    op = _Values if torch.compiler.is_compiling() else _ValuesForward
    return op.apply(gap, curve)  # type: ignore[no-any-return, no-untyped-call]


class _Values(torch.autograd.Function):
    @staticmethod
    def forward(gap: Tensor, curve: Curve) -> Tensor:
        return curve.value(gap)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        gap, ctx.curve = inputs
        ctx.save_for_backward(gap)
        ctx.save_for_forward(gap)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (gap,) = ctx.saved_tensors
        return -ctx.curve.pull(gap) * upstream, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], gap: Tensor, curve: Curve) -> tuple[Tensor, Any]:
        return curve_values(gap, curve), in_dims[0]


class _ValuesForward(_Values):
    """Adds the forward-mode rule, which ``torch.compile(fullgraph=True)`` does not accept on a Function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (gap,) = ctx.saved_tensors
        pull: Tensor = ctx.curve.pull(gap)
        return -pull * tangent
