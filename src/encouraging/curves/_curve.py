"""The one idea of the package: a loss is a curve of the gap between the label's logit and its rivals'.

``gap = z_y - logsumexp(z_j for j != y)``, so that the label's probability is ``p = sigmoid(gap)``. A curve is two
scalar functions of it: ``value``, the loss, and ``pull = -d value / d gap``, how hard the label is pulled up and its
rivals are pushed down. Cross-entropy's pull is ``1 - p``: it vanishes as the example is learned.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import isfunction
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import CurveError, DtypeError
from ._fit import check_pull


@dataclasses.dataclass(frozen=True, repr=False)
class Curve(ABC):
    """A loss as a function of the gap. Curves are frozen, comparable, hashable and know their own name.

    A subclass is a frozen dataclass whose fields are its parameters; it defines :meth:`value` and :meth:`pull`, both
    elementwise and differentiable. ``pull`` must be minus the derivative of ``value`` (:func:`check_pull` says whether
    it is): the losses use it as the gradient and do not differentiate ``value``. The exceptions are forward mode inside
    forward mode, and transforms of ``torch.func`` inside ``torch.compile``, where torch loses the rules of an autograd
    Function.

    >>> from encouraging import curves
    >>> curve = curves.focal(2.0)
    >>> curve, curve.params, curve == curves.focal(2.0)
    (focal(gamma=2.0), {'gamma': 2.0}, True)
    """

    name: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if {"value", "pull"} & cls.__dict__.keys() and "form_below_half" not in cls.__dict__:
            cls.form_below_half = Curve.form_below_half  # type: ignore[method-assign] # an inherited one is that of the old formula

    @abstractmethod
    def value(self, gap: Tensor) -> Tensor:
        """The loss of examples with these gaps."""

    @abstractmethod
    def pull(self, gap: Tensor) -> Tensor:
        """Minus the derivative of :meth:`value`: the strength with which these examples teach."""

    def phi(self, p: Tensor) -> Tensor:
        """The same curve as a function of the label's probability, as the paper writes and plots it."""
        return self.value(torch.logit(p))

    @property
    def form_below_half(self) -> str | None:
        """Which of two simple functions the curve is wherever p <= 1/2: ``"nll"`` for -log p, ``"line"`` for minus the
        gap, None for neither. Sums over the classes have a closed form for these two, so that smoothing is cheap."""
        return None

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name, as a recipe writes them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return f"{self.name}({inside})"


@dataclasses.dataclass(frozen=True, repr=False)
class Custom(Curve):
    """A user's own curve from its two functions of the gap, both elementwise.

    Args:
        value_of_gap: The loss.
        pull_of_gap: Minus its derivative, which the losses use as the gradient. A constant may be a single number.
        label: What the curve is called.
        check: Whether the two are compared; ``False`` for a gradient that differs from the loss on purpose. Functions
            written for JAX are compared by its losses; other ones that take no torch tensors on the CPU are not.

    Raises:
        CurveError: Where the pull is not minus the derivative of the value.

    >>> halved = Custom(lambda gap: -0.5 * gap, lambda gap: torch.full_like(gap, 0.5), "halved")
    >>> halved.pull(torch.tensor([0.0, 9.0]))
    tensor([0.5000, 0.5000])
    """

    name: ClassVar[str] = "custom"
    value_of_gap: Callable[[Tensor], Tensor]
    pull_of_gap: Callable[[Tensor], Tensor]
    label: str = "custom"
    check: bool = dataclasses.field(default=True, compare=False)

    def __post_init__(self) -> None:
        if not self.check or torch.compiler.is_compiling():
            return
        try:
            check_pull(self)
        except CurveError:
            raise
        except Exception:  # written for JAX or for tensors on a GPU: the loss reports what it cannot use
            return

    def value(self, gap: Tensor) -> Tensor:
        return _elementwise(self, "value", self.value_of_gap(gap), gap)

    def pull(self, gap: Tensor) -> Tensor:
        pull = self.pull_of_gap(gap)
        if not isinstance(gap, Tensor):  # of JAX, which extends a constant by itself
            return pull
        if not isinstance(pull, Tensor):
            pull = torch.zeros_like(gap) + pull
        elif pull.shape != gap.shape and pull.numel() == 1:
            pull = torch.zeros_like(gap) + pull.reshape(())
        return _elementwise(self, "pull", pull, gap)

    def __repr__(self) -> str:
        return f"custom({self.label!r})"


@dataclasses.dataclass(frozen=True, repr=False)
class FromProbability(Curve):
    r"""A user's own curve from one elementwise function of p; its pull :math:`-p(1-p)\,\varphi'(p)` by autograd.

    p is rounded to the logits' precision before ``phi`` sees it. A function that depends on ``1 - p`` is therefore
    inexact past a gap of about 16 in float32 (36 in float64), and p is 0 from a gap of about -104 on (-745), where
    ``-p.log()`` is infinite; the pull stays finite. Write a curve that needs more as two functions of the gap.

    Args:
        phi_of_p: The loss, of a tensor of probabilities; differentiable.
        label: What the curve is called.

    Raises:
        CurveError: The function changes with p but has no gradient, because it detaches p or is a step function.

    >>> cross_entropy = FromProbability(lambda p: -p.log(), "mine")
    >>> cross_entropy.pull(torch.tensor(0.0))
    tensor(0.5000)
    """

    name: ClassVar[str] = "from_probability"
    phi_of_p: Callable[[Tensor], Tensor]
    label: str = "from_probability"

    def __post_init__(self) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            gaps = torch.linspace(-3, 3, 13, dtype=torch.float64, device="cpu")
            values, pulls = self.value(gaps), self.pull(gaps)
            changes = bool((values.isfinite() & (values != values[0])).any())
            is_flat = changes and not bool(pulls.any())
        except Exception:  # written for JAX or for tensors on a GPU, or made where tensors have no numbers
            return
        if is_flat:
            raise CurveError(f"{self!r}: its function changes with p but has no gradient, so that nothing would be "
                             "learned. Expected a function that torch can differentiate: without .detach(), .item(), "
                             "NumPy or comparisons alone.")

    def value(self, gap: Tensor) -> Tensor:
        return _elementwise(self, "value", self.phi_of_p(torch.sigmoid(gap)), gap)

    def pull(self, gap: Tensor) -> Tensor:
        # Never 0: there a slope such as 1 / p would be infinite, and 0 times infinity is NaN.
        p = torch.sigmoid(gap).clamp(min=torch.finfo(gap.dtype).tiny)
        slope: Tensor = torch.func.grad(lambda p: self.phi_of_p(p).sum())(p)
        return -p * torch.sigmoid(-gap) * slope

    def phi(self, p: Tensor) -> Tensor:
        return self.phi_of_p(p)

    def __repr__(self) -> str:
        return f"from_probability({self.label!r})"


def _elementwise(curve: Curve, part: str, result: Tensor, gap: Tensor) -> Tensor:
    """What a user's function returned for these gaps, in their type. A single number for several gaps is refused, too:
    it is their mean or sum, of which the pull would not be the derivative."""
    if not isinstance(gap, Tensor):  # of another framework
        return result
    if getattr(result, "shape", None) != gap.shape:
        got = f"has the shape {tuple(result.shape)}" if isinstance(result, Tensor) else f"is a {type(result).__name__}"
        raise CurveError(f"{curve!r}: its {part} for gaps of shape {tuple(gap.shape)} {got}: expected a tensor of the "
                         "same shape. Compute it element by element.")
    return result if result.dtype == gap.dtype else result.to(gap.dtype)


def check_curve(curve: object) -> None:
    """Refuse what is not a curve, such as its name, its class, a function of p or a whole loss."""
    if not isinstance(curve, Curve):
        ours = getattr(curve, "__module__", "").startswith(f"{__package__}.")  # such as the function encouraging
        came = (f"the class {curve.__name__}, which was not called" if isinstance(curve, type)
                else f"the function {curve.__name__}, which was not called" if ours and isfunction(curve)
                else type(curve).__name__)
        advice = ""
        if isinstance(getattr(curve, "curve", None), Curve):
            advice = f" Pass the curve of that loss, {curve.curve!r}."  # type: ignore[attr-defined]
        elif callable(curve) and not isinstance(curve, type) and not ours:
            advice = (" Make one of a function of p with curves.from_probability(function), of a value and a pull over "
                      "the gap with curves.custom(value, pull).")
        raise DtypeError(f"curve is {came}: expected a Curve, such as curves.encouraging(log_end=0.5) or "
                         f"curves.by_name('focal', gamma=2.0).{advice}")


def logit(p: float) -> float:
    """The gap at which the label's probability is ``p``: -inf at 0, inf at 1."""
    if p <= 0:
        return -math.inf
    return math.inf if p >= 1 else math.log(p) - math.log1p(-p)


def nll(gap: Tensor) -> Tensor:
    """-log p, exact at both ends. Softplus is linear past its threshold; the default of 20 is too low for float64."""
    return torch.nn.functional.softplus(-gap, threshold=40)


def check_parameter(curve: str, name: str, number: float, *, low: float, high: float = math.inf, meaning: str,
                    high_is_allowed: bool = True) -> None:
    """Refuse a parameter outside ``[low, high]`` (or ``[low, high)``)."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        advice = f" Pass float({name})." if hasattr(number, "__float__") and not isinstance(number, bool) else ""
        raise CurveError(f"{curve}({name}={number!r}): expected a number, {meaning}; got {type(number).__name__}."
                         f"{advice}")
    if isinstance(number, int) and not -(1 << 63) <= number < 1 << 63:  # more than a tensor can be multiplied by
        raise CurveError(f"{curve}({name}=...): a whole number of more than 64 bits; expected {meaning}. Pass a float.")
    inside = low <= number <= high if high_is_allowed else low <= number < high
    if not inside or number == math.inf:  # math.isfinite breaks the graph of torch.compile before torch 2.12
        bound = f"{name} >= {low:g}" if high == math.inf else (
            f"{low:g} <= {name} {'<=' if high_is_allowed else '<'} {high:g}")
        raise CurveError(f"{curve}({name}={number!r}): expected {bound}, {meaning}.")
