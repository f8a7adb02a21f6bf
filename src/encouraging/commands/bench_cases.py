"""The cases of ``encouraging bench --matrix`` and ``--random``: calls of the losses, each with its formula in torch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from ..curves import Curve
from ..curves._catalogue import from_numbers
from ..ops import dispatch
from . import bench_formulas

_OWN = "own"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOLERANCE = {"float32": 2e-4, "bfloat16": 2.0**-6, "float16": 2.0**-8}  # of what :func:`check` returns


class Case(NamedTuple):
    """One call of a loss. ``call`` names what is special about it, see :data:`CALLS`."""

    call: str
    rows: int
    classes: int
    dtype: str
    curve: str = "conservative"
    numbers: tuple[float, ...] = (0.75,)

    def __str__(self) -> str:
        numbers = ", ".join(f"{number:g}" for number in self.numbers)
        return f"{self.rows} x {self.classes} {self.dtype} {self.call}, {self.curve}({numbers})"

    def small(self) -> Case:
        """The same with so few rows and classes that an interpreter can check it; odd counts stay odd."""
        return self._replace(rows=min(self.rows, 5), classes=min(self.classes, 32 + self.classes % 16))

    def make(self) -> Curve:
        if self.curve == _OWN:
            twin = self.formula()
            return curves.custom(lambda gap: twin.value(gap), lambda gap: twin.pull(gap), _OWN)
        return from_numbers(self.curve, self.numbers)

    def formula(self) -> Curve:
        return curves.power(1.0, 0.5) if self.curve == _OWN else self.make()


Loss = Callable[[Tensor, Tensor], Tensor]


class Call(NamedTuple):
    """A loss by us and as a formula, the kind of its target, and which arguments both get."""

    link: str  # softmax, sigmoid, mse
    target: str = "labels"  # labels, soft, present, float
    arguments: dict[str, Any] = {}  # noqa: RUF012 - never written


CALLS: dict[str, Call] = {
    "plain": Call("softmax"),
    "sum": Call("softmax", arguments={"reduction": "sum"}),
    "none": Call("softmax", arguments={"reduction": "none"}),
    "ignored": Call("softmax", "some labels"),
    "weighted": Call("softmax", arguments={"weight": True}),
    "smoothed": Call("softmax", arguments={"smoothing": 0.1}),
    "smoothed and weighted": Call("softmax", arguments={"smoothing": 0.1, "weight": True}),
    "soft": Call("softmax", "soft"),
    "soft, none": Call("softmax", "soft", {"reduction": "none"}),
    "soft in float32": Call("softmax", "soft32"),
    "soft and smoothed": Call("softmax", "soft", {"smoothing": 0.1}),
    "match_norm": Call("softmax", arguments={"match_norm": True}),
    "sigmoid": Call("sigmoid", "present"),
    "sigmoid, floats": Call("sigmoid", "float"),
    "sigmoid, alpha": Call("sigmoid", "float", {"alpha": 0.25}),
    "sigmoid, none": Call("sigmoid", "float", {"reduction": "none", "alpha": 0.25}),
    "sigmoid, positives weighted": Call("sigmoid", "float", {"pos_weight": True}),
    "sigmoid, class indices": Call("sigmoid", "labels", {"alpha": 0.25}),
    "mse": Call("mse", arguments={"bonus": True, "link": "softmax"}),
    "mse without bonus": Call("mse", arguments={"bonus": False, "link": "softmax"}),
    "mse, soft": Call("mse", "soft", {"bonus": True, "link": "softmax"}),
    "mse, sigmoid": Call("mse", arguments={"bonus": True, "link": "sigmoid"}),
}
_SOFTMAX = [name for name, call in CALLS.items() if call.link == "softmax" and name != "match_norm"]
_OTHERS = [("cross_entropy", ()), ("normal", (1e-5,)), ("focal", (2.0,)), ("aggressive", (0.5, 1e-5)),
           ("power", (2.0, 0.5)), ("poly", (1.0,)), ("halted_focal", (2.0, 0.5)), (_OWN, ())]


def matrix() -> list[Case]:
    """The cases of ``--matrix``: class counts of every kind, and every argument and curve at a few of them."""
    cases = []
    for classes in (2, 3, 10, 100, 101, 1000, 1001, 4095, 4096, 8142, 10007, 16384, 32000, 32001, 50257, 65536, 65537,
                    128256, 151936, 262144):
        for dtype in ("float32", "bfloat16"):
            cases.append(Case("plain", _rows(classes, dtype), classes, dtype))
    cases += [Case("plain", _rows(n, "float16"), n, "float16") for n in (10, 1000, 32000, 50257)]
    cases += [Case("plain", rows, n, "float32") for rows, n in ((64, 10), (256, 1000), (32, 8142))]
    shapes = ((8192, 32000, "bfloat16"), (65536, 1000, "float32"), (1048576, 10, "float32"), (8192, 50257, "bfloat16"))
    cases += [Case(call, *shape) for call in _SOFTMAX[1:] for shape in shapes]
    for curve, numbers in _OTHERS:
        cases += [Case(call, *shape, curve, numbers) for shape in shapes[:3]
                  for call in (("plain",) if curve == _OWN else ("plain", "smoothed", "soft"))]
    cases += [Case("match_norm", *shape, "normal", (0.0,)) for shape in shapes]
    for call in (name for name, call in CALLS.items() if call.link == "sigmoid"):
        for curve, numbers in (("focal", (2.0,)), ("conservative", (0.75,)), ("cross_entropy", ())):
            cases += [Case(call, *shape, curve, numbers)
                      for shape in ((960696, 80, "float32"), (65536, 1000, "bfloat16"))]
    cases += [Case(call, *shape, "square", (1.0,)) for call in CALLS if call.startswith("mse") for shape in shapes[:3]]
    return cases + few_long_rows()


def few_long_rows() -> list[Case]:
    """Fewer rows than a GPU has multiprocessors."""
    cases = [Case(call, rows, classes, dtype) for call in ("plain", "smoothed", "soft")
             for rows, classes, dtype in ((4, 262144, "float32"), (32, 50257, "bfloat16"), (100, 32000, "bfloat16"))]
    cases += [Case("soft in float32", 2, 245034, "float32", "poly", (1.0,)),
              Case("mse without bonus", 15, 72322, "float32", "square", (1.0,)),
              Case("smoothed and weighted", 17, 210607, "float16", "power", (2.0, 0.5))]
    return cases


def _rows(classes: int, dtype: str) -> int:
    """So many rows that the logits take about 256 MiB, and at most two million."""
    return max(16, min(1 << 21, (1 << 28) // (classes * _DTYPES[dtype].itemsize)))


def random_cases(count: int, seed: int) -> list[Case]:
    """Cases drawn anywhere: sizes, types, curves, arguments."""
    draw = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        classes = int(math.exp(draw.uniform(math.log(2), math.log(300000))))
        elements = int(2 ** draw.uniform(14, 28))
        dtype, call = draw.choice(list(_DTYPES)), draw.choice(list(CALLS))
        curve, numbers = draw.choice([("conservative", (round(draw.uniform(0, 0.99), 2),)),
                                      ("focal", (round(draw.uniform(0.5, 3), 2),)), *_OTHERS[:-1]])
        if CALLS[call].link == "mse":
            curve, numbers = "square", (1.0,)
        if call == "match_norm":
            curve, numbers = "normal", (0.0,)
        cases.append(Case(call, max(1, min(1 << 21, elements // classes)), classes, dtype, curve, tuple(numbers)))
    return cases


def inputs(case: Case, device: str) -> tuple[Tensor, Tensor]:
    """Logits that need a gradient, and a target."""
    generator = torch.Generator(device).manual_seed(0)
    shape, dtype, kind = (case.rows, case.classes), _DTYPES[case.dtype], CALLS[case.call].target
    logits = torch.randn(shape, device=device, dtype=dtype, generator=generator).mul_(3).requires_grad_()
    if kind.endswith("labels"):
        target = torch.randint(case.classes, shape[:1], device=device, generator=generator)
        return logits, target if kind == "labels" else target.masked_fill_(target % 3 == 0, -100)
    draws = torch.rand(shape, device=device, generator=generator)
    if kind.startswith("soft"):
        soft = draws / draws.sum(-1, keepdim=True)
        return logits, soft if kind == "soft32" else soft.to(dtype)
    present = draws < 0.02
    return logits, present.to(dtype) if kind == "float" else present


def losses(case: Case, device: str, by_kernels: bool = False, dtype: torch.dtype | None = None) -> tuple[Loss, Loss]:
    """Our loss and the formula, with class weights in the logits' type or ``dtype``; ``by_kernels`` takes the kernels
    even on a CPU, where the loss itself would not choose them."""
    call, curve = CALLS[case.call], case.make()
    arguments: dict[str, Any] = dict(call.arguments)
    for name in ("weight", "pos_weight"):
        if name in arguments:
            arguments[name] = torch.linspace(0.5, 1.5, case.classes, device=device, dtype=dtype or _DTYPES[case.dtype])
    if call.link == "softmax":
        ours = {("label_smoothing" if name == "smoothing" else name): value for name, value in arguments.items()}
        return (partial(curve_loss, curve=curve, impl="triton" if by_kernels else "auto", **ours),
                partial(bench_formulas.softmax_loss, curve=case.formula(), **arguments))
    kernels = dispatch.kernels() if by_kernels else None
    if call.link == "sigmoid":
        return (partial(kernels.sigmoid_loss if kernels else sigmoid_curve_loss, curve=curve, **arguments),
                partial(bench_formulas.sigmoid_loss, curve=curve, **arguments))
    return (partial(kernels.mse_loss if kernels else mirror_mse_loss, **arguments),
            partial(bench_formulas.mse_loss, **arguments))


def check(case: Case, device: str) -> float:
    """The error of our gradient, relative to the largest element of the formula's in float64."""
    logits, target = inputs(case, device)
    ours = logits.detach().clone().requires_grad_()
    exact = logits.detach().double().requires_grad_()
    losses(case, device, by_kernels=True)[0](ours, target).sum().backward()  # type: ignore[no-untyped-call]
    exact_target = target.double() if target.is_floating_point() else target
    losses(case, device, dtype=torch.float64)[1](exact, exact_target).sum().backward()  # type: ignore[no-untyped-call]
    if ours.grad is None or exact.grad is None:
        return math.inf
    return float((ours.grad.double() - exact.grad).abs().max() / exact.grad.abs().max().clamp(min=1e-30))
