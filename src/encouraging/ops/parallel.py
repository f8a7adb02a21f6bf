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

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.nn.functional import pad

from ..curves import Curve
from ..curves._curve import check_curve, nll
from ..errors import ArgumentError, DerivativeError, ShapeError, TargetError
from ..targets import as_rows, check_arguments, check_tensor, result_dtype, sequence_hint
from ..torch_state import has_tangent, in_transform, values_are_readable
from .reduction import Divisor, check_divisor, reduce, rows_of
from .rows import compute_dtype

_BLOCK_BYTES = 1 << 26  # of logits at a time: small scratch memory, few kernel launches

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
        curve: What is taught at which confidence, see :mod:`encouraging.curves`.
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
        local, labels, weight, curve, group, ignore_index, label_smoothing, (classes, first))
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


class _ParallelRows(torch.autograd.Function):
    """Losses of all rows, and the class weights of their labels (0 for ignored rows), the same on every rank."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, group: Any,
                ignore_index: int, smoothing: float, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        rank, ignored = dist.get_rank(group), (target == ignore_index)[:, None]
        label = target.long()[:, None] - span[1]
        owned = (label >= 0) & (label < span[0]) & ~ignored
        label = label.clamp(0, logits.shape[1] - 1)
        dtype = compute_dtype(logits.dtype)
        own = logits.gather(1, label).to(dtype).masked_fill(~owned, torch.nan)
        # Without smoothing the label is separated from its rivals; with smoothing, this rank's top class is.
        separate = logits.argmax(1, keepdim=True) if smoothing else label
        is_here = torch.ones_like(owned) if smoothing else owned
        shared = [*_others_in_blocks(logits, separate, is_here), own]
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
            highest, log_total = _combine(highest_per_rank, totals)
            gap = _gap(gathered[:, 2].gather(0, owner).T, highest, log_total)
            losses = curve.value(gap) * label_weight
            ctx.save_for_backward(logits, ignored, label, owned, highest, log_total, curve.pull(gap) * label_weight)
        else:
            bests = gathered[:, 3]
            best, winner = bests.max(0)
            ranks = torch.arange(len(bests), device=bests.device)[:, None]
            beaten = bests.masked_fill(ranks == winner, -torch.inf)
            highest, log_total = _combine(torch.cat([highest_per_rank, beaten]),
                                          torch.cat([totals, torch.ones_like(beaten)]))
            class_weights = 1.0 if weight is None else weight.to(dtype)
            # The class that pads a rank without classes has no mass.
            base = smoothing / counts.sum().to(dtype) * (class_weights if span[0] else 0.0)
            parts = (logits, label, (1 - smoothing) * label_weight * owned, separate, (winner == rank)[:, None],
                     best[:, None], _gap(best[:, None], highest, log_total), base.expand(logits.shape[1]))
            losses, ratios, pull = _wait(functional.all_reduce(_smoothed_sums(parts, curve), "sum", group)).unbind()
            ctx.save_for_backward(logits, ignored, *parts[1:], highest, log_total, ratios, pull)
        ctx.curve, ctx.smoothing = curve, smoothing
        ctx.mark_non_differentiable(label_weight)
        return rows_of(losses.masked_fill(ignored, 0.0)), rows_of(label_weight)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        # A compiled graph refuses a second derivative by itself.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise DerivativeError("parallel_curve_loss has no second derivative (create_graph=True): its gradient on "
                                  "one rank depends on the logits of all. Use curve_loss on the gathered logits.")
        logits, ignored, *saved = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for rows in _blocks(logits):
            block = [logits[rows], *(part if part.ndim == 1 else part[rows] for part in saved)]
            part = _smoothed_gradient(block, ctx.curve) if ctx.smoothing else _label_gradient(block)
            gradient[rows] = (part * upstream[rows, None]).masked_fill(ignored[rows], 0.0)
        return gradient, None, None, None, None, None, None, None


def _blocks(logits: Tensor) -> Iterator[slice]:
    rows = max(1, _BLOCK_BYTES // (logits.shape[1] * compute_dtype(logits.dtype).itemsize))
    if torch.compiler.is_compiling():
        rows = max(1, logits.shape[0])
    for start in range(0, logits.shape[0], rows):
        yield slice(start, start + rows)


def _put(tensor: Tensor, column: Tensor, where: Tensor, value: Tensor | float) -> Tensor:
    """``tensor`` with ``value`` in ``column`` of the rows ``where``."""
    return tensor.scatter(1, column, torch.where(where, value, tensor.gather(1, column)))


def _others_in_blocks(logits: Tensor, separate: Tensor, is_here: Tensor) -> tuple[Tensor, Tensor]:
    """The logsumexp of this rank's classes without the one that is ``separate``, in the rows where it ``is_here``.

    In two parts, the highest logit and the sum of exponentials relative to it: added, they would be rounded at the size
    of the logits.
    """
    dtype, parts = compute_dtype(logits.dtype), []
    for rows in _blocks(logits):
        others = _put(logits[rows].to(dtype), separate[rows], is_here[rows], -torch.inf)
        highest = others.amax(1, keepdim=True)
        parts.append((highest, (others - _finite(highest)).exp().sum(1, keepdim=True)))
    if not parts:
        return (logits.new_empty((0, 1), dtype=dtype),) * 2
    return torch.cat([highest for highest, _ in parts]), torch.cat([total for _, total in parts])


def _combine(highest_of_parts: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
    """The logsumexp of several parts per row, (parts, N), again in two: the highest logit, and the logarithm of the sum
    of exponentials relative to it."""
    highest = _finite(highest_of_parts.amax(0))
    return highest[:, None], (totals * (highest_of_parts - highest).exp()).sum(0).log()[:, None]


def _finite(log: Tensor) -> Tensor:
    """0 in place of -inf, so that it can be subtracted from -inf."""
    return log.masked_fill(log == -torch.inf, 0.0)


def _gap(own: Tensor, highest: Tensor, log_total: Tensor) -> Tensor:
    """A logit minus its rivals' logsumexp. A logit of +inf has no gap: NaN, as in torch's cross-entropy."""
    return own.masked_fill(own == torch.inf, torch.nan) - highest - log_total


def _label_gradient(block: Any) -> Tensor:
    logits, label, owned, highest, log_total, pull = block
    return _put((logits.to(pull.dtype) - highest - _finite(log_total)).exp() * pull, label, owned, -pull)


def _smoothed_parts(block: Any, curve: Curve) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mass, gaps, softmax and mass-weighted pulls of this rank's classes. All but the top class have p <= 1/2."""
    logits, label, extra, separate, is_here, best, gap_of_best, base = block
    logs = _put(logits.to(base.dtype) - best - nll(gap_of_best), separate, is_here, -torch.inf)
    probs = logs.exp()
    gaps = _put(logs - torch.log1p(-probs), separate, is_here, gap_of_best)
    mass = base.expand_as(gaps).scatter_add(1, label, extra)
    return mass, gaps, _put(probs, separate, is_here, torch.sigmoid(gap_of_best)), mass * curve.pull(gaps)


def _ratio(gaps: Tensor, pull: Tensor, separate: Tensor, is_here: Tensor) -> Tensor:
    """``pull / (1 - p)`` of all classes but the top class."""
    return _put(pull / torch.sigmoid(-_put(gaps, separate, is_here, 0.0)), separate, is_here, 0.0)


def _smoothed_sums(parts: Any, curve: Curve) -> Tensor:
    """This rank's part of every row's loss, of its sum of ratios, and of its top class's pull: (3, N, 1)."""
    logits, base = parts[0], parts[-1]
    sums = []
    for rows in _blocks(logits):
        block = [part if part is base else part[rows] for part in parts]
        mass, gaps, _, pull = _smoothed_parts(block, curve)
        separate, is_here = block[3:5]
        values = torch.where(mass == 0, 0.0, mass * curve.value(gaps))
        ratios = _ratio(gaps, pull, separate, is_here)
        sums.append(torch.stack([values.sum(1, keepdim=True), ratios.sum(1, keepdim=True),
                                 pull.gather(1, separate).masked_fill(~is_here, 0.0)]))
    return torch.cat(sums, 1) if sums else base.new_empty((3, 0, 1))


def _smoothed_gradient(block: Any, curve: Curve) -> Tensor:
    *parts, highest, log_total, ratios, pull_of_best = block
    logits, _, _, separate, is_here, *_ = parts
    _, gaps, softmax, pull = _smoothed_parts(parts, curve)
    pushed = (logits.to(pull.dtype) - highest - _finite(log_total)).exp() * pull_of_best
    gradient: Tensor = (softmax * ratios - _ratio(gaps, pull, separate, is_here)
                        + _put(pushed, separate, is_here, -pull_of_best))
    return gradient


def _gather(columns: list[Tensor], span: tuple[int, int], group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All ranks' columns, (ranks, columns, rows), each rank's number of classes, and each rank's first class.

    The two counts are sent as one more row, so that finding a wrong split needs no collective of its own.
    """
    packed = torch.stack([pad(column[:, 0], (0, 1), value=span[min(i, 1)]) for i, column in enumerate(columns)])
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
