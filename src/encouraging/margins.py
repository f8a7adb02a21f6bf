"""Changes of the logits before the softmax, which any curve can follow: margins, and a fixed length."""

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from .class_counts import Counts, class_counts
from .errors import ArgumentError, DerivativeError, DtypeError, ShapeError
from .ops.rows import compute_dtype
from .targets import check_input, check_tensor, checked_labels, is_integer
from .torch_state import in_backward, in_transform


# One operation that a compiler does not see into: with both steps in its graph, torch 2.13 uses the decayed number
# instead of the copy in the backward pass.
@torch.library.custom_op("encouraging::decayed", mutates_args=("number",))
def _decayed(number: Tensor, decay: float, least: float) -> Tensor:
    """A copy of the number, which is then multiplied by ``decay``, down to ``least``."""
    before = number.clone()
    number.mul_(decay).clamp_(min=least)
    return before


@_decayed.register_fake
def _(number: Tensor, decay: float, least: float) -> Tensor:
    return torch.empty_like(number)


class LSoftmaxLinear(nn.Module):
    r"""The output layer of large-margin softmax: the label has to win with ``margin`` times its angle.

    .. math:: z_y = \|w_y\|\,\|x\|\,\psi(\theta), \qquad \psi(\theta) = (-1)^k\cos(m\theta) - 2k,
        \quad \theta \in [k\pi/m, (k+1)\pi/m]

    Training starts from the plain logit and moves to the margin: the label's logit is
    ``(margin logit + beta * plain logit) / (1 + beta)``, and every training step multiplies ``beta`` by ``decay``. Any
    loss may follow; the paper's is in the example below.

    Activation checkpointing, which calls the layer again in the backward pass, repeats its last call: ``beta`` is the
    same and does not decay again. With several calls before a backward pass, or compiled, leave this layer outside of
    what is checkpointed: the earlier calls would be repeated with another ``beta``.

    Under ``torch.func.grad`` pass the buffers to the transformed function too, because ``beta`` changes:
    ``functional_call(layer, (parameters, buffers), (input, target))``.

    Args:
        in_features: Width of the input.
        out_features: Number of classes.
        margin: 1 (a plain linear layer without bias) to 4.
        beta: Where the mixture starts; 0 for the whole margin at once.
        beta_min: Where it ends.
        decay: The factor of ``beta`` per training step.

    Raises:
        ArgumentError: An argument cannot be used.
        ShapeError, DtypeError, TargetError: In a training call, for a target that does not hold one label per row.
        DerivativeError: In a training call under ``torch.func`` without the buffers.

    >>> from encouraging import EncouragingLoss
    >>> layer, x, y = LSoftmaxLinear(4, 3), torch.randn(2, 4), torch.tensor([0, 2])
    >>> EncouragingLoss(log_end=1.0)(layer(x, y), y).shape
    torch.Size([])
    >>> layer.beta  # after one training step
    tensor(99.)
    """

    beta: Tensor
    _last_beta: Tensor | None = None

    def __init__(self, in_features: int, out_features: int, margin: int = 2, *, beta: float = 100.0,
                 beta_min: float = 0.0, decay: float = 0.99) -> None:
        super().__init__()
        if margin not in (1, 2, 3, 4) or isinstance(margin, bool) or not hasattr(margin, "__index__"):
            raise ArgumentError(f"margin={margin!r}: expected the integer 1, 2, 3 or 4, by which the label's angle is "
                                "multiplied.")
        if not (math.inf > number_or_nan(beta) >= number_or_nan(beta_min) >= 0 and 0 < number_or_nan(decay) <= 1):
            raise ArgumentError(f"beta={beta!r}, beta_min={beta_min!r}, decay={decay!r}: expected numbers with "
                                "beta >= beta_min >= 0 and 0 < decay <= 1, beta finite.")
        self.in_features, self.out_features, self.margin = in_features, out_features, margin
        self.beta_min, self.decay = beta_min, decay
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.register_buffer("beta", torch.tensor(float(beta)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.beta
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.beta.dtype.itemsize < 4:  # there a decay of 0.999 would round to no decay: beta stays as it is
            self.beta = before.to(self.beta.device)
        return self

    def forward(self, input: Tensor, target: Tensor | None = None) -> Tensor:
        """Logits (N, C); in training, with a ``target`` (N), the label's logit carries the margin."""
        logits = nn.functional.linear(input, self.weight)
        if not self.training or target is None or self.margin == 1:
            return logits
        check_tensor("target", target)
        if target.shape != input.shape[:-1]:
            raise ShapeError(f"target has shape {tuple(target.shape)} for an input of shape {tuple(input.shape)}: "
                             f"expected labels of shape {tuple(input.shape[:-1])}.")
        if not is_integer(target):
            raise DtypeError(f"target is {target.dtype}: expected integer labels. Use target.long().")
        label = checked_labels(target, self.out_features)[..., None]
        plain = logits.gather(-1, label)
        length = self.weight.norm(dim=-1)[label] * input.norm(dim=-1, keepdim=True)
        # Clamped, so that a length of 0 does not divide by 0 and rounding does not leave [-1, 1].
        cosine = (plain / length.clamp_min(torch.finfo(length.dtype).tiny)).clamp(-1, 1)
        margin_logit = length * angle_margin(cosine, self.margin)
        beta = self._next_beta().to(logits.dtype)
        mixed = (margin_logit + beta * plain) / (1 + beta)
        return logits.scatter(-1, label, mixed.to(logits.dtype))

    def _next_beta(self) -> Tensor:
        """The ``beta`` of this call, as a copy, since the backward pass needs it after the decay."""
        beta: Tensor
        if torch.compiler.is_compiling():
            beta = _decayed(self.beta, self.decay, self.beta_min)
            return beta
        if self._last_beta is not None and in_backward():
            return self._last_beta
        beta = self.beta.clone()
        try:
            self.beta.mul_(self.decay).clamp_(min=self.beta_min)
        except RuntimeError as error:
            if not in_transform():
                raise
            raise DerivativeError("LSoftmaxLinear changes its buffer beta in training, which torch.func allows only "
                                  "for arguments of the transformed function. Give it the buffers as an argument, "
                                  "beside the parameters: functional_call(module, (parameters, buffers), (input, "
                                  "target)). Or call module.eval(), which leaves the margin out.") from error
        self._last_beta = None if in_transform() else beta  # a tensor that torch.func wraps must not be kept
        return beta

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, margin={self.margin}"


def angle_margin(cosine: Tensor, margin: int) -> Tensor:
    r""":math:`\psi(\theta) = (-1)^k\cos(m\theta) - 2k` from the cosine: falls monotonically from 1 to ``1 - 2m``.

    >>> angle_margin(torch.tensor([1.0, 0.0, -1.0]), 2)
    tensor([ 1., -1., -3.])
    """
    multiple, lower = cosine, torch.ones_like(cosine)
    for _ in range(margin - 1):  # cos(n + 1)t = 2 cos t cos nt - cos(n - 1)t
        multiple, lower = 2 * cosine * multiple - lower, multiple
    edges = [math.cos(k * math.pi / margin) for k in range(1, margin)]
    k = sum(((cosine < edge).to(cosine.dtype) for edge in edges), torch.zeros_like(cosine))
    return (1 - 2 * (k % 2)) * multiple - 2 * k


def ldam_margins(counts: Counts, max_margin: float = 0.5, caller: str = "ldam_margins",
                 dtype: torch.dtype = torch.float32) -> Tensor:
    """LDAM's margin per class, proportional to ``count ** -1/4``: the rarest class has ``max_margin``.

    Args:
        counts: Training examples per class, all at least 1: a tensor, a numpy array, a list or a tuple of C numbers, or
            a mapping from class index to number.
        max_margin: The rarest class's margin.
        caller: The function that was called, for messages.
        dtype: Of the result.

    >>> ldam_margins(torch.tensor([1, 16]))
    tensor([0.5000, 0.2500])
    """
    if not 0 <= number_or_nan(max_margin) < math.inf:
        raise ArgumentError(f"max_margin={max_margin!r}: expected a number of at least 0, the rarest class's margin.")
    margins = class_counts(counts, caller).to(dtype) ** -0.25
    return max_margin * margins / margins.max()


def number_or_nan(value: object) -> float:
    """The value as a float; NaN, which is in no range, for what is not a number."""
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def subtract_margin(logits: Tensor, target: Tensor, margins: Tensor) -> Tensor:
    """The logits (N, C) with its class's margin subtracted from each label's: the label has to win by that much."""
    label = target.long().clamp(0, logits.shape[-1] - 1)[..., None]
    return logits.scatter_add(-1, label, -margins.to(logits.dtype)[label])


def logit_norm(logits: Tensor, temperature: float = 0.04) -> Tensor:
    r"""Logits of one length, as LogitNorm trains with (Wei and others, 2022): :math:`z / (\tau (\|z\| + 10^{-7}))`.

    A model cannot lower its loss by longer logits, so it does not become overconfident. It is used in training alone;
    the logits of the model itself are what is evaluated.

    >>> logit_norm(torch.tensor([[3.0, 4.0]]), temperature=0.5)
    tensor([[1.2000, 1.6000]])
    """
    check_input(logits)
    wide = logits.to(compute_dtype(logits.dtype))  # in 16 bits 1e-7 * tau is 0
    length: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / ((length + 1e-7) * temperature)).to(logits.dtype)
