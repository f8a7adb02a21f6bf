"""Sums in few launches: how many each path takes, and that the last program's sum is the same as a launch of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from encouraging import curve_loss, curves
from encouraging.ops import repeat
from encouraging.ops.triton import (
    autograd,
    hard_loss,
    launch,
    matching,
    mse_loss,
    sigmoid_loss,
    soft_loss,
    sums,
    use_tiling,
)
from kernel_cases import MARKS, SIXTEEN, SPLIT, STREAMED, ULP, draw, row_error, truth

pytestmark = MARKS
EL = curves.conservative(0.75)
MANY = 16 << 20


@pytest.fixture(params=["few logits", "many logits"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(autograd, "few_bytes", MANY if request.param == "few logits" else 0)
    return request.param == "few logits"


@pytest.fixture(params=["the last program", "in order", "a launch of its own"])
def arrivals(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MOST_ARRIVALS", sums.MOST_ARRIVALS if request.param == "the last program" else 0)
    monkeypatch.setattr(sums, "in_order_from", 1 if request.param == "in order" else math.inf)
    for module in (sums, launch):
        for name, kept in vars(module).items():
            if isinstance(kept, sums.Kept):
                monkeypatch.setattr(module, name, sums.Kept())


@pytest.mark.usefixtures("arrivals")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED, SPLIT], ids=["sixteen", "streamed", "split"])
def test_sums_and_their_gradients_are_the_references(tiling: object, reduction: str, smoothing: float,
                                                     few: bool) -> None:
    z, y = draw(7 if tiling is SPLIT else 18, seed=3)
    y[5] = -100
    for weight, divisor in ((None, None), (torch.rand(z.shape[1]) + 0.5, None), (None, torch.tensor(7.0))):
        if divisor is not None and reduction == "sum":
            continue
        leaf = z.clone().requires_grad_()
        with use_tiling(tiling):
            loss = hard_loss(leaf, y, EL, weight=weight, reduction=reduction, label_smoothing=smoothing,
                             divisor=divisor)
            again = hard_loss(z, y, EL, weight=weight, reduction=reduction, label_smoothing=smoothing,
                              divisor=divisor)
        loss.backward(torch.tensor(3.0))
        expected, slope = truth(z, y, EL, torch.tensor(3.0), weight=weight, label_smoothing=smoothing,
                                reduction=reduction if divisor is None else "sum")
        over = 1.0 if divisor is None else 7.0
        assert loss.item() == pytest.approx(expected.item() / over, rel=8 * ULP, abs=8 * ULP)
        assert again.item() == pytest.approx(loss.item(), rel=4 * ULP)
        assert (row_error(leaf.grad, slope / over) <= (96 if smoothing else 48) * ULP).all()
        assert (leaf.grad[5] == 0).all()


@pytest.mark.usefixtures("arrivals")
def test_other_losses_are_the_same_however_their_sum_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = draw(40, seed=4)
    soft = torch.rand_like(z)
    for loss in (lambda x: soft_loss(x, soft, EL), lambda x: soft_loss(x, soft, EL, divisor=3.0),
                 lambda x: mse_loss(x, y, bonus=True, divisor=torch.tensor(5.0)), lambda x: mse_loss(x, y, bonus=False),
                 lambda x: sigmoid_loss(x, soft, EL), lambda x: sigmoid_loss(x, y, EL, divisor=torch.tensor(5.0)),
                 lambda x: hard_loss(x, y, curves.normal(), match_norm=True)):
        values, gradients = [], []
        for _ in range(2):  # the counter is 0 again
            leaf = z.clone().requires_grad_()
            found = loss(leaf)
            found.backward()
            values.append(found.item())
            gradients.append(leaf.grad)
        assert values[0] == values[1]
        assert torch.equal(*gradients)
        assert all(int(each.counter) == 0 for each in sums._workspaces.values())
        with monkeypatch.context() as usual:
            usual.setattr(sums, "MOST_ARRIVALS", 2048)
            leaf = z.clone().requires_grad_()
            found = loss(leaf)
            found.backward()
        assert found.item() == pytest.approx(values[0], rel=4 * ULP)
        torch.testing.assert_close(leaf.grad, gradients[0], rtol=4 * ULP, atol=0)


@pytest.mark.parametrize("n", [1, 16, 2048, 2049, 70000])
def test_a_long_sum_is_made_by_several_programs(n: int) -> None:
    shares = torch.rand(2 * n)
    found = sums.total(shares, n, factor=0.5)
    assert found.item() == pytest.approx(0.5 * shares[:n].double().sum().item(), rel=64 * ULP)
    assert torch.equal(found, sums.total(shares, n, factor=0.5))
    state = torch.zeros(5)
    over = sums.total(shares, n, count=2, state=state)
    denominator = shares[n:].double().sum().item()
    assert over.item() == pytest.approx(shares[:n].double().sum().item() / denominator, rel=64 * ULP)
    assert state[-1].item() == pytest.approx(1 / denominator, rel=64 * ULP)


@pytest.mark.parametrize("rows", [1, 16, 1025, 5000])
@pytest.mark.parametrize("n", [1, 2049])
def test_a_sum_of_matched_norms_is_made_with_their_factor(rows: int, n: int) -> None:
    shares, lengths, dtype = torch.rand(2 * n), torch.rand(2, rows), torch.float32
    factor = matching.norm_ratio(lengths).item()
    total, weights = (part.double().sum().item() for part in (shares[:n], shares[n:]))
    state = torch.zeros(4 * rows + 1)
    for divisor, over in ((None, weights), (torch.tensor([2.0, 5.0]), 7.0), (None, 1.0)):
        count = 2 if over == weights else 0
        prepared = matching.matched_total_for(-1, rows, n, 0 if divisor is None else 2, count, 4 * rows, dtype)
        found = [matching.launch_matched_total(prepared, lengths, shares, divisor, state, dtype) for _ in range(2)]
        assert torch.equal(*found)
        assert found[0].item() == pytest.approx(factor * total / over, rel=64 * ULP)
        assert state[-1].item() == pytest.approx(factor / over, rel=64 * ULP)
    assert all(int(each.counter) == 0 for each in sums._workspaces.values())


def test_no_labels_at_all(few: bool) -> None:
    z, y = draw(8)
    for labels, rows in ((torch.full_like(y, -100), z), (y[:0], z[:0])):
        for reduction in ("mean", "sum"):
            leaf = rows.clone().requires_grad_()
            loss = hard_loss(leaf, labels, EL, reduction=reduction)
            loss.backward()
            assert math.isnan(loss.item()) if reduction == "mean" else loss.item() == 0
            assert (leaf.grad == 0).all()


@pytest.mark.parametrize(("shape", "dtype", "later"), [
    ((2**20, 2), torch.float32, True), ((2**20 + 1, 2), torch.float32, False), ((2**20 + 1, 2), torch.float16, True),
    ((2**19, 2, 2), torch.float32, True), ((2**19 + 1, 2, 2), torch.float32, False),
    ((4096, 1024), torch.float32, True), ((4097, 1024), torch.float32, False),
    ((8192, 1024), torch.bfloat16, True), ((0, 5), torch.float32, True),
])
def test_few_logits_of_not_too_many_rows_get_their_gradient_later(shape: tuple[int, ...], dtype: torch.dtype,
                                                                  later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "few_bytes", MANY)
    logits = torch.empty(shape, dtype=dtype, device="meta")
    assert autograd.is_made_later(logits) == later
    assert autograd.is_made_later(logits, inplace=True) == (dtype == torch.float16)


def test_a_call_that_repeats_gives_the_same_and_sees_what_has_changed(few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=6)
    results = []
    for labels in (y, y, y.roll(1), y):
        leaf = z.clone().requires_grad_()
        curve_loss(leaf, labels, EL, impl="triton").backward()
        results.append(leaf.grad)
    assert len(repeat._remembered) == 1
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[3])
    assert not torch.equal(results[0], results[2])
    with torch.no_grad():
        assert not curve_loss(leaf, y, EL, impl="triton").requires_grad
    leaf = z.clone().requires_grad_()
    first, = torch.autograd.grad(curve_loss(leaf, y, EL, impl="triton"), leaf, create_graph=True)
    first.square().sum().backward()
    exact = z.double().requires_grad_()
    once, = torch.autograd.grad(curve_loss(exact, y, EL), exact, create_graph=True)
    once.square().sum().backward()
    assert (row_error(leaf.grad, exact.grad) <= 1e-4).all()
    both = curve_loss(leaf, y, EL, impl="triton")
    several, = torch.autograd.grad(both, leaf, torch.tensor([1.0, 2.0]), is_grads_batched=True)
    torch.testing.assert_close(several[0], results[0], rtol=4 * ULP, atol=0)
    torch.testing.assert_close(several[1], 2 * results[0], rtol=4 * ULP, atol=0)
    wrong = torch.full_like(y, -100)
    assert curve_loss(z, wrong, EL, impl="triton").isnan()
    with pytest.raises(ValueError, match="label_smoothing"):
        curve_loss(z, y, EL, label_smoothing=False, impl="triton")
    with pytest.raises((TypeError, ValueError), match="curve"):
        curve_loss(z, y, "normal", impl="triton")


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_and_soft_targets_repeat_too(soft: bool, reduction: str, dtype: torch.dtype, few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=8, dtype=dtype)
    target = torch.softmax(torch.randn(z.shape, generator=torch.Generator().manual_seed(1)), 1) if soft else y
    other = target.roll(1, 0)
    found = []
    for labels in (target, target, other, target):
        leaf = z.clone().requires_grad_()
        loss = curve_loss(leaf, labels, EL, reduction=reduction, impl="triton")
        loss.sum().backward()
        found.append((loss.detach(), leaf.grad))
    assert len(repeat._remembered) == 1
    assert all(loss.dtype == (torch.float32 if soft else dtype) for loss, _ in found)
    # The kernel writes a sum in 16 bits itself from the second call on, which the interpreter cuts off.
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0 if dtype == torch.float32 else 2.0**-7, atol=0)
    assert torch.equal(found[0][1], found[1][1])
    assert all(torch.equal(a, b) for a, b in zip(found[1], found[3], strict=True))
    assert not torch.equal(found[0][1], found[2][1])
    if soft:  # a gradient for the targets is asked for now
        wanted = target.clone().requires_grad_()
        curve_loss(z.clone().requires_grad_(), wanted, EL, reduction=reduction, impl="triton").sum().backward()
        assert wanted.grad is not None


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("given", ["weight", "divisor", "both"])
def test_weights_and_divisors_repeat_too_and_are_read_anew(given: str, smoothing: float, soft: bool, few: bool) -> None:
    repeat.forget()
    z, y = draw(5, seed=9)
    target = torch.softmax(torch.randn(z.shape, generator=torch.Generator().manual_seed(1)), 1) if soft else y
    weights, divisors = torch.rand(2, z.shape[1]) + 0.5, torch.tensor([7.0, 11.0])
    for turn in (0, 1, 0):
        weight = weights[turn] if given != "divisor" else None
        divisor = divisors[turn].clone() if given != "weight" else None
        leaf, exact = z.clone().requires_grad_(), z.double().requires_grad_()
        loss = curve_loss(leaf, target, EL, weight, label_smoothing=smoothing, divisor=divisor, impl="triton")
        first, = torch.autograd.grad(loss, leaf, create_graph=True)
        first.sum().backward()
        loss = curve_loss(leaf, target, EL, weight, label_smoothing=smoothing, divisor=divisor, impl="triton")
        found, = torch.autograd.grad(loss, leaf)
        wide = None if weight is None else weight.double()
        expected = curve_loss(exact, target.double() if soft else y, EL, wide, label_smoothing=smoothing,
                              divisor=divisor, impl="reference")
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-7, check_dtype=False)
        assert (row_error(found, torch.autograd.grad(expected, exact)[0]) <= 1e-5).all()
        assert (row_error(first, found) <= 1e-5).all()
    assert len(repeat._remembered) == 1


@pytest.mark.usefixtures("arrivals")
def test_a_divisor_repeats_however_the_sum_is_made(few: bool) -> None:
    repeat.forget()
    z, y = draw(40, seed=9)
    expected = curve_loss(z, y, EL, reduction="sum", impl="reference") / 7
    for _ in range(3):
        found = curve_loss(z.clone().requires_grad_(), y, EL, divisor=torch.tensor(7.0), impl="triton")
        torch.testing.assert_close(found.detach(), expected)
    assert len(repeat._remembered) == 1


def test_weights_and_divisors_that_are_not_read_as_they_lie_are_not_remembered() -> None:
    repeat.forget()
    z, y = draw(12, seed=9)
    weight = torch.rand(z.shape[1])
    for other in (weight.double(), weight.repeat_interleave(2)[::2], weight.clone().requires_grad_(),
                  torch.nn.Parameter(weight)):
        with torch.no_grad():  # else the kernels refuse weights that learn
            found = curve_loss(z, y, EL, other, impl="triton")
        torch.testing.assert_close(found, curve_loss(z, y, EL, other.detach().float(), impl="reference"), rtol=1e-3,
                                   atol=0)
    for divisor in (7, 7.0, torch.tensor(7), torch.tensor(7.0, dtype=torch.float64)):
        torch.testing.assert_close(curve_loss(z, y, EL, divisor=divisor, impl="triton"),
                                   curve_loss(z, y, EL, reduction="sum", impl="reference") / 7)
    assert not repeat._remembered
    for _ in range(2):
        assert curve_loss(z, y, EL, weight, impl="triton").isfinite()
        with pytest.raises(ValueError, match="weight"):
            curve_loss(z, y, EL, weight[1:], impl="triton")
        with pytest.raises(ValueError, match="divisor"):
            curve_loss(z, y, EL, divisor=torch.ones(1), impl="triton")
        with pytest.raises(ValueError, match="divisor"):
            curve_loss(z, y, EL, divisor=torch.ones(()), reduction="sum", impl="triton")
    assert len(repeat._remembered) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_repeated_loss_of_16_bits_has_their_type(dtype: torch.dtype, few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=7, dtype=dtype)
    found = []
    for _ in range(3):
        leaf = z.clone().requires_grad_()
        loss = curve_loss(leaf, y, EL, impl="triton")
        loss.backward(torch.tensor(3.0, dtype=dtype))
        found.append((loss.detach(), leaf.grad))
    assert all(loss.dtype == dtype for loss, _ in found)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert curve_loss(z, y, EL, impl="triton").dtype == torch.float32
    assert curve_loss(z, y, EL, impl="triton").dtype == dtype


# kernels of ours, and operations of torch that compute something, in one forward and backward pass
_FEW = {"plain": (2, 0), "sum": (2, 0), "none": (2, 0), "weighted": (2, 0), "divisor": (2, 0), "smoothed": (2, 0),
        "match_norm": (3, 0), "own curve": (3, 2), "soft": (2, 0), "sigmoid": (2, 0),
        "sigmoid, class indices": (2, 0), "mse": (2, 0)}


def test_launches_of_every_path(tmp_path: Path) -> None:
    """Without the interpreter, which launches nothing: in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script, out = Path(__file__).parents[2] / "benchmarks" / "host_time.py", tmp_path / "host.json"
    for dtype in ("float32", "float16"):  # whose losses nobody casts
        subprocess.run([sys.executable, script, "--repeats", "1", "--dtype", dtype, "--out", out], env=environment,
                       check=True, capture_output=True)
        paths = json.loads(out.read_text())["paths"]
        assert {name: (len(path["ours"]), len(path["torchs"])) for name, path in paths.items()} == _FEW


def test_the_gradient_of_a_repeated_call_is_scaled_in_its_own_memory_but_for_a_graph_that_is_kept(few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=11)
    expected = truth(z, y, EL, torch.tensor(3.0))[1]
    for kept in (False, False, True, False, True):
        leaf = z.clone().requires_grad_()
        loss = curve_loss(leaf, y, EL, impl="triton")
        for _ in range(2 if kept else 1):
            leaf.grad = None
            loss.backward(torch.tensor(3.0), retain_graph=kept)
            assert (row_error(leaf.grad, expected) <= 64 * ULP).all()
        if kept:
            batch, = torch.autograd.grad(loss, leaf, torch.tensor([3.0, 6.0]), is_grads_batched=True)
            assert (row_error(batch[1], 2 * expected) <= 64 * ULP).all()
    assert len(repeat._remembered) == 1
