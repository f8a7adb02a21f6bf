"""The kernels as operators that a compiler sees as one node each, with exact shapes, types and strides.

``encouraging::curve_rows`` returns one loss per row and the rows' states; ``encouraging::curve_rows_gradient`` makes
the gradient from them. Both take the curve as its name and its parameters.
"""

from typing import Any, List, Optional, Tuple  # noqa: UP035 - the operators' schemas are read from the annotations

import torch
from torch import Tensor

from ...curves import Curve
from ...curves._catalogue import from_numbers, to_numbers
from .curves import Gap, constants
from .later_launch import gradient_later
from .launch import losses
from .problem import Problem, empty_state


def rows(logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: Curve, ignore_index: int,
         label_smoothing: float) -> Tensor:
    """The loss of every row, for logits (N, C) or (N, C, d) and a flat target."""
    params = to_numbers(curve)
    weight = None if weight is None else weight.detach()
    result: Tensor = curve_rows(logits, target, weight, curve.name, params, ignore_index, float(label_smoothing))[0]
    return result


def _problem(logits: Tensor, target: Tensor, weight: Optional[Tensor], name: str, params: List[float],
             ignore_index: int, label_smoothing: float) -> Problem:
    weight = None if weight is None else weight.float().contiguous()
    curve = Gap() if name == Gap.name else from_numbers(name, params)
    return Problem(logits, target.contiguous(), weight, constants(curve), ignore_index, label_smoothing)


@torch.library.custom_op("encouraging::curve_rows", mutates_args=())
def curve_rows(logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: str, params: List[float],
               ignore_index: int, label_smoothing: float) -> Tuple[Tensor, Tensor]:
    """Losses (N) and states of the rows."""
    problem = _problem(logits, target, weight, curve, params, ignore_index, label_smoothing)
    state = empty_state(problem.target, problem.smoothing)
    return losses(problem, state=state), state


@curve_rows.register_fake
def _(logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: str, params: List[float], ignore_index: int,
      label_smoothing: float) -> Tuple[Tensor, Tensor]:
    count = target.shape[0]
    return (logits.new_empty((count,), dtype=torch.float32),
            logits.new_empty((7 if label_smoothing else 4, count), dtype=torch.float32))


@torch.library.custom_op("encouraging::curve_rows_gradient", mutates_args=())
def curve_rows_gradient(upstream: Tensor, logits: Tensor, target: Tensor, weight: Optional[Tensor], state: Tensor,
                        curve: str, params: List[float], ignore_index: int, label_smoothing: float) -> Tensor:
    """The gradient of the rows' losses, each times its upstream gradient, in the logits' dtype."""
    problem = _problem(logits, target, weight, curve, params, ignore_index, label_smoothing)
    grad = torch.empty_like(logits)
    gradient_later(problem, state, upstream, grad)
    return grad


@curve_rows_gradient.register_fake
def _(upstream: Tensor, logits: Tensor, target: Tensor, weight: Optional[Tensor], state: Tensor, curve: str,
      params: List[float], ignore_index: int, label_smoothing: float) -> Tensor:
    return torch.empty_like(logits)


def _save(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    logits, target, weight, *ctx.arguments = inputs
    ctx.save_for_backward(logits, target, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, upstream: Optional[Tensor], _: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
    logits, target, weight, state = ctx.saved_tensors
    grad = None
    if upstream is not None:
        grad = curve_rows_gradient(upstream, logits, target, weight, state, *ctx.arguments)
    return grad, None, None, None, None, None, None


curve_rows.register_autograd(_backward, setup_context=_save)
