r"""Output layer and loss together: the logits exist for a few rows at a time and never as a whole.

For each chunk of rows the logits are written to one buffer, become the gradient :math:`G` of their own losses in place,
and are spent at once: :math:`G W` is the gradient on the chunk's inputs and :math:`G^\top H` is added to the weight's.
The gradients of ``mean`` and ``sum`` are therefore ready when the forward pass ends; the backward pass multiplies them
by the upstream gradient, once. Asked again (``retain_graph=True``), or for ``none``, whose upstream gradient has a
number for each row, it walks over the chunks anew.

**How many rows.** Each chunk reads and writes the whole gradient of the weight for work that grows with its rows, so
the price of adding up depends on the rows and the accumulator's bytes a number alone: 1024 rows a byte, 4096 for
float32 and 2048 for bfloat16, keep it at about 6% of the three products on an H200. Past 2 GiB of logits a chunk has
fewer rows. Beside the gradients themselves the memory is one chunk: for 8192 rows of width 4096, 128256 classes and
bfloat16, 2004 MiB of float32 accumulator + 1002 of logits + 64 of input gradient (in bfloat16: 1002 + 501 + 64),
where the plain layer and cross-entropy take 6012.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from ..curves import Curve
from ..errors import ArgumentError, DerivativeError, DtypeError, ShapeError
from ..targets import as_rows, check_arguments, result_dtype
from . import dispatch, reference
from .rows import compute_dtype

_ROWS_A_BYTE = 1024
_MOST_BYTES = 1 << 31
_ALIGN = 128  # rows of a tile of the matrix products

ACCUMULATORS = ("float32", "weight")


class Layer(NamedTuple):
    """What is multiplied: rows (N, D), and the output layer."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None


class Plan(NamedTuple):
    """What does not change from chunk to chunk."""

    curve: Curve
    soft: bool
    ignore_index: int
    reduction: str
    label_smoothing: float
    chunk_bytes: int | None
    accumulate: str
    impl: str  # "triton", "reference", or "closed": the reference's formulas below autograd
    dtype: torch.dtype  # of the logits
    differentiate: bool

    def chunk(self, layer: Layer) -> tuple[int, torch.dtype]:
        """Rows of a chunk, and the type in which the weight's gradient is added up."""
        n, weight = layer.hidden.shape[0], layer.weight
        total_dtype = compute_dtype(weight.dtype)
        if self.accumulate == "weight" and weight.dtype != torch.float16:
            total_dtype = weight.dtype
        rows = chunk_rows(n, weight.shape[0], self.dtype.itemsize, total_dtype.itemsize, self.chunk_bytes)
        if rows >= n and weight.dtype != torch.float16:
            total_dtype = weight.dtype  # one product adds up in float32 by itself
        return rows, total_dtype

    def buffers(self, layer: Layer, needs: tuple[bool, ...]) -> list[Tensor | None]:
        """Room for the gradients that are needed."""
        hidden, weight, _ = layer
        by_hidden = torch.empty_like(hidden, memory_format=torch.contiguous_format) if needs[0] else None
        by_weight = hidden.new_empty(weight.shape, dtype=self.chunk(layer)[1]) if needs[1] else None
        by_bias = hidden.new_empty(weight.shape[0], dtype=compute_dtype(self.dtype)) if needs[2] else None
        return [by_hidden, by_weight, by_bias]


def linear_curve_loss(hidden: Tensor, weight: Tensor, target: Tensor, curve: Curve, bias: Tensor | None = None,
                      class_weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
                      label_smoothing: float = 0.0, *, chunk_bytes: int | None = None, accumulate: str = "float32",
                      impl: str = "auto") -> Tensor:
    """``curve_loss(F.linear(hidden, weight, bias), target, curve, class_weight, ...)`` in chunks of rows.

    Args:
        hidden: (..., D), what the output layer reads.
        weight: (C, D) and ``bias`` (C), the output layer. What needs no gradient costs none.
        target: labels (...) or probabilities (..., C).
        chunk_bytes: the most bytes of logits that exist at a time; see the module for the default.
        accumulate: how the chunks' gradients of the weight are added up: in ``"float32"``, or in the ``"weight"``'s
            own type, half the memory and the less exact the more chunks there are. float16 always adds up in
            float32, because sums over rows leave its range.

    ``torch.func`` transforms, forward-mode derivatives and targets that need a gradient take the plain layer and loss;
    a second derivative is refused. ``torch.compile`` sees one node, except for a curve of your own, at which it leaves
    its graph and comes back (``fullgraph=True`` says so).

    >>> from encouraging import curves
    >>> hidden, layer = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    >>> linear_curve_loss(hidden, layer, torch.tensor([0]), curves.normal())  # logits 4, 0, 0: log 2 - 4
    tensor(-3.3069)
    """
    if not isinstance(curve, Curve):
        raise DtypeError(f"curve is a {type(curve).__name__}: expected a Curve, such as curves.conservative(0.75).")
    work: Callable[..., Tensor] = _linear_curve_loss
    if torch.compiler.is_compiling() and not _travels(curve):
        work = torch.compiler.disable(work)  # type: ignore[no-untyped-call] # here and not as a decorator, which would import the compiler
    return work(hidden, weight, target, curve, bias, class_weight, ignore_index, reduction, label_smoothing,
                chunk_bytes, accumulate, impl)


def _linear_curve_loss(hidden: Tensor, weight: Tensor, target: Tensor, curve: Curve, bias: Tensor | None,
                       class_weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float,
                       chunk_bytes: int | None, accumulate: str, impl: str) -> Tensor:
    for name, given in (("hidden", hidden), ("weight", weight), ("target", target), ("bias", bias)):
        if not isinstance(given, Tensor) and not (given is None and name == "bias"):
            raise DtypeError(f"{name} is a {type(given).__name__}: expected a tensor.")
        if given is not None and given.device != hidden.device:
            raise ArgumentError(f"hidden is on {hidden.device} but {name} on {given.device}: move one of them.")
    dtype = _logits_dtype(hidden, weight, bias)
    if hidden.ndim == 0 or weight.ndim != 2 or hidden.shape[-1] != weight.shape[1]:
        raise ShapeError(f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} do not multiply: expected "
                         "(..., D) and (C, D).")
    classes, lead = weight.shape[0], hidden.shape[:-1]
    if bias is not None and bias.shape != (classes,):
        raise ShapeError(f"bias of shape {tuple(bias.shape)}: expected ({classes},), one number a class.")
    if target.shape not in (lead, (*lead, classes)):
        raise ShapeError(f"target of shape {tuple(target.shape)} for hidden {tuple(hidden.shape)} and {classes} "
                         f"classes: expected labels {tuple(lead)} or probabilities {(*lead, classes)}.")
    if accumulate not in ACCUMULATORS:
        raise ArgumentError(f"accumulate={accumulate!r}: expected 'float32' or 'weight'.")
    if chunk_bytes is not None and (not isinstance(chunk_bytes, int) or chunk_bytes <= 0):
        raise ArgumentError(f"chunk_bytes={chunk_bytes!r}: expected a positive number of bytes, or None.")
    rows = hidden.reshape(-1, hidden.shape[-1])
    labels = target.reshape(-1) if target.shape == lead else target.reshape(-1, classes)
    if labels.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        labels = labels.long()  # before any comparison: in uint8 the ignore_index -100 is the label 156
    # Stands for the logits wherever only their shape, type and device matter: one number, however large.
    logits = hidden.detach().new_zeros((), dtype=dtype).expand(rows.shape[0], classes)
    soft = as_rows(logits, labels).soft
    check_arguments(as_rows(logits, labels), class_weight, ignore_index, reduction, label_smoothing)
    if target.requires_grad or _transformed(hidden, weight, bias):
        logits = F.linear(rows, weight, bias)
        arguments: dict[str, Any] = {"weight": class_weight, "label_smoothing": label_smoothing, "reduction": reduction}
        loss = (reference.soft_loss(logits, labels, curve, **arguments) if soft
                else reference.hard_loss(logits, labels, curve, ignore_index=ignore_index, **arguments))
    else:
        impl = dispatch.choose(impl, logits, labels, curve)
        plan = Plan(curve, soft, ignore_index, reduction, label_smoothing, chunk_bytes, accumulate, impl, dtype,
                    torch.is_grad_enabled())
        if torch.compiler.is_compiling():
            from . import linear_compiled

            loss = linear_compiled.loss(Layer(rows, weight, bias), labels, class_weight, plan)
        else:
            loss = _LinearLoss.apply(rows, weight, bias, labels, class_weight, plan)  # type: ignore[no-untyped-call]
    return (loss.reshape(lead) if reduction == "none" else loss).to(result_dtype(logits))


def _logits_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype:
    """The type in which ``F.linear`` would compute, under autocast or without."""
    dtypes = {tensor.dtype for tensor in (hidden, weight, bias) if tensor is not None}
    if not all(dtype.is_floating_point for dtype in dtypes):
        raise DtypeError(f"hidden, weight and bias are {sorted(map(str, dtypes))}: expected floating-point tensors.")
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and torch.float64 not in dtypes:
        return torch.get_autocast_dtype(device)
    if len(dtypes) > 1:
        raise DtypeError(f"hidden, weight and bias are {sorted(map(str, dtypes))}: expected one type. Convert them, or "
                         "run under torch.autocast.")
    return hidden.dtype


def _transformed(*tensors: Tensor | None) -> bool:
    if torch._C._functorch.maybe_current_level() is not None:
        return True
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]
        for tensor in tensors if tensor is not None)


def chunk_rows(rows: int, classes: int, logits_bytes: int, accumulator_bytes: int, chunk_bytes: int | None) -> int:
    """Rows of a chunk: as many as the budget allows, spread evenly over the chunks, whole tiles where possible.

    >>> chunk_rows(8192, 128256, 2, 4, None), chunk_rows(8192, 128256, 2, 2, None)
    (4096, 2048)
    >>> chunk_rows(5000, 32000, 2, 4, None)  # two chunks: not 4096 and 904 rows
    2560
    """
    most = (chunk_bytes or _MOST_BYTES) // max(1, classes * logits_bytes)
    if chunk_bytes is None:
        most = min(most, _ROWS_A_BYTE * min(4, accumulator_bytes))
    most = max(1, most - most % _ALIGN if most > _ALIGN else most)
    chunks = max(1, -(-rows // most))
    even = -(-rows // chunks)
    return max(1, min(most, even + -even % _ALIGN, rows))


def _travels(curve: Curve) -> bool:
    from . import linear_compiled

    return linear_compiled.travels(curve)


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
                class_weight: Tensor | None, plan: Plan) -> Tensor:
        needs = ctx.needs_input_grad[:3] if plan.differentiate and plan.reduction != "none" else (False,) * 3
        losses, ctx.gradients = walk(Layer(hidden, weight, bias), target, class_weight, plan, needs)
        count = _denominator(losses, target, class_weight, plan) if plan.reduction == "mean" else None
        ctx.plan = plan
        ctx.save_for_backward(hidden, weight, bias, target, class_weight, count)
        if plan.reduction == "none":
            return losses
        return losses.sum() if count is None else losses.sum() / count

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise DerivativeError("linear_curve_loss has no second derivative (create_graph=True): its gradient is "
                                  "made in the forward pass. Use curve_loss on the logits of F.linear.")
        hidden, weight, bias, target, class_weight, count = ctx.saved_tensors
        each = upstream if ctx.plan.reduction == "none" else None
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or each is not None:
            needs = ctx.needs_input_grad[:3]
            _, gradients = walk(Layer(hidden, weight, bias), target, class_weight, ctx.plan, needs, each)
        scale = None if each is not None else upstream
        if count is not None:  # all rows ignored: the gradient is 0, as torch's, though the mean is NaN
            scale = torch.where(count == 0, 0.0, upstream / count)
        finished = (_finish(*pair, scale) for pair in zip(gradients, (hidden, weight, bias), strict=True))
        return *finished, None, None, None


def mean_of(total: Tensor, target: Tensor, class_weight: Tensor | None, plan: Plan) -> Tensor:
    """The mean from the sum. All rows ignored: the gradient is 0, as torch's, though the mean is NaN."""
    count = _denominator(total.detach(), target, class_weight, plan)
    return torch.where(count == 0, torch.nan, total / torch.where(count == 0, 1.0, count))


def _denominator(losses: Tensor, target: Tensor, class_weight: Tensor | None, plan: Plan) -> Tensor:
    """What the mean divides by, on the device."""
    if plan.soft:
        return losses.new_full((), target.shape[0])
    ignored = target == plan.ignore_index
    if class_weight is None:
        return (~ignored).sum().to(losses.dtype)
    return class_weight.to(losses.dtype)[target.masked_fill(ignored, 0)].masked_fill(ignored, 0.0).sum()


def _finish(gradient: Tensor | None, like: Tensor, scale: Tensor | None) -> Tensor | None:
    """The gradient times ``scale`` in the type of what it belongs to. Its memory is reused: it is nobody else's."""
    if gradient is None:
        return None
    if gradient.dtype != like.dtype:
        finished = torch.empty_like(gradient, dtype=like.dtype)
        scale = gradient.new_ones(()) if scale is None else scale
        return torch.mul(gradient, scale, out=finished)
    return gradient if scale is None else gradient.mul_(scale)


def walk(layer: Layer, target: Tensor, class_weight: Tensor | None, plan: Plan, needs: tuple[bool, ...],
         upstream: Tensor | None = None) -> tuple[Tensor, list[Tensor | None]]:
    """Losses of all rows, and the gradients of their sum (weighted by ``upstream``, where given) for what needs one."""
    hidden, (n, classes) = layer.hidden, (layer.hidden.shape[0], layer.weight.shape[0])
    table = layer.weight.to(plan.dtype)
    shift = None if layer.bias is None else layer.bias.to(plan.dtype)
    rows, _ = plan.chunk(layer)
    losses = hidden.new_empty(n, dtype=compute_dtype(plan.dtype))
    by_hidden, by_weight, by_bias = gradients = plan.buffers(layer, needs)
    if by_weight is not None and n == 0:
        by_weight.zero_()
    if by_bias is not None:
        by_bias.zero_()
    with torch.autocast(hidden.device.type, enabled=False):
        buffer = hidden.new_empty((rows, classes), dtype=plan.dtype)
        for part in _chunks(n, rows):
            chunk = hidden[part].to(plan.dtype)
            logits = buffer[:chunk.shape[0]]
            if shift is None:
                torch.mm(chunk, table.T, out=logits)
            else:
                torch.addmm(shift, chunk, table.T, out=logits)
            above = None if upstream is None else upstream[part]
            losses[part] = _losses_(logits, target[part], class_weight, plan, any(needs), above)
            if by_hidden is not None:
                if by_hidden.dtype == plan.dtype:
                    torch.mm(logits, table, out=by_hidden[part])
                else:
                    by_hidden[part] = torch.mm(logits, table)
            if by_weight is not None:
                _add_product(by_weight, logits.T, chunk, first=part.start == 0)
            if by_bias is not None:
                by_bias += logits.sum(0, dtype=by_bias.dtype)
    return losses, gradients


def _chunks(n: int, rows: int) -> Iterator[slice]:
    for start in range(0, n, rows):
        yield slice(start, min(n, start + rows))


def _losses_(logits: Tensor, target: Tensor, class_weight: Tensor | None, plan: Plan, differentiate: bool,
             upstream: Tensor | None) -> Tensor:
    """The losses of these rows; to ``differentiate`` is to write their gradient over the logits."""
    arguments: dict[str, Any] = {"weight": class_weight, "label_smoothing": plan.label_smoothing}
    if not plan.soft:
        arguments["ignore_index"] = plan.ignore_index
    if plan.impl == "triton" and differentiate:
        losses: Tensor = dispatch.kernels().loss_and_gradient_(logits, target, plan.curve, upstream=upstream,
                                                               **arguments)
        return losses
    if plan.impl == "closed" and differentiate:
        losses, slope = reference.rows_with_gradient(logits, target, plan.curve, soft=plan.soft, weight=class_weight,
                                                     ignore_index=plan.ignore_index,
                                                     label_smoothing=plan.label_smoothing)
        logits.copy_(slope if upstream is None else slope * upstream[:, None])
        return losses
    op = reference.soft_loss if plan.soft else reference.hard_loss
    if plan.impl == "triton":
        op = dispatch.kernels().soft_loss if plan.soft else dispatch.kernels().hard_loss
    with torch.set_grad_enabled(differentiate):
        leaf = logits.detach().requires_grad_(differentiate)
        losses = op(leaf, target, plan.curve, reduction="none", **arguments)
        if differentiate:
            above = torch.ones_like(losses) if upstream is None else upstream
            logits.copy_(torch.autograd.grad(losses, leaf, above)[0])
    return losses.detach()


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """``total += a @ b``, in the type of the total; the first product overwrites."""
    if a.dtype == total.dtype:
        torch.addmm(total, a, b, beta=0 if first else 1, out=total)
    elif a.is_cuda and torch.version.cuda:
        torch.addmm(total, a, b, total.dtype, beta=0 if first else 1, out=total)
    else:  # only CUDA multiplies 16-bit numbers into a float32 sum
        total.addmm_(a.to(total.dtype), b.to(total.dtype), beta=0 if first else 1)
