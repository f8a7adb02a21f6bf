"""From a row of logits to its loss, with the gradient in closed form: what every softmax loss is made of.

There are two operations. :func:`label_rows` is ``phi(p_y)`` for a label, :func:`mass_rows` is ``sum_k u_k phi(p_k)``
for a mass ``u`` over the classes (soft targets, label smoothing). Each is an autograd Function that

* has a forward-mode rule, a hand-written ``vmap`` that folds the batch into rows, and a backward pass that recomputes
  in differentiable operations whenever it may be differentiated again, so that every transform of ``torch.func``,
  double backward and ``torch.compile(fullgraph=True)`` are right;
* otherwise works on blocks of rows that stay in the cache, and allocates nothing of the logits' size but the gradient
  (what fits one block has a form of its own on the CPU, in ``small.py``).

``masses.py`` has a faster form of the second operation for some curves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..links import class_gaps, gap_and_rivals, label_gap, rival_weights, without
from ..torch_state import (
    backward_must_be_differentiable,
    is_eager,
    needs_plain_operations,
    read_before_function,
)
from . import traced
from .class_sums import gradient_of_block, mass_gradient, mass_values, values_and_gradient, values_of_block
from .exponentials import exp_
from .labels import zero_ignored, zero_ignored_
from .reduction import rows_of
from .small import fits_cache, is_small, small_loss

_BLOCK_BYTES = {"cpu": 1 << 20}  # a block and its scratch copy stay in the second-level cache
_BLOCK_BYTES_ELSEWHERE = 1 << 29  # scratch stays small beside the logits, and launches are few


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of the arithmetic: half precisions are computed in float32."""
    return dtype if dtype == torch.float64 else torch.float32


def label_rows(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve) -> Tensor:
    """``phi(p_y)`` of every row of ``logits`` (N, C), with labels as ``labels.py`` gives them; 0 for ignored
    rows, and at least float32."""
    if needs_plain_operations():
        z = zero_ignored(logits, ignored).to(compute_dtype(logits.dtype))
        return zero_ignored(curve.value(gap_and_rivals(z, label)[0]), ignored)[:, 0]
    if is_small(logits):
        return small_loss(logits, label, ignored, curve, None, "none")
    compiling = torch.compiler.is_compiling()
    if compiling:
        read_before_function(curve.params.values())
    op = _LabelRows if compiling else _LabelRowsForward
    return apply(op, logits, label, ignored, curve)[0]  # type: ignore[no-any-return]


def mass_rows(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """``sum_k u_k phi(p_k)`` of every row, for a mass ``u`` (N, C) that need not sum to 1; at least float32."""
    if needs_plain_operations():
        dtype = compute_dtype(logits.dtype)
        return mass_values(logits.to(dtype), mass.to(dtype), curve)
    if fits_cache(logits) and not mass.requires_grad and torch.is_grad_enabled() and logits.requires_grad:
        return apply(_SmallMassRows, logits, mass, curve)  # type: ignore[no-any-return]
    compiling = torch.compiler.is_compiling()
    if compiling:
        read_before_function(curve.params.values())
    op = _MassRows if compiling else _MassRowsForward
    return apply(op, logits, mass, curve)  # type: ignore[no-any-return]


def apply(op: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``op.apply(*arguments)``, without its overhead where that is safe."""
    if is_eager():
        # Function.apply binds its arguments to forward's signature in every call, a tenth of the time of a small batch.
        return super(torch.autograd.Function, op).apply(*arguments)  # type: ignore[misc]
    return op.apply(*arguments)  # type: ignore[no-untyped-call]


def in_blocks(logits: Tensor, *others: Tensor, share: int = 1) -> Iterator[tuple[Tensor, ...]]:
    """The tensors in blocks of rows that keep scratch memory small; as one block where a compiler traces. Blocks of a
    smaller ``share`` are for formulas with many scratch copies."""
    rows = logits.shape[0]
    if is_eager():
        budget = _BLOCK_BYTES.get(logits.device.type, _BLOCK_BYTES_ELSEWHERE)
        rows = max(1, budget // share // max(1, logits.shape[1] * compute_dtype(logits.dtype).itemsize))
    if rows >= logits.shape[0]:
        yield logits, *others
    else:
        yield from zip(*(torch.split(tensor, rows) for tensor in (logits, *others)), strict=True)


# One label per row


def rivals_in_blocks(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The highest rival's logit, and the sum of the rivals' exponentials relative to it: 0 where all are at -inf."""
    dtype = compute_dtype(logits.dtype)
    highest, total = torch.empty_like(label, dtype=dtype), torch.empty_like(label, dtype=dtype)
    for z, y, highest_part, total_part in in_blocks(logits, label, highest, total):
        others = without(z, y) if z.dtype == dtype else z.to(dtype).scatter_(-1, y, -torch.inf)
        torch.amax(others, -1, keepdim=True, out=highest_part).clamp_(min=torch.finfo(dtype).min)
        torch.sum(exp_(others.sub_(highest_part)), -1, keepdim=True, out=total_part)
    return highest, total


def gap_and_squares(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The label's gap, and the sum of the squares of the softmax over its rivals; with no derivative."""
    rivals = without(logits, label)
    highest = rivals.amax(-1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
    weights = exp_(rivals.sub_(highest))
    total = weights.sum(-1, keepdim=True)
    squares = weights.mul_(weights).sum(-1, keepdim=True)
    return label_gap(logits, label, highest, total.log()), squares / total.clamp(min=1).square()


def label_gradient_in_blocks(logits: Tensor, label: Tensor, highest: Tensor, total: Tensor, pull: Tensor,
                             out: Tensor | None = None) -> Tensor:
    """The gradient of rows with this pull (N, 1), in ``out``, which may be the logits."""
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if out is None else out
    push = pull / total.clamp(min=1)  # the highest rival alone adds 1; a total below 1 means that there is no rival
    for z, y, high, on_rivals, on_label, slope in in_blocks(logits, label, highest, push, pull, gradient):
        part = slope if slope.dtype == high.dtype else torch.empty_like(slope, dtype=high.dtype)
        exp_(torch.sub(z, high, out=part)).mul_(on_rivals).scatter_(-1, y, -on_label)
        if part is not slope:
            slope.copy_(part)
    return gradient


class _LabelRows(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve) -> tuple[Tensor, ...]:
        if is_eager():
            highest, total = rivals_in_blocks(logits, label)
        else:
            highest, _, total = rival_weights(logits.to(compute_dtype(logits.dtype)), label)
        gap = label_gap(logits, label, highest, total.log())
        return rows_of(zero_ignored(curve.value(gap), ignored)), gap, highest, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, label, ignored, ctx.curve = inputs
        _, gap, highest, total = output
        ctx.mark_non_differentiable(gap, highest, total)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, label, ignored, gap, highest, total)
        ctx.save_for_forward(logits, label, ignored)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Tensor | None, None, None, None]:
        if upstream is None:
            return None, None, None, None
        logits, label, ignored, gap, highest, total = ctx.saved_tensors
        if torch.compiler.is_compiling():
            z = logits.to(compute_dtype(logits.dtype))  # as in the forward pass, so that its sums are not made again
            gradient = traced.label_gradient(z, label, ctx.curve, upstream[:, None])
            return zero_ignored(gradient, ignored).to(logits.dtype), None, None, None
        if backward_must_be_differentiable(upstream):
            # What an ignored row holds, such as NaN, must not reach a second derivative.
            gap, rivals = gap_and_rivals(zero_ignored(logits, ignored).to(compute_dtype(logits.dtype)), label)
            pull = ctx.curve.pull(gap) * upstream[:, None]
            gradient = (pull * rivals).scatter(-1, label, -pull)
            return zero_ignored(gradient, ignored).to(logits.dtype), None, None, None
        gradient = label_gradient_in_blocks(logits, label, highest, total, ctx.curve.pull(gap) * upstream[:, None])
        return zero_ignored_(gradient, ignored), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], logits: Tensor, label: Tensor, ignored: Tensor | None,
             curve: Curve) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        size = info.batch_size
        folded = None if ignored is None else _fold(ignored, in_dims[2], size)
        outputs = _LabelRowsForward.apply(  # type: ignore[no-untyped-call]
            _fold(logits, in_dims[0], size), _fold(label, in_dims[1], size), folded, curve)
        return tuple(_unfold(output, size) for output in outputs), (0, 0, 0, 0)


class _LabelRowsForward(_LabelRows):
    """Adds the forward-mode rule, which ``torch.compile(fullgraph=True)`` does not accept on a Function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, *_: None) -> tuple[Tensor | None, None, None, None]:
        if tangent is None:
            return None, None, None, None
        logits, label, ignored = ctx.saved_tensors
        dtype = compute_dtype(logits.dtype)
        gap, rivals = gap_and_rivals(zero_ignored(logits, ignored).to(dtype), label)
        growth = tangent.gather(-1, label) - (rivals * tangent).sum(-1, keepdim=True)
        return zero_ignored(-ctx.curve.pull(gap) * growth, ignored)[:, 0].to(dtype), None, None, None


# A mass over the classes of a row


class _MassRows(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
        dtype = compute_dtype(logits.dtype)
        if torch.compiler.is_compiling():
            return traced.mass_values(logits.to(dtype), mass.to(dtype), curve)
        if not is_eager():
            return mass_values(logits.to(dtype), mass.to(dtype), curve)
        out = logits.new_empty(logits.shape[0], dtype=dtype)
        for z, u, rows in in_blocks(logits, mass, out, share=2):
            rows.copy_(values_of_block(z.to(dtype), u.to(dtype), curve))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, mass, ctx.curve = inputs
        ctx.save_for_backward(logits, mass)
        ctx.save_for_forward(logits, mass)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        logits, mass = ctx.saved_tensors
        dtype = upstream.dtype
        if torch.compiler.is_compiling():
            z, by_mass = logits.to(dtype), None
            if ctx.needs_input_grad[1]:
                by_mass = (upstream[:, None] * traced.class_values(z, ctx.curve)).to(mass.dtype)
            gradient = traced.mass_gradient(z, mass.to(dtype) * upstream[:, None], ctx.curve)
            return gradient.to(logits.dtype), by_mass, None
        by_mass = None
        if ctx.needs_input_grad[1]:
            by_mass = (upstream[:, None] * ctx.curve.value(class_gaps(logits.to(dtype))[0])).to(mass.dtype)
        if backward_must_be_differentiable(upstream):
            gradient = upstream[:, None] * mass_gradient(logits.to(dtype), mass.to(dtype), ctx.curve)
            return gradient.to(logits.dtype), by_mass, None
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        for z, u, up, out in in_blocks(logits, mass, upstream[:, None], gradient, share=2):
            out.copy_(gradient_of_block(z.to(dtype), u.to(dtype), ctx.curve).mul_(up))
        return gradient, by_mass, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], logits: Tensor, mass: Tensor, curve: Curve) -> tuple[Tensor, int]:
        size = info.batch_size
        rows = mass_rows(_fold(logits, in_dims[0], size), _fold(mass, in_dims[1], size), curve)
        return _unfold(rows, size), 0


class _SmallMassRows(torch.autograd.Function):
    """:class:`_MassRows` of logits that fit the cache: the gradient of the rows is saved by the forward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
        dtype = compute_dtype(logits.dtype)
        mass = mass.to(dtype)
        out = logits.new_empty(logits.shape[0], dtype=dtype)
        gradient = logits.new_empty(logits.shape, dtype=dtype)
        for z, u, rows, slope in in_blocks(logits, mass, out, gradient, share=2):
            values, part = values_and_gradient(z.to(dtype), u, curve)
            rows.copy_(values)
            slope.copy_(part)
        ctx.curve = curve
        ctx.save_for_backward(logits, mass, gradient)
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None, None]:
        logits, mass, gradient = ctx.saved_tensors
        if backward_must_be_differentiable(upstream):
            gradient = mass_gradient(logits.to(mass.dtype), mass, ctx.curve)
        return (upstream[:, None] * gradient).to(logits.dtype), None, None


class _MassRowsForward(_MassRows):
    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, mass_tangent: Tensor | None, _: None) -> Tensor | None:
        logits, mass = ctx.saved_tensors
        dtype = compute_dtype(logits.dtype)
        z, u = logits.to(dtype), mass.to(dtype)
        parts = []
        if tangent is not None:
            parts.append((mass_gradient(z, u, ctx.curve) * tangent).sum(-1))
        if mass_tangent is not None:
            parts.append((ctx.curve.value(class_gaps(z)[0]) * mass_tangent).sum(-1))
        return sum(parts[1:], parts[0]).to(dtype) if parts else None


def _fold(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """A batch of rows as one longer list of rows. What the batch shares is repeated."""
    batched = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return batched.flatten(0, 1)


def _unfold(rows: Tensor, size: int) -> Tensor:
    return rows.reshape(size, rows.shape[0] // size, *rows.shape[1:])
