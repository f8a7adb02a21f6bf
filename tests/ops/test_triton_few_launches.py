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
    monkeypatch.setattr(autograd, "few_bytes", 16 << 20)
    logits = torch.empty(shape, dtype=dtype, device="meta")
    assert autograd.is_made_later(logits) == later
    assert autograd.is_made_later(logits, inplace=True) == (dtype == torch.float16)


@pytest.mark.usefixtures("arrivals")
def test_a_divisor_repeats_however_the_sum_is_made(few: bool) -> None:
    repeat.forget()
    z, y = draw(40, seed=9)
    expected = curve_loss(z, y, EL, reduction="sum", impl="reference") / 7
    for _ in range(3):
        found = curve_loss(z.clone().requires_grad_(), y, EL, divisor=torch.tensor(7.0), impl="triton")
        torch.testing.assert_close(found.detach(), expected)
    assert len(repeat._remembered) == 1


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
