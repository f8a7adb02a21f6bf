"""Output layer and loss together: ``linear_curve_loss``, its checks and its autograd Function.

``linear_chunks.py`` has the computation, chunk by chunk, and ``linear_compiled.py`` the form that a compiler sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..curves import Curve
from ..curves._catalogue import is_in_catalogue
from ..curves._curve import check_curve
from ..errors import ArgumentError, DerivativeError, DtypeError, ShapeError
from ..targets import (
    as_rows,
    check_arguments,
    check_flag,
    check_implementation,
    check_tensor,
    result_dtype,
    sequence_hint,
)
from ..torch_state import autocasts, has_tangent, in_transform, is_batched, is_jit_tracing
from . import dispatch, reference
from .linear_chunks import ACCUMULATORS, Layer, Plan, walk
from .reduction import Divisor, check_divisor, label_divisor, quotient, reduce, writable


def linear_curve_loss(hidden: Tensor, weight: Tensor, target: Tensor, curve: Curve, bias: Tensor | None = None,
                      class_weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
                      label_smoothing: float = 0.0, *, match_norm: bool = False, divisor: Divisor = None,
                      chunk_bytes: int | None = None, accumulate: str = "float32", impl: str = "auto") -> Tensor:
    """``curve_loss(F.linear(hidden, weight, bias), target, curve, class_weight, ...)`` in chunks of rows.

    Args:
        hidden: (..., D), the input of the output layer.
        weight: (C, D), the output layer's weight. Gradients that are not needed are not computed.
        target: Labels (...) or probabilities (..., C).
        curve: The loss as a function of the label's probability: any of :mod:`encouraging.curves`.
        bias: (C), the output layer's bias.
        class_weight: One number per class, ``weight`` of :func:`curve_loss`.
        ignore_index, reduction, label_smoothing, match_norm, divisor, impl: As in :func:`curve_loss`.
        chunk_bytes: The most bytes of logits that may exist at a time. By default a chunk has at most 4096 rows and
            2 GiB of logits.
        accumulate: The type in which the chunks' gradients of the weight are summed: ``"float32"``, or ``"weight"``
            for the weight's own type, which halves the memory of a 16-bit weight and loses precision with every
            chunk. float16 is always accumulated in float32, because sums over rows exceed its range.

    Returns:
        The loss: of shape (...) for ``reduction="none"``, else one number.

    Raises:
        ShapeError, TargetError, DtypeError, ArgumentError: For tensors or arguments that do not fit each other.
        DerivativeError: In the backward pass, when a second derivative or a batch of gradients is requested.

    ``torch.func`` transforms, forward-mode derivatives, and targets or class weights that need a gradient use the plain
    layer and loss.
    ``torch.compile`` sees one node, or with ``match_norm`` the plain layer and loss. A curve of your own breaks the
    graph there, which ``fullgraph=True`` reports.

    >>> from encouraging import curves
    >>> hidden, layer = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    >>> linear_curve_loss(hidden, layer, torch.tensor([0]), curves.normal())  # logits 4, 0, 0: log 2 - 4
    tensor(-3.3069)
    """
    check_curve(curve)
    check_divisor(divisor, reduction)
    check_implementation(impl)
    check_flag("match_norm", match_norm)
    check_chunks(chunk_bytes, accumulate)
    compute: Callable[..., Tensor] = _linear_curve_loss
    if torch.compiler.is_compiling() and not is_in_catalogue(curve):
        compute = torch.compiler.disable(compute)  # type: ignore[no-untyped-call] # here and not as a decorator, which would import the compiler
    return compute(hidden, weight, target, curve, bias, class_weight, ignore_index, reduction, label_smoothing,
                   match_norm, divisor, chunk_bytes, accumulate, impl)


def _linear_curve_loss(hidden: Tensor, weight: Tensor, target: Tensor, curve: Curve, bias: Tensor | None,
                       class_weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float,
                       match_norm: bool, divisor: Divisor, chunk_bytes: int | None, accumulate: str,
                       impl: str) -> Tensor:
    for name, tensor in (("hidden", hidden), ("weight", weight), ("target", target), ("bias", bias)):
        if tensor is not None or name != "bias":
            check_tensor(name, tensor)
        if tensor is not None and tensor.device != hidden.device:
            raise ArgumentError(f"hidden is on {hidden.device} but {name} on {tensor.device}: move one of them.")
    dtype = _logits_dtype(hidden, weight, bias)
    if hidden.ndim == 0 or weight.ndim != 2 or hidden.shape[-1] != weight.shape[1]:
        raise ShapeError(f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} do not multiply: expected "
                         "(..., D) and (C, D).")
    if 0 in weight.shape:
        raise ShapeError(f"weight has shape {tuple(weight.shape)}: expected (C, D) with at least one class and one "
                         "feature.")
    classes, lead = weight.shape[0], hidden.shape[:-1]
    if bias is not None and bias.shape != (classes,):
        raise ShapeError(f"bias of shape {tuple(bias.shape)}: expected ({classes},), one number per class.")
    if target.shape not in (lead, (*lead, classes)):
        raise ShapeError(f"target of shape {tuple(target.shape)} for hidden {tuple(hidden.shape)} and {classes} "
                         f"classes: expected labels {tuple(lead)} or probabilities {(*lead, classes)}."
                         f"{sequence_hint('hidden', hidden.shape, target.shape)}")
    rows = hidden.reshape(-1, hidden.shape[-1])
    labels = target.reshape(-1) if target.shape == lead else target.reshape(-1, classes)
    if not labels.is_floating_point() and labels.dtype not in (torch.int64, torch.bool):
        labels = labels.long()  # before any comparison: in uint8 the ignore_index -100 is the label 156
    # Stands for the logits where only their shape, type and device matter; it takes the memory of one number.
    logits = hidden.detach().new_zeros((), dtype=dtype).expand(rows.shape[0], classes)
    examples = as_rows(logits, labels)
    ignore_index = check_arguments(examples, class_weight, ignore_index, reduction, label_smoothing,
                                   weight_name="class_weight")
    soft = examples.soft
    reduction = "sum" if divisor is not None else reduction
    learned = target.requires_grad or (class_weight is not None and class_weight.requires_grad)
    if (learned or in_transform() or is_jit_tracing() or has_tangent(hidden, weight, bias)
            or (match_norm and torch.compiler.is_compiling())):
        if impl == "triton":
            raise ArgumentError("impl='triton': the fused layer has no kernels for torch.func, forward mode and "
                                "torch.jit, for targets and class weights that need a gradient, and for match_norm "
                                "under torch.compile. Pass impl='auto' to take the kernels wherever they apply.")
        logits = F.linear(rows, weight, bias)
        arguments: dict[str, Any] = {"weight": class_weight, "label_smoothing": label_smoothing, "reduction": reduction}
        loss = (reference.soft_loss(logits, labels, curve, **arguments) if soft
                else reference.hard_loss(logits, labels, curve, ignore_index=ignore_index, **arguments))
        if match_norm:
            loss = loss * reference.match_norm_factor(logits, labels, curve, weight=class_weight,
                                                      ignore_index=ignore_index, label_smoothing=label_smoothing)
    else:
        impl = dispatch.choose(impl, logits, labels, curve)
        plan = Plan(curve, soft, ignore_index, reduction, label_smoothing, chunk_bytes, accumulate, impl, dtype,
                    torch.is_grad_enabled(), match_norm)
        if torch.compiler.is_compiling():
            from . import linear_compiled

            loss = linear_compiled.loss(Layer(rows, weight, bias), labels, class_weight, plan)
        else:
            loss = _LinearLoss.apply(rows, weight, bias, labels, class_weight, plan)  # type: ignore[no-untyped-call]
    if divisor is not None:
        loss = quotient(loss, divisor)
    return writable((loss.reshape(lead) if reduction == "none" else loss).to(result_dtype(logits, labels)))


def _logits_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype:
    """The type in which ``F.linear`` would compute, under autocast or without."""
    dtypes = {tensor.dtype for tensor in (hidden, weight, bias) if tensor is not None}
    if not all(dtype.is_floating_point for dtype in dtypes):
        raise DtypeError(f"hidden, weight and bias are {sorted(map(str, dtypes))}: expected floating-point tensors.")
    device = hidden.device.type
    if autocasts(device) and torch.float64 not in dtypes:
        return torch.get_autocast_dtype(device)
    if len(dtypes) > 1:
        raise DtypeError(f"hidden, weight and bias are {sorted(map(str, dtypes))}: expected one type. Convert them, or "
                         "run under torch.autocast.")
    return hidden.dtype


def check_chunks(chunk_bytes: int | None, accumulate: str) -> None:
    """Refuse a size of chunks, or a type of their sums, that cannot be used."""
    if accumulate not in ACCUMULATORS:
        raise ArgumentError(f"accumulate={accumulate!r}: expected 'float32' or 'weight'.")
    if chunk_bytes is not None and (isinstance(chunk_bytes, bool) or not isinstance(chunk_bytes, int)
                                    or chunk_bytes <= 0):
        raise ArgumentError(f"chunk_bytes={chunk_bytes!r}: expected a positive number of bytes, or None.")


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
                class_weight: Tensor | None, plan: Plan) -> Tensor:
        needs = ctx.needs_input_grad[:3] if plan.differentiate and plan.reduction != "none" else (False,) * 3
        layer = Layer(hidden, weight, bias)
        lengths = plan.lengths(layer)
        losses, ctx.gradients = walk(layer, target, class_weight, plan, needs, lengths=lengths)
        count = _mean_divisor(losses, target, class_weight, plan) if plan.reduction == "mean" else None
        factor = plan.factor(lengths)
        ctx.plan = plan
        ctx.save_for_backward(hidden, weight, bias, target, class_weight, count, factor)
        loss = reduce(losses, plan.reduction, count)
        return loss if factor is None else loss * factor

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise DerivativeError("linear_curve_loss has no second derivative (create_graph=True): its gradient is "
                                  "computed in the forward pass. Use curve_loss on the logits of F.linear.")
        if is_batched(upstream):
            raise DerivativeError("linear_curve_loss takes one upstream gradient at a time (is_grads_batched=True, "
                                  "vectorize=True): its gradient is computed in the forward pass. Use curve_loss on "
                                  "the logits of F.linear.")
        hidden, weight, bias, target, class_weight, count, factor = ctx.saved_tensors
        upstream = upstream if factor is None else upstream * factor
        row_upstream = upstream if ctx.plan.reduction == "none" else None
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or row_upstream is not None:
            needs = ctx.needs_input_grad[:3]
            _, gradients = walk(Layer(hidden, weight, bias), target, class_weight, ctx.plan, needs, row_upstream)
        scale = None if row_upstream is not None else upstream
        if count is not None:  # with all rows ignored the gradient is 0 although the mean is NaN, as in torch
            scale = torch.where(count == 0, 0.0, upstream / count)
        finished = (_finish(*pair, scale) for pair in zip(gradients, (hidden, weight, bias), strict=True))
        return *finished, None, None, None


def mean_of(total: Tensor, target: Tensor, class_weight: Tensor | None, plan: Plan) -> Tensor:
    """The mean from the sum. With all rows ignored the gradient is 0 although the mean is NaN, as in torch."""
    return quotient(total, _mean_divisor(total.detach(), target, class_weight, plan))


def _mean_divisor(losses: Tensor, target: Tensor, class_weight: Tensor | None, plan: Plan) -> Tensor:
    """What the mean divides by, on the device."""
    if plan.soft:
        return losses.new_full((), target.shape[0])
    weight = None if class_weight is None else class_weight.to(losses.dtype)
    return label_divisor(target, weight, target == plan.ignore_index).to(losses.dtype)


def _finish(gradient: Tensor | None, like: Tensor, scale: Tensor | None) -> Tensor | None:
    """The gradient times ``scale``, in the type of the tensor that it belongs to. Reuses the gradient's memory."""
    if gradient is None:
        return None
    if gradient.dtype != like.dtype:
        finished = torch.empty_like(gradient, dtype=like.dtype)
        scale = gradient.new_ones(()) if scale is None else scale
        return torch.mul(gradient, scale, out=finished)
    return gradient if scale is None else gradient.mul_(scale)
