"""A row of logits to a number, with its gradient in closed form: what every loss is made of.

Two operations carry the package. :func:`label_rows` is ``phi(p_y)`` for a label, :func:`mass_rows` is
``sum_k u_k phi(p_k)`` for a mass over the classes (soft targets, label smoothing). Each is an autograd Function that

* has a forward-mode rule, a hand-written ``vmap`` that folds the batch into rows, and a backward that recomputes in
  differentiable operations whenever somebody may differentiate it again, so every transform of ``torch.func``, double
  backward and ``torch.compile(fullgraph=True)`` are right;
* otherwise walks over blocks of rows that stay in the cache and writes nothing of the logits' size but the gradient.

``masses.py`` has a faster form of the second for some curves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..curves import Curve
from ..errors import TargetError
from ..links import class_gaps, gap_and_rivals, label_gap, rival_weights, without
from ..targets import host_can_look

_BLOCK_BYTES = {"cpu": 1 << 20}  # a block and its scratch copy stay in the second-level cache
_BLOCK_BYTES_ELSEWHERE = 1 << 29  # scratch stays small beside the logits, and launches are few


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Half precisions are computed in float32."""
    return dtype if dtype == torch.float64 else torch.float32


def label_rows(logits: Tensor, target: Tensor, curve: Curve, ignore_index: int = -100) -> Tensor:
    """``phi(p_y)`` of every row of ``logits`` (N, C), 0 where ``target`` (N) is ``ignore_index``; at least float32."""
    return known_label_rows(logits, *split_ignored(logits, target, ignore_index), curve)


def known_label_rows(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve) -> Tensor:
    """:func:`label_rows` of what :func:`split_ignored` returns."""
    if function_is_blind():
        z = leave_out(logits, ignored).to(compute_dtype(logits.dtype))
        return leave_out(curve.value(gap_and_rivals(z, label)[0]), ignored)[:, 0]
    op = _LabelRows if torch.compiler.is_compiling() else _LabelRowsForward
    return apply(op, logits, label, ignored, curve)[0]  # type: ignore[no-any-return]


def mass_rows(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """``sum_k u_k phi(p_k)`` of every row, for a mass ``u`` (N, C) that need not sum to 1; at least float32."""
    if function_is_blind():
        dtype = compute_dtype(logits.dtype)
        return mass_values(logits.to(dtype), mass.to(dtype), curve)
    op = _MassRows if torch.compiler.is_compiling() else _MassRowsForward
    return apply(op, logits, mass, curve)  # type: ignore[no-any-return]


def function_is_blind() -> bool:
    """Whether an autograd Function would lose a derivative here, so that plain operations have to do.

    ``torch.compile`` forgets a Function's ``vmap``, and a forward-mode rule does not see a second forward mode around
    it: ``jacfwd(jacfwd(f))`` would be 0 without a word.
    """
    if not torch._C._are_functorch_transforms_active():
        return False
    if torch.compiler.is_compiling():
        return True
    levels = torch._C._functorch.get_interpreter_stack() or []
    return sum(level.key() == torch._C._functorch.TransformType.Jvp for level in levels) > 1


def apply(op: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``op.apply(*arguments)``."""
    if is_plain():
        # Function.apply binds its arguments to forward's signature at every call: a tenth of a small batch's time.
        return super(torch.autograd.Function, op).apply(*arguments)  # type: ignore[misc]
    return op.apply(*arguments)  # type: ignore[no-untyped-call]


def is_differentiated(upstream: Tensor) -> bool:
    """Whether a backward pass must itself be traced, differentiated or batched (``is_grads_batched``)."""
    return (torch.is_grad_enabled() or not is_plain() or forward_ad._current_level >= 0
            or torch._C._functorch.is_legacy_batchedtensor(upstream))


def is_plain() -> bool:
    """Whether tensors are ordinary ones: no tracing, no functional transform."""
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is None


def in_blocks(logits: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors in blocks of rows: all at once for a tracer, else as many as keep a block's scratch small."""
    rows = logits.shape[0]
    if is_plain():
        budget = _BLOCK_BYTES.get(logits.device.type, _BLOCK_BYTES_ELSEWHERE)
        rows = max(1, budget // max(1, logits.shape[1] * compute_dtype(logits.dtype).itemsize))
    if rows >= logits.shape[0]:
        yield logits, *others
    else:
        yield from zip(*(torch.split(tensor, rows) for tensor in (logits, *others)), strict=True)


def split_ignored(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Labels (N, 1) that are safe to gather with, and the column of rows to leave out, None where there are none.

    A label that names no class is an error where the host can look. Elsewhere it reaches the gather: a device assert
    on a GPU, an index error from compiled code.
    """
    ignored: Tensor | None = None
    if not host_can_look(target):
        target = target.long()  # before the comparison: in uint8, -100 is the label 156
        ignored = target == ignore_index
        return target.masked_fill(ignored, 0)[:, None], ignored[:, None]
    low, high = _range(target)
    if low <= ignore_index <= high:
        ignored = (target == ignore_index)[:, None]
        target = target.masked_fill(ignored[:, 0], 0)
        low, high = _range(target)
    classes = logits.shape[1]
    if low < 0 or high >= classes:
        raise TargetError(f"target holds the label {low if low < 0 else high}, but there are {classes} classes: "
                          f"expected labels from 0 to {classes - 1}, or ignore_index={ignore_index} for rows to "
                          "leave out.")
    return target.long()[:, None], ignored


def _range(labels: Tensor) -> tuple[int, int]:
    if not labels.numel():
        return 0, 0
    low, high = labels.aminmax()
    return int(low), int(high)


def leave_out(rows: Tensor, ignored: Tensor | None) -> Tensor:
    """0 in the rows to leave out."""
    return rows if ignored is None else rows.masked_fill(ignored, 0.0)


# One label a row


def _rivals_in_blocks(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The top rival's logit, and the sum of the rivals' exponentials relative to it: 0 where all are at -inf."""
    dtype = compute_dtype(logits.dtype)
    top, total = torch.empty_like(label, dtype=dtype), torch.empty_like(label, dtype=dtype)
    for z, y, high, mass in in_blocks(logits, label, top, total):
        others = without(z, y) if z.dtype == dtype else z.to(dtype).scatter_(-1, y, -torch.inf)
        torch.amax(others, -1, keepdim=True, out=high).clamp_(min=torch.finfo(dtype).min)
        torch.sum(others.sub_(high).exp_(), -1, keepdim=True, out=mass)
    return top, total


def _label_gradient_in_blocks(logits: Tensor, label: Tensor, top: Tensor, total: Tensor, pull: Tensor) -> Tensor:
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    push = pull / total.clamp(min=1)  # the top rival alone adds 1; less is no rival at all
    for z, y, high, on_rivals, on_label, out in in_blocks(logits, label, top, push, pull, gradient):
        part = out if out.dtype == high.dtype else torch.empty_like(out, dtype=high.dtype)
        torch.sub(z, high, out=part).exp_().mul_(on_rivals).scatter_(-1, y, -on_label)
        if part is not out:
            out.copy_(part)
    return gradient


class _LabelRows(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve) -> tuple[Tensor, ...]:
        if is_plain():
            top, total = _rivals_in_blocks(logits, label)
        else:
            top, _, total = rival_weights(logits.to(compute_dtype(logits.dtype)), label)
        gap = label_gap(logits, label, top, total.log())
        return leave_out(curve.value(gap), ignored)[:, 0], gap, top, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, label, ignored, ctx.curve = inputs
        _, gap, top, total = output
        ctx.mark_non_differentiable(gap, top, total)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, label, ignored, gap, top, total)
        ctx.save_for_forward(logits, label, ignored)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Tensor | None, None, None, None]:
        if upstream is None:
            return None, None, None, None
        logits, label, ignored, gap, top, total = ctx.saved_tensors
        if is_differentiated(upstream):
            # Whatever an ignored row holds (NaN among it) must not reach a second derivative.
            gap, rivals = gap_and_rivals(leave_out(logits, ignored).to(compute_dtype(logits.dtype)), label)
            pull = ctx.curve.pull(gap) * upstream[:, None]
            gradient = (pull * rivals).scatter(-1, label, -pull)
            return leave_out(gradient, ignored).to(logits.dtype), None, None, None
        gradient = _label_gradient_in_blocks(logits, label, top, total, ctx.curve.pull(gap) * upstream[:, None])
        if ignored is not None:
            gradient.masked_fill_(ignored, 0.0)
        return gradient, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], logits: Tensor, label: Tensor, ignored: Tensor | None,
             curve: Curve) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        size = info.batch_size
        folded = None if ignored is None else _fold(ignored, in_dims[2], size)
        outputs = _LabelRowsForward.apply(  # type: ignore[no-untyped-call]
            _fold(logits, in_dims[0], size), _fold(label, in_dims[1], size), folded, curve)
        return tuple(_unfold(output, size) for output in outputs), (0, 0, 0, 0)


class _LabelRowsForward(_LabelRows):
    """With the forward-mode rule, which ``torch.compile(fullgraph=True)`` refuses to see on a Function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, *_: None) -> tuple[Tensor | None, None, None, None]:
        if tangent is None:
            return None, None, None, None
        logits, label, ignored = ctx.saved_tensors
        dtype = compute_dtype(logits.dtype)
        gap, rivals = gap_and_rivals(leave_out(logits, ignored).to(dtype), label)
        growth = tangent.gather(-1, label) - (rivals * tangent).sum(-1, keepdim=True)
        return leave_out(-ctx.curve.pull(gap) * growth, ignored)[:, 0].to(dtype), None, None, None


# A mass over the classes of a row


def mass_values(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """A class of no mass adds nothing, also where its value is infinite."""
    return torch.where(mass == 0, 0.0, mass * curve.value(class_gaps(logits)[0])).sum(-1)


def mass_gradient(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    r"""``p_j sum_k u_k r_k - u_j r_j`` with ``r = pull / (1 - p)``, the top class apart because its 1 - p may be 0."""
    gaps, softmax, top, rivals_of_top = class_gaps(logits)
    pull = mass * curve.pull(gaps)
    pull_of_top = pull.gather(-1, top)
    ratio = (pull / torch.sigmoid(-gaps.scatter(-1, top, 0.0))).scatter(-1, top, 0.0)
    return (softmax * ratio.sum(-1, keepdim=True) - ratio
            + (pull_of_top * rivals_of_top).scatter(-1, top, -pull_of_top))


class _MassRows(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
        dtype = compute_dtype(logits.dtype)
        if not is_plain():
            return mass_values(logits.to(dtype), mass.to(dtype), curve)
        out = logits.new_empty(logits.shape[0], dtype=dtype)
        for z, u, rows in in_blocks(logits, mass, out):
            rows.copy_(mass_values(z.to(dtype), u.to(dtype), curve))
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
        by_mass = None
        if ctx.needs_input_grad[1]:
            by_mass = (upstream[:, None] * ctx.curve.value(class_gaps(logits.to(dtype))[0])).to(mass.dtype)
        if is_differentiated(upstream):
            gradient = upstream[:, None] * mass_gradient(logits.to(dtype), mass.to(dtype), ctx.curve)
            return gradient.to(logits.dtype), by_mass, None
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        for z, u, up, out in in_blocks(logits, mass, upstream[:, None], gradient):
            out.copy_(mass_gradient(z.to(dtype), u.to(dtype), ctx.curve).mul_(up))
        return gradient, by_mass, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], logits: Tensor, mass: Tensor, curve: Curve) -> tuple[Tensor, int]:
        size = info.batch_size
        rows = mass_rows(_fold(logits, in_dims[0], size), _fold(mass, in_dims[1], size), curve)
        return _unfold(rows, size), 0


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
    """A batch of rows as more rows; what is shared by the batch is repeated."""
    batched = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return batched.flatten(0, 1)


def _unfold(rows: Tensor, size: int) -> Tensor:
    return rows.reshape(size, rows.shape[0] // size, *rows.shape[1:])
