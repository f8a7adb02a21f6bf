"""The kernels as a differentiable operation.

Two forms. *Ahead*: the forward pass writes the gradient of a mean or a sum, and the backward pass only multiplies by
the upstream gradient, on the device, where it is not 1. One read and one write of the logits' size in all. *Later*: the
forward pass keeps a few numbers per row and the backward pass makes the gradient from them and the logits. That serves
reduction ``none``; float16, whose small gradients would be lost before a gradient scaler could lift them; and
``torch.compile``, which cannot pass a buffer from one pass to the other without a copy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...curves import Curve
from ...errors import ArgumentError, DerivativeError
from ...targets import Rows
from .. import reference
from . import operators
from .curves import constants
from .launch import Problem, denominator, empty_state, gradient_later, losses, scale, total
from .stats import ByProducts, by_products_of, count_past, empty_by_products
from .tiling import MOST_PLANES

_keep_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def rows_loss(rows: Rows, curve: Curve, **arguments: Any) -> Any:
    """:func:`hard_loss` of rows, read as they lie where the kernels are good at that."""
    planes = rows.planes if rows.classes <= MOST_PLANES else None
    logits, target = (rows.logits, rows.target) if planes is None else planes
    return hard_loss(logits, target, curve, **arguments)


def hard_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None, ignore_index: int = -100,
              label_smoothing: float = 0.0, reduction: str = "mean", inplace: bool = False,
              stats: bool | float = False) -> Any:
    """``reference.hard_loss`` by the kernels: float32, for logits (N, C) with a target (N), or (N, C, d) with (N, d).

    A label that names no class gives NaN as its loss and its gradient. ``inplace`` allows the gradient to be written
    over the logits, which must not be a leaf: a later use of them in a differentiable operation is an error then. It is
    made use of where the gradient is made ahead. ``stats`` asks for a pair of the loss and :class:`Stats`; a number
    between 0 and 1 is the probability beyond which rows are counted there, by default the curve's own ``log_end``
    (``start``, ``halt``), else one half.
    """
    if torch.compiler.is_compiling():
        rows = operators.rows(logits, target.reshape(-1), weight, curve, ignore_index, label_smoothing)
        loss = _reduce(rows, target, weight, ignore_index, reduction)
        by_products = by_products_of(logits, target, ignore_index) if stats is not False else None
    else:
        problem = Problem(logits, target.reshape(-1).contiguous(), _plain(weight), constants(curve), ignore_index,
                          float(label_smoothing))
        by_products = empty_by_products(problem) if stats is not False else None
        loss = _eager(problem, curve, weight, reduction, inplace, by_products)
    if reduction == "none" and logits.ndim == 3:
        loss = loss.reshape(target.shape)
    return loss if by_products is None else (loss, count_past(by_products, curve, stats, target.shape))


def _eager(problem: Problem, curve: Curve, weight: Tensor | None, reduction: str, inplace: bool,
           by_products: ByProducts | None) -> Tensor:
    logits = problem.logits
    if not (logits.requires_grad and torch.is_grad_enabled()):
        if reduction == "none":
            return losses(problem, stats=by_products)
        partial_weights = denominator(problem) if reduction == "mean" else None
        return total(losses(problem, sums=True, stats=by_products), partial_weights)
    if inplace:
        _check_inplace(logits)
    if reduction == "none" or logits.dtype == torch.float16:
        rows: Tensor = _Later.apply(logits, problem, curve, by_products)
        return _reduce(rows, problem.target, weight, problem.ignore_index, reduction)
    loss: Tensor = _Ahead.apply(logits, problem, curve, reduction, inplace, by_products)
    if inplace:
        _Overwritten.apply(logits)
    return loss


def loss_and_gradient_(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
                       ignore_index: int = -100, label_smoothing: float = 0.0, denominator: Tensor | None = None,
                       upstream: Tensor | None = None) -> Tensor:
    """Overwrite ``logits`` by the gradient of ``sum(rows * upstream) / denominator`` and return the rows' losses.

    For code that makes logits only to use them up, without autograd. ``upstream`` has one number per row.
    """
    _check_no_overlap(logits)
    problem = Problem(logits, target.reshape(-1).contiguous(), _plain(weight), constants(curve), ignore_index,
                      label_smoothing)
    partial_weights = None if denominator is None else denominator.reshape(1).float()
    upstream = None if upstream is None else upstream.contiguous()
    return losses(problem, grad=logits, partial_weights=partial_weights, upstream=upstream)


class _Ahead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, problem: Problem, curve: Curve, reduction: str, inplace: bool,
                by_products: ByProducts | None) -> Tensor:
        # .data: the buffer is ours from here on, and its version is not that of the logits.
        grad = logits.data if inplace else torch.empty_like(logits)
        partial_weights = denominator(problem) if reduction == "mean" else None
        sums = losses(problem, sums=True, grad=grad, partial_weights=partial_weights, stats=by_products)
        loss = total(sums, partial_weights)
        ctx.save_for_backward(None if inplace else logits, problem.target, problem.weight, grad)
        ctx.arguments = curve, problem.ignore_index, problem.smoothing, reduction
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, grad = ctx.saved_tensors
        if torch.is_grad_enabled():
            result = _differentiable(logits, target, weight, upstream, *ctx.arguments)
        elif _is_batch(upstream):
            result = (grad.float() * upstream).to(grad.dtype)
        else:
            # A graph that is kept needs the buffer as it is, and so does whoever was given it by an earlier pass.
            result = torch.empty_like(grad) if _keep_graph() else grad
            scale(grad, upstream, result)
        return result, None, None, None, None, None


class _Later(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, problem: Problem, curve: Curve, by_products: ByProducts | None) -> Tensor:
        state = empty_state(problem)
        rows = losses(problem, state=state, stats=by_products)
        ctx.save_for_backward(logits, problem.target, problem.weight, state)
        ctx.arguments = curve, problem.ignore_index, problem.smoothing
        return rows

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state = ctx.saved_tensors
        curve, ignore_index, smoothing = ctx.arguments
        if torch.is_grad_enabled():
            result = _differentiable(logits, target, weight, upstream, *ctx.arguments)
        else:
            problem = Problem(logits, target, weight, constants(curve), ignore_index, smoothing)
            result = torch.empty_like(logits)
            batched = _is_batch(upstream)
            gradient_later(problem, state, torch.ones_like(state[0]) if batched else upstream, result)
            if batched:
                above = upstream[:, None] if logits.ndim == 2 else upstream.unflatten(0, (-1, 1, logits.shape[2]))
                result = (result.float() * above).to(result.dtype)
        return result, None, None, None


class _Overwritten(torch.autograd.Function):
    """Tells autograd that the logits hold something else now.

    Operations that saved them before fail in their backward pass by autograd's own check of versions. Operations that
    read them from now on lead their backward pass here.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.mark_dirty(logits)
        return logits

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> None:
        raise DerivativeError(
            "the logits were overwritten by their gradient (inplace=True) and then used by another differentiable "
            "operation. Use them before the loss and not after, or pass inplace=False.")


def _differentiable(logits: Tensor | None, target: Tensor, weight: Tensor | None, upstream: Tensor, curve: Curve,
                    ignore_index: int, smoothing: float, reduction: str = "none") -> Tensor:
    """The gradient in operations that can be differentiated again: the reference's."""
    if logits is None:
        raise DerivativeError(
            "create_graph=True asks for second derivatives, but the logits were overwritten by their gradient "
            "(inplace=True). Pass inplace=False.")
    flat = logits if logits.ndim == 2 else logits.movedim(1, -1).flatten(0, 1)
    loss = reference.hard_loss(flat, target, curve, weight=weight, ignore_index=ignore_index,
                               label_smoothing=smoothing, reduction=reduction)
    return torch.autograd.grad(loss, logits, upstream, create_graph=True)[0]


def _plain(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.detach().float().contiguous()


def _reduce(rows: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Tensor:
    if reduction == "none":
        return rows
    if reduction == "sum":
        return rows.sum()
    labels = target.reshape(-1).long()  # before the comparison: in uint8, -100 is the label 156
    known = labels != ignore_index
    if weight is None:
        return rows.sum() / known.sum()
    labels = labels.clamp(0, weight.shape[0] - 1)
    return rows.sum() / torch.where(known, weight.detach().float()[labels], 0.0).sum()


def _check_inplace(logits: Tensor) -> None:
    origin = logits._base if logits._base is not None else logits
    if origin.is_leaf:
        raise ArgumentError("inplace=True would write over logits that are a leaf (or a view of one), whose values "
                            "belong to whoever made them: expected the output of a layer. Pass inplace=False.")
    _check_no_overlap(logits)


def _check_no_overlap(logits: Tensor) -> None:
    reach = 0  # of the dimensions with smaller strides
    for stride, size in sorted((stride, size) for size, stride in zip(logits.shape, logits.stride(), strict=True)):
        if size > 1 and stride <= reach:
            raise ArgumentError(f"the gradient cannot be written over logits with strides {logits.stride()} and shape "
                                f"{tuple(logits.shape)}: several of their elements are the same memory. Pass "
                                "inplace=False, or logits.contiguous().")
        reach += max(0, size - 1) * stride


def _is_batch(upstream: Tensor) -> bool:
    """Whether the upstream gradient is a batch of them in disguise (``is_grads_batched``, ``torch.func.vmap``)."""
    functorch = torch._C._functorch
    return bool(functorch.is_legacy_batchedtensor(upstream) or functorch.is_batchedtensor(upstream))
