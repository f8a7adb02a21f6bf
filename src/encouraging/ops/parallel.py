r"""The loss over a vocabulary that is split across ranks: every rank holds the logits of some consecutive classes.

A row's gap needs two numbers, its label's logit and the logsumexp of its rivals. Every rank computes the logsumexp of
its own rivals; the rank that owns the label leaves it out. After one all-gather of a few numbers per row all ranks know
the same gap. It comes from the rivals alone, so it is exact at any confidence. The gradient on a rank's own classes
needs no other rank, so the backward pass communicates nothing.

Label smoothing sums over all classes, so one all-reduce follows. With :math:`u_k = s w_k / C + (1-s) w_y [k = y]`,
:math:`r = \text{pull} / (1 - p)` and :math:`m` the top class, treated separately because its :math:`1-p` may be 0,

.. math:: \frac{\partial}{\partial z_j} \sum_k u_k \varphi(p_k) = p_j \sum_{k \ne m} u_k r_k - [j \ne m]\, u_j r_j
    + u_m\,\text{pull}_m \cdot \begin{cases} -1 & j = m \\ e^{z_j - \text{rivals}_m} & j \ne m \end{cases}
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.nn.functional import pad

from ..curves import Curve
from ..curves._curve import check_curve
from ..errors import ArgumentError, DerivativeError, ShapeError, TargetError
from ..targets import as_rows, check_arguments, check_tensor, result_dtype, sequence_hint
from ..torch_state import has_tangent, in_transform, values_are_readable
from .parallel_rows import (
    Smoothed,
    blocks,
    combine,
    gap_of,
    label_gradient,
    others_in_blocks,
    smoothed_gradient,
    smoothed_sums,
)
from .reduction import Divisor, check_divisor, reduce, rows_of
from .rows import compute_dtype

# torch 2.13 renamed the gathering collective and warns about the old name.
_all_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor


def parallel_curve_loss(logits: Tensor, target: Tensor, curve: Curve, group: Any = None, *,
                        weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
                        label_smoothing: float = 0.0, class_offset: int | None = None,
                        divisor: Divisor = None) -> Tensor:
    """``curve_loss`` over a split vocabulary: each rank of ``group`` holds the logits of its own consecutive classes.

    Args:
        logits: This rank's part, (..., classes of this rank), or a DTensor sharded on its last dimension (evenly or
            not). A DTensor's mesh gives ``group`` and ``class_offset``, and its gradient is sharded in the same way.
        target: Labels among the classes of all ranks, (...), the same on every rank.
        curve: The loss as a function of the label's probability: any of :mod:`encouraging.curves`.
        group: The process group whose ranks share the classes; by default all ranks.
        weight: The class weights of this rank's classes, or a DTensor of all weights, sharded as the logits are.
        ignore_index, reduction, label_smoothing, divisor: As in :func:`curve_loss`.
        class_offset: The index of this rank's first class. Needed where ranks hold different numbers of classes;
            without it all ranks must hold equally many. Ranks hold classes in the order of their rank in the group.

    Returns:
        The same plain tensor on every rank. Each rank differentiates it with respect to its own logits. The upstream
        gradient must be the same everywhere, as it is when all ranks compute the same total loss.

    Raises:
        ArgumentError, DtypeError, ShapeError: For arguments that :func:`curve_loss` refuses, too, or without a process
            group.
        TargetError: On every rank, for a label that names no class. On a GPU such a label gives NaN instead.
        DerivativeError: For a second derivative, ``torch.func`` and forward mode.

    ``docs/language-models.md`` has an example that runs on two processes.
    """
    check_curve(curve)
    check_divisor(divisor, reduction)
    for name, tensor in (("logits", logits), ("target", target), ("weight", weight)):
        if tensor is not None or name != "weight":
            check_tensor(name, tensor)
    logits, target, weight, group, class_offset = _local_parts(logits, target, weight, group, class_offset)
    if logits.ndim == 0:
        raise ShapeError("logits are a single number: expected (..., classes of this rank).")
    if class_offset is not None and (isinstance(class_offset, bool) or not isinstance(class_offset, int)):
        raise ArgumentError(f"class_offset={class_offset!r}: expected an integer, the number of this rank's first "
                            "class.")
    classes = logits.shape[-1]
    if logits.shape[:-1] != target.shape:
        raise ShapeError(f"logits {tuple(logits.shape)} of this rank's classes need a target of shape "
                         f"{tuple(logits.shape[:-1])}, one label per row; got {tuple(target.shape)}."
                         f"{sequence_hint('logits', logits.shape, target.shape)}")
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"weight of shape {tuple(weight.shape)}: expected ({classes},), the weights of the classes "
                         "that this rank holds.")
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise DerivativeError("weight needs a gradient, which parallel_curve_loss gives to the logits alone. Pass "
                              "weight.detach(), or use curve_loss on the gathered logits.")
    if not torch.compiler.is_compiling() and (in_transform() or has_tangent(logits)):
        raise DerivativeError("parallel_curve_loss has no torch.func transform and no forward-mode derivative. "
                              "Use curve_loss on the gathered logits.")
    first = dist.get_rank(group) * classes if class_offset is None else class_offset
    local = logits.reshape(target.numel(), classes)
    if classes == 0:  # a rank without classes takes part with one class that has probability 0
        local = pad(local, (0, 1), value=-torch.inf)
        weight = None if weight is None else pad(weight, (0, 1))
    rows = as_rows(local, target.reshape(-1))
    ignore_index = check_arguments(rows, weight, ignore_index, reduction, label_smoothing)
    labels = rows.target.long()  # before any comparison: in uint8, -100 is the label 156
    losses, label_weights = _ParallelRows.apply(  # type: ignore[no-untyped-call]
        local, labels, weight, curve, group, ignore_index, label_smoothing, _Span(classes, first))
    if divisor is None and reduction == "mean":
        divisor = label_weights.sum()
    loss = reduce(losses, reduction, divisor)
    return (loss.reshape(target.shape) if reduction == "none" else loss).to(result_dtype(logits))


def _local_parts(logits: Tensor, target: Tensor, weight: Tensor | None, group: Any,
                 class_offset: int | None) -> tuple[Tensor, Tensor, Tensor | None, Any, int | None]:
    """This rank's part of DTensors, the group that shares the classes, and the index of this rank's first class."""
    if not dist.is_available() or not dist.is_initialized():
        raise ArgumentError("parallel_curve_loss needs an initialised torch.distributed process group. "
                            "On one device use curve_loss.")
    from torch.distributed.tensor import DTensor, Replicate, Shard

    target = target.full_tensor() if isinstance(target, DTensor) else target
    weight = weight.to_local() if isinstance(weight, DTensor) else weight
    if not isinstance(logits, DTensor):
        return logits, target, weight, dist.group.WORLD if group is None else group, class_offset
    mesh, last = logits.device_mesh, logits.ndim - 1
    # A strided shard is not a Shard: its classes are not consecutive.
    splits = [type(how) is Shard and how.dim % logits.ndim == last for how in logits.placements]
    replicated = [type(how) is Replicate for how in logits.placements]
    if sum(splits) != 1 or sum(replicated) != len(replicated) - 1:
        raise ArgumentError(f"logits are a DTensor placed as {logits.placements}: expected Shard({last}), the classes, "
                            "on one dimension of the mesh and Replicate() on the others. Pass the local part and the "
                            "group of the mesh dimension that splits the classes.")
    if group is not None or class_offset is not None:
        raise ArgumentError("a DTensor brings its own group and class_offset: leave both out.")
    axis = splits.index(True)
    classes_per_rank = -(-logits.shape[-1] // mesh.size(axis))
    first = min(mesh.get_local_rank(axis) * classes_per_rank, logits.shape[-1])
    return logits.to_local(), target, weight, mesh.get_group(axis), first


class _Span(NamedTuple):
    """The classes that this rank holds."""

    classes: int
    first: int


class _ParallelRows(torch.autograd.Function):
    """Losses of all rows, and the class weights of their labels (0 for ignored rows), the same on every rank."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, group: Any,
                ignore_index: int, smoothing: float, span: _Span) -> tuple[Tensor, Tensor]:
        rank, ignored = dist.get_rank(group), (target == ignore_index)[:, None]
        label = target.long()[:, None] - span.first
        owned = (label >= 0) & (label < span.classes) & ~ignored
        label = label.clamp(0, logits.shape[1] - 1)
        dtype = compute_dtype(logits.dtype)
        own = logits.gather(1, label).to(dtype).masked_fill(~owned, torch.nan)
        # Without smoothing the label is separated from its rivals; with smoothing, this rank's top class is.
        separate = logits.argmax(1, keepdim=True) if smoothing else label
        is_here = torch.ones_like(owned) if smoothing else owned
        shared = [*others_in_blocks(logits, separate, is_here), own]
        if smoothing:
            shared.append(logits.gather(1, separate).to(dtype))
        if weight is not None:
            shared.append(weight.to(dtype)[label])
        gathered, counts, firsts = _gather(shared, span, group)
        _check(target, ignored, counts, firsts)

        # The rank that owns the label is the last one whose first class is at or before it.
        owner = ((firsts[:, None] <= target).sum(0, keepdim=True) - 1).clamp(min=0)
        label_weight = torch.ones_like(own) if weight is None else gathered[:, -1].gather(0, owner).T
        label_weight = label_weight.masked_fill(ignored, 0.0)
        highest_per_rank, totals = gathered[:, 0], gathered[:, 1]
        if not smoothing:
            highest, log_total = combine(highest_per_rank, totals)
            gap = gap_of(gathered[:, 2].gather(0, owner).T, highest, log_total)
            losses = curve.value(gap) * label_weight
            ctx.save_for_backward(logits, ignored, label, owned, highest, log_total, curve.pull(gap) * label_weight)
        else:
            bests = gathered[:, 3]
            best, winner = bests.max(0)
            ranks = torch.arange(len(bests), device=bests.device)[:, None]
            beaten = bests.masked_fill(ranks == winner, -torch.inf)
            highest, log_total = combine(torch.cat([highest_per_rank, beaten]),
                                          torch.cat([totals, torch.ones_like(beaten)]))
            class_weights = 1.0 if weight is None else weight.to(dtype)
            # The class that pads a rank without classes has no mass.
            base = smoothing / counts.sum().to(dtype) * (class_weights if span.classes else 0.0)
            parts = Smoothed(logits, label, (1 - smoothing) * label_weight * owned, separate, (winner == rank)[:, None],
                              best[:, None], gap_of(best[:, None], highest, log_total), base.expand(logits.shape[1]))
            losses, ratios, pull = _wait(functional.all_reduce(smoothed_sums(parts, curve), "sum", group)).unbind()
            ctx.save_for_backward(*parts, ignored, highest, log_total, ratios, pull)
        ctx.curve, ctx.smoothing = curve, smoothing
        ctx.mark_non_differentiable(label_weight)
        return rows_of(losses.masked_fill(ignored, 0.0)), rows_of(label_weight)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        # A compiled graph refuses a second derivative by itself.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise DerivativeError("parallel_curve_loss has no second derivative (create_graph=True): its gradient on "
                                  "one rank depends on the logits of all. Use curve_loss on the gathered logits.")
        saved = ctx.saved_tensors
        smoothed = Smoothed(*saved[:8]) if ctx.smoothing else None
        logits, ignored, *others = saved if smoothed is None else (smoothed.logits, *saved[8:])
        gradient = torch.empty_like(logits)
        for rows in blocks(logits):
            columns = [column[rows] for column in others]
            part = (label_gradient(logits[rows], *columns) if smoothed is None
                    else smoothed_gradient(smoothed.block(rows), ctx.curve, *columns))
            gradient[rows] = (part * upstream[rows, None]).masked_fill(ignored[rows], 0.0)
        return gradient, None, None, None, None, None, None, None


def _gather(columns: list[Tensor], span: _Span, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All ranks' columns, (ranks, columns, rows), each rank's number of classes, and each rank's first class.

    The two counts are sent as one more row, so that finding a wrong split needs no collective of its own.
    """
    last = [span.classes, span.first, *(0 for _ in columns[2:])]
    packed = torch.stack([pad(column[:, 0], (0, 1), value=number)
                          for column, number in zip(columns, last, strict=True)])
    ranks = dist.get_world_size(group)
    gathered = _wait(_all_gather(packed, 0, group)).reshape(ranks, len(columns), -1)
    return gathered[..., :-1], gathered[:, 0, -1].long(), gathered[:, 1, -1].long()


def _wait(tensor: Tensor) -> Tensor:
    return tensor.wait() if isinstance(tensor, functional.AsyncCollectiveTensor) else tensor


def _check(target: Tensor, ignored: Tensor, counts: Tensor, firsts: Tensor) -> None:
    """Refuse a split with gaps, and labels outside it. All ranks check the same numbers, so none waits for another."""
    if torch.compiler.is_compiling():
        return
    consecutive = (counts.cumsum(0) - counts == firsts).all()
    if not values_are_readable(target):
        torch._assert_async(consecutive, "parallel_curve_loss: the ranks' classes do not follow each other: pass "
                                         "class_offset, the number of this rank's first class.")
        return
    if not consecutive:
        raise ShapeError(f"ranks hold {counts.tolist()} classes from {firsts.tolist()} on, which do not follow each "
                         "other. Pass class_offset, the number of this rank's first class, on every rank.")
    wrong = ((target < 0) | (target >= counts.sum())) & ~ignored[:, 0]
    if bool(wrong.any()):
        raise TargetError(f"target holds {target[wrong][0].item()}, but the ranks together have {int(counts.sum())} "
                          f"classes: expected labels from 0 to {int(counts.sum()) - 1}, or ignore_index.")
