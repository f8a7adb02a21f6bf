r"""The loss over a vocabulary that is split across ranks: every rank holds the logits of some consecutive classes.

A row's gap needs two numbers of it, its label's logit and its rivals' logsumexp, and both are cheap to agree on. Every
rank takes the logsumexp of its own rivals, the label left out by the rank that owns it; one all-gather of a few numbers
a row later all ranks know the same gap, from the rivals alone and so exact at any confidence. The gradient on a rank's
own classes then needs nobody else, and the backward pass communicates nothing.

Label smoothing sums over all classes, so one all-reduce follows. With :math:`u_k = s w_k / C + (1-s) w_y [k = y]`,
:math:`r = \text{pull} / (1 - p)` and :math:`m` the top class, kept apart because its :math:`1-p` may be 0,

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
from torch.autograd import forward_ad
from torch.nn.functional import pad

from ..curves import Curve
from ..curves._curve import nll
from ..errors import ArgumentError, DerivativeError, DtypeError, ShapeError, TargetError
from ..targets import as_rows, check_reduction, host_can_look, result_dtype
from .rows import compute_dtype

_BLOCK_BYTES = 1 << 26  # of logits at a time: scratch stays small beside them, and launches are few

# torch 2.13 renames the gathering collective and warns at the old name.
_all_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor


def parallel_curve_loss(logits: Tensor, target: Tensor, curve: Curve, group: Any = None, *,
                        weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
                        label_smoothing: float = 0.0, class_offset: int | None = None) -> Tensor:
    """``curve_loss`` where each rank of ``group`` holds the logits of its own consecutive classes.

    Args:
        logits: this rank's part, (..., classes of this rank), or a DTensor sharded on its last dimension (evenly or
            not), whose mesh then gives ``group`` and ``class_offset`` and whose gradient is sharded likewise.
        target: labels among the classes of all ranks, (...), the same on every rank.
        weight: the class weights of this rank's classes, or a DTensor of all sharded as the logits are.
        class_offset: the number of the first class of this rank. Needed where ranks hold different numbers of
            classes; without it all hold as many. Ranks hold classes in the order of their rank in the group.

    Returns the same plain tensor on every rank. Each rank differentiates it for its own logits: the upstream gradient
    must be the same everywhere, as it is when all ranks compute the same total loss. A label that names no class is
    an error on every rank on the CPU, and NaN elsewhere. Second derivatives are refused.
    """
    if not isinstance(curve, Curve):
        raise DtypeError(f"curve is a {type(curve).__name__}: expected a Curve, such as curves.conservative(0.75).")
    check_reduction(reduction)
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing={label_smoothing!r}: expected a number from 0 to 1.")
    logits, target, weight, group, class_offset = _local_parts(logits, target, weight, group, class_offset)
    classes = logits.shape[-1]
    if logits.shape[:-1] != target.shape:
        raise ShapeError(f"logits {tuple(logits.shape)} of this rank's classes need a target of shape "
                         f"{tuple(logits.shape[:-1])}, one label a row; got {tuple(target.shape)}.")
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"weight of shape {tuple(weight.shape)}: expected ({classes},), the weights of the classes "
                         "that this rank holds.")
    if _transformed(logits):
        raise DerivativeError("parallel_curve_loss has no torch.func transform and no forward-mode derivative. "
                              "Use curve_loss on the gathered logits.")
    first = dist.get_rank(group) * classes if class_offset is None else class_offset
    rows = logits.reshape(target.numel(), classes)
    if classes == 0:  # a rank beyond the last class takes part as one class that is never likely
        rows = pad(rows, (0, 1), value=-torch.inf)
        weight = None if weight is None else pad(weight, (0, 1))
    labels = as_rows(rows, target.reshape(-1)).target
    losses, label_weights = _ParallelRows.apply(  # type: ignore[no-untyped-call]
        rows, labels, weight, curve, group, ignore_index, label_smoothing, (classes, first))
    if reduction == "none":
        loss = losses.reshape(target.shape)
    else:
        loss = losses.sum() if reduction == "sum" else losses.sum() / label_weights.sum()
    return loss.to(result_dtype(logits))  # type: ignore[no-any-return]


def _local_parts(logits: Tensor, target: Tensor, weight: Tensor | None, group: Any,
                 class_offset: int | None) -> tuple[Tensor, Tensor, Tensor | None, Any, int | None]:
    """A DTensor as this rank's part of it, the group that shares its classes, and where its classes start."""
    if not dist.is_available() or not dist.is_initialized():
        raise ArgumentError("parallel_curve_loss needs an initialised torch.distributed process group. "
                            "On one device use curve_loss.")
    from torch.distributed.tensor import DTensor, Replicate, Shard

    target = target.full_tensor() if isinstance(target, DTensor) else target
    weight = weight.to_local() if isinstance(weight, DTensor) else weight
    if not isinstance(logits, DTensor):
        return logits, target, weight, dist.group.WORLD if group is None else group, class_offset
    mesh, last = logits.device_mesh, logits.ndim - 1
    # A strided shard is no Shard: its classes are not consecutive.
    splits = [type(how) is Shard and how.dim % logits.ndim == last for how in logits.placements]
    whole = [type(how) is Replicate for how in logits.placements]
    if sum(splits) != 1 or sum(whole) != len(whole) - 1:
        raise ArgumentError(f"logits are a DTensor placed as {logits.placements}: expected Shard({last}), the classes, "
                            "on one dimension of the mesh and Replicate() on the others. Pass the local part and the "
                            "group of the mesh dimension that splits the classes.")
    if group is not None or class_offset is not None:
        raise ArgumentError("a DTensor brings its own group and class_offset: leave both out.")
    axis = splits.index(True)
    each = -(-logits.shape[-1] // mesh.size(axis))
    first = min(mesh.get_local_rank(axis) * each, logits.shape[-1])
    return logits.to_local(), target, weight, mesh.get_group(axis), first


def _transformed(logits: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    return (torch._C._functorch.maybe_current_level() is not None
            or (forward_ad._current_level >= 0
                and forward_ad.unpack_dual(logits).tangent is not None))  # type: ignore[no-untyped-call]


class _ParallelRows(torch.autograd.Function):
    """Losses of all rows, and the class weights of their labels (0 for ignored rows), alike on every rank."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, group: Any,
                ignore_index: int, smoothing: float, place: tuple[int, int]) -> tuple[Tensor, Tensor]:
        rank, ignored = dist.get_rank(group), (target == ignore_index)[:, None]
        label = target.long()[:, None] - place[1]
        owned = (label >= 0) & (label < place[0]) & ~ignored
        label = label.clamp(0, logits.shape[1] - 1)
        dtype = compute_dtype(logits.dtype)
        own = logits.gather(1, label).to(dtype).masked_fill(~owned, torch.nan)
        # Without smoothing the label stands apart from its rivals; with it, this rank's top class does.
        apart = logits.argmax(1, keepdim=True) if smoothing else label
        taken = torch.ones_like(owned) if smoothing else owned
        shared = [*_rest_in_blocks(logits, apart, taken), own]
        if smoothing:
            shared.append(logits.gather(1, apart).to(dtype))
        if weight is not None:
            shared.append(weight.to(dtype)[label])
        gathered, counts, firsts = _gather(shared, place, group)
        _check(target, ignored, counts, firsts)

        # The rank that owns the label is the last one that starts at or before it.
        owner = ((firsts[:, None] <= target).sum(0, keepdim=True) - 1).clamp(min=0)
        label_weight = torch.ones_like(own) if weight is None else gathered[:, -1].gather(0, owner).T
        label_weight = label_weight.masked_fill(ignored, 0.0)
        highest, totals = gathered[:, 0], gathered[:, 1]
        if not smoothing:
            top, log_total = _combine(highest, totals)
            gap = _gap(gathered[:, 2].gather(0, owner).T, top, log_total)
            losses = curve.value(gap) * label_weight
            ctx.save_for_backward(logits, ignored, label, owned, top, log_total, curve.pull(gap) * label_weight)
        else:
            bests = gathered[:, 3]
            best, winner = bests.max(0)
            ranks = torch.arange(len(bests), device=bests.device)[:, None]
            beaten = bests.masked_fill(ranks == winner, -torch.inf)
            top, log_total = _combine(torch.cat([highest, beaten]), torch.cat([totals, torch.ones_like(beaten)]))
            of_each = 1.0 if weight is None else weight.to(dtype)
            base = smoothing / counts.sum().to(dtype) * (of_each if place[0] else 0.0)  # the class of none has none
            known = (logits, label, (1 - smoothing) * label_weight * owned, apart, (winner == rank)[:, None],
                     best[:, None], _gap(best[:, None], top, log_total), base.expand(logits.shape[1]))
            losses, ratios, pull = _wait(functional.all_reduce(_smoothed_sums(known, curve), "sum", group)).unbind()
            ctx.save_for_backward(logits, ignored, *known[1:], top, log_total, ratios, pull)
        ctx.curve, ctx.smoothing = curve, smoothing
        ctx.mark_non_differentiable(label_weight)
        return losses.masked_fill(ignored, 0.0)[:, 0], label_weight[:, 0]

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


def _rest_in_blocks(logits: Tensor, apart: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
    """The logsumexp of this rank's classes without the one that stands apart, where it is this rank's to take.

    In two parts, the largest logit and the sum of exponentials beside it: their sum would round to the logits' size.
    """
    dtype, parts = compute_dtype(logits.dtype), []
    for rows in _blocks(logits):
        others = _put(logits[rows].to(dtype), apart[rows], taken[rows], -torch.inf)
        top = others.amax(1, keepdim=True)
        parts.append((top, (others - _floor(top)).exp().sum(1, keepdim=True)))
    if not parts:
        return (logits.new_empty((0, 1), dtype=dtype),) * 2
    return torch.cat([top for top, _ in parts]), torch.cat([total for _, total in parts])


def _combine(tops: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
    """The logsumexp of several parts a row, (parts, N), again in two: the largest logit and what the log adds to it."""
    top = _floor(tops.amax(0))
    return top[:, None], (totals * (tops - top).exp()).sum(0).log()[:, None]


def _floor(log: Tensor) -> Tensor:
    """0 in place of -inf, so that what is subtracted from is left alone where there is nothing to subtract."""
    return log.masked_fill(log == -torch.inf, 0.0)


def _gap(own: Tensor, top: Tensor, log_total: Tensor) -> Tensor:
    """A logit above its rivals. A logit of +inf has no gap: NaN, as in torch's cross-entropy."""
    return own.masked_fill(own == torch.inf, torch.nan) - top - log_total


def _label_gradient(block: Any) -> Tensor:
    logits, label, owned, top, log_total, pull = block
    return _put((logits.to(pull.dtype) - top - _floor(log_total)).exp() * pull, label, owned, -pull)


def _smoothed_parts(block: Any, curve: Curve) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mass, gaps, softmax and mass-weighted pulls of this rank's classes. All but the top have p <= 1/2."""
    logits, label, extra, apart, mine, best, gap_of_best, base = block
    logs = _put(logits.to(base.dtype) - best - nll(gap_of_best), apart, mine, -torch.inf)
    probs = logs.exp()
    gaps = _put(logs - torch.log1p(-probs), apart, mine, gap_of_best)
    mass = base.expand_as(gaps).scatter_add(1, label, extra)
    return mass, gaps, _put(probs, apart, mine, torch.sigmoid(gap_of_best)), mass * curve.pull(gaps)


def _ratio(gaps: Tensor, pull: Tensor, apart: Tensor, mine: Tensor) -> Tensor:
    """``pull / (1 - p)`` of all classes but the top one."""
    return _put(pull / torch.sigmoid(-_put(gaps, apart, mine, 0.0)), apart, mine, 0.0)


def _smoothed_sums(known: Any, curve: Curve) -> Tensor:
    """This rank's share of a row's loss, of the sum of ratios, and of the top class's pull: (3, N, 1)."""
    logits, base = known[0], known[-1]
    sums = []
    for rows in _blocks(logits):
        block = [part if part is base else part[rows] for part in known]
        mass, gaps, _, pull = _smoothed_parts(block, curve)
        apart, mine = block[3:5]
        values = torch.where(mass == 0, 0.0, mass * curve.value(gaps))
        sums.append(torch.stack([values.sum(1, keepdim=True), _ratio(gaps, pull, apart, mine).sum(1, keepdim=True),
                                 pull.gather(1, apart).masked_fill(~mine, 0.0)]))
    return torch.cat(sums, 1) if sums else base.new_empty((3, 0, 1))


def _smoothed_gradient(block: Any, curve: Curve) -> Tensor:
    *parts, top, log_total, ratios, pull_of_best = block
    logits, _, _, apart, mine, *_ = parts
    _, gaps, softmax, pull = _smoothed_parts(parts, curve)
    pushed = (logits.to(pull.dtype) - top - _floor(log_total)).exp() * pull_of_best
    gradient: Tensor = softmax * ratios - _ratio(gaps, pull, apart, mine) + _put(pushed, apart, mine, -pull_of_best)
    return gradient


def _gather(columns: list[Tensor], place: tuple[int, int], group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All ranks' columns, (ranks, columns, rows), with how many classes each holds and from which on.

    The two counts travel as one more row, so that a wrong split is found without a collective of its own.
    """
    packed = torch.stack([pad(column[:, 0], (0, 1), value=place[min(i, 1)]) for i, column in enumerate(columns)])
    ranks = dist.get_world_size(group)
    gathered = _wait(_all_gather(packed, 0, group)).reshape(ranks, len(columns), -1)
    return gathered[..., :-1], gathered[:, 0, -1].long(), gathered[:, 1, -1].long()


def _wait(tensor: Tensor) -> Tensor:
    return tensor.wait() if isinstance(tensor, functional.AsyncCollectiveTensor) else tensor


def _check(target: Tensor, ignored: Tensor, counts: Tensor, firsts: Tensor) -> None:
    """Refuse a split with holes, and labels outside it. All ranks see the same numbers, so none is left waiting."""
    if torch.compiler.is_compiling():
        return
    consecutive = (counts.cumsum(0) - counts == firsts).all()
    if not host_can_look(target):
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
