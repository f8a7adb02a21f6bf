"""The kernels of soft targets as operators that a compiler sees as one node each, see ``operators.py``."""

from typing import Any, List, Optional, Tuple  # noqa: UP035 - the operators' schemas are read from the annotations

import torch
from torch import Tensor

from ...curves import Curve
from ...curves._catalogue import from_numbers, to_numbers
from .curves import constants
from .soft_launch import SoftProblem, soft_gradients, soft_losses


def rows(logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: Curve, label_smoothing: float) -> Tensor:
    """The loss of every row, for logits and targets (N, C)."""
    params = to_numbers(curve)
    weight = None if weight is None else weight.detach()
    result: Tensor = soft_rows(logits, target, weight, curve.name, params, float(label_smoothing))
    return result


def _problem(logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: str, params: List[float],
             label_smoothing: float) -> SoftProblem:
    weight = None if weight is None else weight.float().contiguous()
    return SoftProblem(logits, target, weight, constants(from_numbers(curve, params)), label_smoothing)


@torch.library.custom_op("encouraging::soft_rows", mutates_args=())
def soft_rows(logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: str, params: List[float],
              label_smoothing: float) -> Tensor:
    """Losses (N) of the rows."""
    return soft_losses(_problem(logits, target, weight, curve, params, label_smoothing))


@soft_rows.register_fake
def _(logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: str, params: List[float],
      label_smoothing: float) -> Tensor:
    return logits.new_empty((logits.shape[0],), dtype=torch.float32)


@torch.library.custom_op("encouraging::soft_rows_gradient", mutates_args=())
def soft_rows_gradient(upstream: Tensor, logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: str,
                       params: List[float], label_smoothing: float, needs: List[bool]) -> Tuple[Tensor, Tensor]:
    """The gradients on logits and targets of the rows' losses, each times its upstream gradient; empty if not needed.
    """
    grad, by_target = _buffers(logits, target, needs)
    target = target if by_target.stride() == target.stride() or not needs[1] else (
        torch.empty_like(by_target).copy_(target))
    soft_gradients(_problem(logits, target, weight, curve, params, label_smoothing), upstream.contiguous(),
                   grad if needs[0] else None, by_target if needs[1] else None)
    return grad, by_target


def _buffers(logits: Tensor, target: Tensor, needs: List[bool]) -> Tuple[Tensor, Tensor]:
    return (torch.empty_like(logits) if needs[0] else logits.new_empty(0),
            torch.empty_like(target) if needs[1] else target.new_empty(0))


@soft_rows_gradient.register_fake
def _(upstream: Tensor, logits: Tensor, target: Tensor, weight: Optional[Tensor], curve: str, params: List[float],
      label_smoothing: float, needs: List[bool]) -> Tuple[Tensor, Tensor]:
    return _buffers(logits, target, needs)


def _save(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    logits, target, weight, *ctx.arguments = inputs
    ctx.save_for_backward(logits, target, weight)


def _backward(ctx: Any, upstream: Tensor) -> Tuple[Optional[Tensor], ...]:
    needs = [bool(need) for need in ctx.needs_input_grad[:2]]
    grad, by_target = soft_rows_gradient(upstream, *ctx.saved_tensors, *ctx.arguments, needs)
    return (grad if needs[0] else None, by_target if needs[1] else None, None, None, None, None)


soft_rows.register_autograd(_backward, setup_context=_save)
