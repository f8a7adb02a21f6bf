"""The kernels of every argument on a GPU against float64, with the plain code in float32 as the measure. One line per
check.

    python benchmarks/check_gpu_arguments.py [--list] [--part I/N] [NAME ...]

Exits with status 1 when a check fails. ``check_gpu.py`` has the losses of labels.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from gpu_checks import CURVES, EL, TYPES, ULP, Checks, draw, expect, mine, row_error, run, sensitivity, spacing

from encouraging import curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from encouraging.commands.bench_cases import TOLERANCE, matrix
from encouraging.commands.bench_cases import check as case_error
from encouraging.curves import Curve
from encouraging.ops import reference

if find_spec("triton"):  # --help and --list do without
    from encouraging.ops.triton import loss_and_gradient_, soft_loss

check = Checks()


def at_odd_place(tensor: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """The same numbers inside a poisoned storage, and that storage."""
    storage = torch.full((tensor.numel() + offset + 9,), math.nan, dtype=tensor.dtype, device="cuda")
    return storage[offset:offset + tensor.numel()].view(tensor.shape).copy_(tensor), storage


def soft_targets(rows: int, classes: int, target: Tensor, dtype: torch.dtype) -> Tensor:
    """One class, two classes, and all."""
    hot = F.one_hot(target, classes).float()
    share = torch.rand(rows, 1, device="cuda")
    soft = share * hot + (1 - share) * hot[torch.randperm(rows, device="cuda")]
    soft[::3] = torch.randn(rows, classes, device="cuda").mul_(2).softmax(1)[::3]
    soft[1::3] = hot[1::3]
    return soft.to(dtype)


def allowed(plain: Tensor, slope: Tensor, dtype: torch.dtype, moved: Tensor | None = None) -> Tensor:
    """Twice the error of the plain code in float32, and one rounding; at least 32 ulp, and eight times ``moved``, which
    is :func:`sensitivity`. On 40,000 rows of 2 to 10 classes our code was at most five times that away from the truth,
    and the plain code much closer or much further, as luck would have it."""
    error = (2 * row_error(plain, slope)).clamp(min=32 * ULP)
    if moved is not None:
        error = torch.maximum(error, 8 * moved)
    return error + 0.51 * torch.finfo(dtype).eps + spacing(slope, dtype)


def soft_case(rows: int, classes: int, dtype: torch.dtype, target_dtype: torch.dtype, curve: Curve,
              offset: int = 0, **arguments: Any) -> float:
    z, y = draw(rows, classes, dtype)
    q = soft_targets(rows, classes, y, target_dtype)
    if offset:
        z, q = at_odd_place(z, offset)[0], at_odd_place(q, offset)[0]
    worst = 0.0
    for reduction in ("none", "mean"):
        # The gradient of a mean is rounded before an upstream gradient multiplies it: with 1, once.
        above = torch.rand(rows, device="cuda") + 0.5 if reduction == "none" else torch.ones((), device="cuda")
        leaf, target = z.detach().requires_grad_(), q.detach().requires_grad_()
        leaf.grad = None
        loss = soft_loss(leaf, target, curve, reduction=reduction, **arguments)
        loss.backward(above)
        exact, exact_target = z.detach().double().requires_grad_(), q.detach().double().requires_grad_()
        expected = reference.soft_loss(exact, exact_target, curve, reduction=reduction, **arguments)
        expected.backward(above.double())
        plain = z.detach().float().clone().requires_grad_()
        reference.soft_loss(plain, q.detach().float(), curve, reduction=reduction, **arguments).backward(above)

        def gradient(logits: Tensor, masses: Tensor, above: Tensor = above, reduction: str = reduction) -> Tensor:
            leaf = logits.detach().requires_grad_()
            reference.soft_loss(leaf, masses, curve, reduction=reduction, **arguments).backward(above.double())
            return leaf.grad

        words = f"{classes} {dtype} {target_dtype} {curve!r} offset {offset} {reduction}"
        value = ((loss.double() - expected).abs() / (ULP * expected.abs().clamp(min=8))).max().item()
        bound = allowed(plain.grad, exact.grad, dtype, sensitivity(gradient, z, q))
        error = (row_error(leaf.grad, exact.grad) / bound).max().item()
        unit = torch.finfo(target_dtype).eps * (8 if target_dtype == torch.float32 else 1)
        size = exact_target.grad.abs().clamp(min=8 / (1 if reduction == "none" else rows))
        by_target = ((target.grad.double() - exact_target.grad).abs() / (unit * size)).max().item()
        expect(value <= 8, f"values {words}: {value:.1f} ulp")
        expect(error <= 1, f"gradients {words}: {error:.2f} of what is allowed")
        expect(by_target <= 1, f"gradients on the targets {words}: {by_target:.2f} of what is allowed")
        worst = max(worst, error)
    return worst


@check(in_parts=True)
def soft_targets_of_every_size() -> str:
    cases = [(512, 2), (512, 3), (512, 10), (512, 101), (256, 1000), (64, 8142), (33, 32000), (33, 50257), (17, 128257)]
    types = ((torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16),
             (torch.float16, torch.float32))
    worst = [soft_case(*size, *pair, EL) for size, pair in mine((size, pair) for size in cases for pair in types)]
    return f"{len(worst)} cases: at most {max(worst, default=0):.2f} of what is allowed"


@check(in_parts=True)
def soft_targets_of_every_curve() -> str:
    weights = {classes: torch.rand(classes, device="cuda") + 0.5 for classes in (1000, 20001)}
    whole, half = (torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16)
    cases: list[tuple[Any, dict[str, Any]]] = [
        ((rows, classes, *whole, curve), arguments) for curve in CURVES for rows, classes, arguments in (
            (256, 1000, {"weight": weights[1000]}), (33, 20001, {"label_smoothing": 0.1}),
            (33, 20001, {"weight": weights[20001]}))]
    cases += [((33, 50257, *half, EL, offset), {}) for offset in (1, 3, 7)]
    worst = [soft_case(*case, **arguments) for case, arguments in mine(cases)]
    return f"{len(worst)} cases: at most {max(worst, default=0):.2f} of what is allowed"


@check(in_parts=True)
def rows_that_start_anywhere() -> str:
    worst, cases = 0.0, mine(
        (*size, dtype, offset, smoothing)
        for size in ((257, 1001), (65, 4095), (65, 10007), (33, 32001), (33, 50257), (17, 262145)) for dtype in TYPES
        for offset, smoothing in ((0, 0.0), (3, 0.0), (0, 0.1), (5, 0.1)))
    for rows, classes, dtype, offset, smoothing in cases:
        z, y = draw(rows, classes, dtype)
        y[1] = -100
        view, storage = at_odd_place(z, offset)
        exact = z.double().requires_grad_()
        reference.hard_loss(exact, y, EL, reduction="sum", label_smoothing=smoothing).backward()
        plain = z.detach().float().clone().requires_grad_()
        reference.hard_loss(plain, y, EL, reduction="sum", label_smoothing=smoothing).backward()
        loss_and_gradient_(view, y, EL, label_smoothing=smoothing)
        error = (row_error(view, exact.grad) / allowed(plain.grad, exact.grad, dtype)).max().item()
        words = f"{classes} {dtype} offset {offset} smoothing {smoothing}"
        expect(error <= 1, f"{words}: {error:.2f} of what is allowed")
        outside = torch.cat([storage[:offset], storage[offset + z.numel():]])
        expect(outside.isnan().all(), f"{words}: written outside")
        worst = max(worst, error)
    return f"{len(cases)} cases: at most {worst:.2f} of what is allowed"


@check(in_parts=True)
def sigmoid_losses() -> str:
    worst, cases = 0.0, mine([*product(TYPES[:2], CURVES), (torch.float16, EL)])
    for dtype, curve in cases:
        z = (16 * (2 * torch.rand(511, 80, device="cuda") - 1)).to(dtype)
        present = torch.rand(511, 80, device="cuda") < 0.3
        for target in (present, present.to(dtype), torch.rand(511, 80, device="cuda"), present.long()):
            arguments = {"pos_weight": torch.rand(80, device="cuda") + 0.5, "alpha": 0.25, "reduction": "none"}
            leaf, exact = z.clone().requires_grad_(), z.double().requires_grad_()
            wide = target.double() if target.is_floating_point() else target
            sigmoid_curve_loss(leaf, target, curve, **arguments).sum().backward()
            arguments["pos_weight"] = arguments["pos_weight"].double()
            sigmoid_curve_loss(exact, wide, curve, **arguments).sum().backward()
            bound = 0.51 * torch.finfo(dtype).eps * exact.grad.abs() + 64 * ULP * exact.grad.abs() + 1e-6
            bound += torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
            error = ((leaf.grad.double() - exact.grad).abs() / bound).max().item()
            expect(error <= 1, f"{dtype} {curve!r} {target.dtype}: {error:.2f} of what is allowed")
            worst = max(worst, error)
    return f"{4 * len(cases)} cases: at most {worst:.2f} of what is allowed"


def squared_error_case(rows: int, classes: int, dtype: torch.dtype, links: tuple[str, ...]) -> float:
    z, y = draw(rows, classes, dtype)
    upstream = torch.randint(4, 12, (rows, classes), device="cuda") / 8  # the same numbers in every type
    worst = 0.0
    for target in (y, soft_targets(rows, classes, y, torch.float32)):
        for bonus, link, reduction in product((True, False), links, ("sum", "none")):
            def backward(logits: Tensor, masses: Tensor, bonus: bool = bonus, link: str = link,
                         reduction: str = reduction) -> None:
                above = upstream.to(logits.device, logits.dtype) if reduction == "none" else None
                mirror_mse_loss(logits, masses, bonus=bonus, link=link, reduction=reduction).backward(above)

            leaf, exact = z.clone().requires_grad_(), z.double().requires_grad_()
            plain = z.detach().cpu().float().requires_grad_()
            wide = target.double() if target.is_floating_point() else target
            for one, truth in ((leaf, target), (exact, wide), (plain, target.cpu())):
                backward(one, truth)
            moved = None
            if target.is_floating_point():
                def gradient(logits: Tensor, masses: Tensor,
                             backward: Callable[[Tensor, Tensor], None] = backward) -> Tensor:
                    leaf = logits.detach().requires_grad_()
                    backward(leaf, masses)
                    return leaf.grad

                moved = sensitivity(gradient, z, target)
            bound = allowed(plain.grad.cuda(), exact.grad, dtype, moved).clamp(min=128 * ULP)
            error = (row_error(leaf.grad, exact.grad) / bound).max().item()
            expect(error <= 1, f"{classes} {dtype} {bonus} {link} {reduction}: {error:.2f} of what is allowed")
            worst = max(worst, error)
    return worst


@check(in_parts=True)
def squared_errors() -> str:
    cases = mine((*size, dtype) for size in ((512, 2), (512, 10), (256, 1000), (64, 8142), (150, 16387), (33, 32000),
                                     (17, 50257)) for dtype in TYPES)
    worst = [squared_error_case(*case, ("softmax", "sigmoid")) for case in cases]
    return f"{16 * len(cases)} cases: at most {max(worst, default=0):.2f} of what is allowed"


@check(in_parts=True)
def norm_matching_and_own_curves() -> str:
    own = curves.custom(lambda gap: F.softplus(-gap, threshold=40), lambda gap: torch.sigmoid(-gap), "own")
    ce, worst = curves.cross_entropy(), 0.0
    kinds: list[tuple[Curve, Curve, bool, dict[str, Any]]] = [
        (curves.normal(), curves.normal(), False, {"match_norm": True}),
        (EL, EL, False, {"match_norm": True, "label_smoothing": 0.1}), (EL, EL, True, {"match_norm": True}),
        (own, ce, False, {}), (own, ce, False, {"match_norm": True})]
    cases = mine((*size, dtype, *kind) for size in ((512, 10), (256, 1000), (257, 1001), (33, 50257))
                 for dtype in (TYPES if size == (256, 1000) else TYPES[:2]) for kind in kinds)
    for rows, classes, dtype, curve, twin, soft, arguments in cases:
        z, y = draw(rows, classes, dtype)
        target = soft_targets(rows, classes, y, torch.float32) if soft else y
        leaf, exact = z.clone().requires_grad_(), z.double().requires_grad_()
        wide = target.double() if target.is_floating_point() else target
        curve_loss(leaf, target, curve, reduction="sum", impl="triton", **arguments).backward()
        curve_loss(exact, wide, twin, reduction="sum", **arguments).backward()
        # Smoothed and soft gradients are rounded, multiplied by the factor, and rounded again.
        bound = 1.02 * torch.finfo(dtype).eps + 512 * ULP + 2 * spacing(exact.grad, dtype)
        error = (row_error(leaf.grad, exact.grad) / bound).max().item()
        expect(error <= 1, f"{classes} {dtype} {curve!r} {arguments}: {error:.2f} of what is allowed")
        worst = max(worst, error)
    return f"{len(cases)} cases: at most {worst:.2f} of what is allowed"


@check(in_parts=True)
def every_case_of_the_matrix_is_its_formula() -> str:
    worst, tried = 0.0, 0
    for case in mine(sorted({case.small() for case in matrix()})):
        bound, error = TOLERANCE[case.dtype], case_error(case, "cuda")
        expect(error <= bound, f"{case}: {error:.1e}")
        worst, tried = max(worst, error / bound), tried + 1
    return f"{tried} cases: at most {worst:.2f} of what is allowed"


if __name__ == "__main__":
    run(check, __doc__)
