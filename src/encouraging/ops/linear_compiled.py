"""The output layer and loss as operators that a compiler sees as one node each, with exact shapes and types.

``encouraging::linear_curve_sum`` returns the sum of the losses and its gradients, which the backward pass multiplies by
the upstream gradient. ``encouraging::linear_curve_rows`` returns the loss of every row, and
``encouraging::linear_curve_rows_gradient`` its gradients for any upstream gradient. The operators take the curve as its
name and its numbers.
"""

from typing import Any, List, Optional, Tuple  # noqa: UP035 - the operators' schemas are read from the annotations

import torch
from torch import Tensor

from ..curves._catalogue import from_numbers, to_numbers
from .linear import mean_of
from .linear_chunks import Layer, Plan, walk
from .rows import compute_dtype


def loss(layer: Layer, target: Tensor, class_weight: Optional[Tensor], plan: Plan) -> Tensor:
    """What ``linear_curve_loss`` returns for flat rows, as nodes of a graph."""
    arguments = (*layer, target, None if class_weight is None else class_weight.detach(), plan.curve.name,
                 to_numbers(plan.curve), plan.soft, plan.ignore_index,
                 float(plan.label_smoothing), plan.chunk_bytes, plan.accumulate, plan.impl, plan.dtype)
    if plan.reduction == "none":
        rows: Tensor = linear_curve_rows(*arguments)
        return rows
    needs = [plan.differentiate and tensor is not None and tensor.requires_grad for tensor in layer]
    total: Tensor = linear_curve_sum(*arguments, needs)[0]
    return total if plan.reduction == "sum" else mean_of(total, target, class_weight, plan)


def _plan(curve: str, numbers: List[float], soft: bool, ignore_index: int, label_smoothing: float,
          chunk_bytes: Optional[int], accumulate: str, impl: str, dtype: torch.dtype) -> Plan:
    return Plan(from_numbers(curve, numbers), soft, ignore_index, "none", label_smoothing, chunk_bytes, accumulate,
                impl, dtype, True)


def _as_tensors(gradients: List[Optional[Tensor]], like: Tensor) -> List[Tensor]:
    """An operator returns tensors: an empty one stands for None."""
    return [like.new_empty(0) if gradient is None else gradient for gradient in gradients]


@torch.library.custom_op("encouraging::linear_curve_sum", mutates_args=())
def linear_curve_sum(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor, class_weight: Optional[Tensor], curve: str,
    params: List[float], soft: bool, ignore_index: int, label_smoothing: float, chunk_bytes: Optional[int],
    accumulate: str, impl: str, dtype: torch.dtype, needs: List[bool],
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum of the losses and its gradients."""
    plan = _plan(curve, params, soft, ignore_index, label_smoothing, chunk_bytes, accumulate, impl, dtype)
    losses, gradients = walk(Layer(hidden, weight, bias), target, class_weight, plan, tuple(needs))
    by_hidden, by_weight, by_bias = _as_tensors(gradients, losses)
    return losses.sum(), by_hidden, by_weight, by_bias


@linear_curve_sum.register_fake
def _(hidden: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor, class_weight: Optional[Tensor],
      curve: str, params: List[float], soft: bool, ignore_index: int, label_smoothing: float,
      chunk_bytes: Optional[int], accumulate: str, impl: str, dtype: torch.dtype,
      needs: List[bool]) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    plan = _plan(curve, params, soft, ignore_index, label_smoothing, chunk_bytes, accumulate, impl, dtype)
    by_hidden, by_weight, by_bias = _as_tensors(plan.buffers(Layer(hidden, weight, bias), tuple(needs)), hidden)
    return hidden.new_empty((), dtype=compute_dtype(dtype)), by_hidden, by_weight, by_bias


def _save_sum(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, ...]) -> None:
    ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs[:3]]
    ctx.needs = inputs[-1]
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward_of_sum(ctx: Any, upstream: Optional[Tensor], *_: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
    gradients: List[Optional[Tensor]] = [None] * 3
    if upstream is not None:
        for i, gradient in enumerate(ctx.saved_tensors):
            if ctx.needs[i]:
                gradients[i] = (gradient * upstream).to(ctx.dtypes[i])
    return (*gradients, *(None,) * 12)


linear_curve_sum.register_autograd(_backward_of_sum, setup_context=_save_sum)


@torch.library.custom_op("encouraging::linear_curve_rows", mutates_args=())
def linear_curve_rows(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor, class_weight: Optional[Tensor], curve: str,
    params: List[float], soft: bool, ignore_index: int, label_smoothing: float, chunk_bytes: Optional[int],
    accumulate: str, impl: str, dtype: torch.dtype,
) -> Tensor:
    """The loss of every row."""
    plan = _plan(curve, params, soft, ignore_index, label_smoothing, chunk_bytes, accumulate, impl, dtype)
    return walk(Layer(hidden, weight, bias), target, class_weight, plan, (False,) * 3)[0]


@linear_curve_rows.register_fake
def _(hidden: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor, class_weight: Optional[Tensor],
      curve: str, params: List[float], soft: bool, ignore_index: int, label_smoothing: float,
      chunk_bytes: Optional[int], accumulate: str, impl: str, dtype: torch.dtype) -> Tensor:
    return hidden.new_empty(hidden.shape[0], dtype=compute_dtype(dtype))


@torch.library.custom_op("encouraging::linear_curve_rows_gradient", mutates_args=())
def linear_curve_rows_gradient(
    upstream: Tensor, hidden: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor,
    class_weight: Optional[Tensor], curve: str, params: List[float], soft: bool, ignore_index: int,
    label_smoothing: float, chunk_bytes: Optional[int], accumulate: str, impl: str, dtype: torch.dtype,
    needs: List[bool],
) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of the rows' losses, each times its upstream gradient."""
    plan = _plan(curve, params, soft, ignore_index, label_smoothing, chunk_bytes, accumulate, impl, dtype)
    layer = Layer(hidden, weight, bias)
    gradients = walk(layer, target, class_weight, plan, tuple(needs), upstream.contiguous())[1]
    by_hidden, by_weight, by_bias = _as_tensors(gradients, hidden)
    return by_hidden, by_weight, by_bias


@linear_curve_rows_gradient.register_fake
def _(upstream: Tensor, hidden: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor,
      class_weight: Optional[Tensor], curve: str, params: List[float], soft: bool, ignore_index: int,
      label_smoothing: float, chunk_bytes: Optional[int], accumulate: str, impl: str, dtype: torch.dtype,
      needs: List[bool]) -> Tuple[Tensor, Tensor, Tensor]:
    plan = _plan(curve, params, soft, ignore_index, label_smoothing, chunk_bytes, accumulate, impl, dtype)
    by_hidden, by_weight, by_bias = _as_tensors(plan.buffers(Layer(hidden, weight, bias), tuple(needs)), hidden)
    return by_hidden, by_weight, by_bias


def _save_rows(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.arguments = inputs[5:]
    ctx.set_materialize_grads(False)


def _backward_of_rows(ctx: Any, upstream: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
    gradients: List[Optional[Tensor]] = [None] * 3
    if upstream is not None:
        needs = [bool(need) for need in ctx.needs_input_grad[:3]]
        computed = linear_curve_rows_gradient(upstream, *ctx.saved_tensors, *ctx.arguments, needs)
        for i, tensor in enumerate(ctx.saved_tensors[:3]):
            if needs[i]:
                gradients[i] = computed[i].to(tensor.dtype)
    return (*gradients, *(None,) * 11)


linear_curve_rows.register_autograd(_backward_of_rows, setup_context=_save_rows)
