"""Sums that are made inside their launch, in the order of the programs: the words are EMPTY again after every launch,
results do not depend on what was there before, and nothing is left out or counted twice."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
import triton.language as tl

from encouraging import curve_loss, curves
from encouraging.ops import repeat
from encouraging.ops.triton import Tiling, autograd, hard_loss, in_order, launch, mse_loss, sums, use_tiling
from kernel_cases import MARKS, SIXTEEN, STREAMED, ULP, draw, row_error, truth

pytestmark = MARKS
EL = curves.conservative(0.75)
ROW_BY_ROW = Tiling(rows=1, block=4, warps=1)
GROUP = 8  # programs; on a GPU they are more


@pytest.fixture(autouse=True)
def everything_is_in_order_and_in_small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order, "GROUP", tl.constexpr(GROUP))
    monkeypatch.setattr(sums, "in_order_from", 1)
    monkeypatch.setattr(sums, "_words", {})
    repeat.forget()


def words() -> Tensor:
    each, = sums._words.values()
    return each


def all_empty() -> bool:
    return bool((words() == in_order.EMPTY.value).all())


def step(z: Tensor, y: Tensor, tiling: Tiling | None = ROW_BY_ROW, **arguments: object) -> tuple[Tensor, Tensor]:
    leaf = z.detach().requires_grad_()
    leaf.grad = None
    with use_tiling(tiling):
        loss = hard_loss(leaf, y, EL, **arguments)
    loss.backward()
    return loss.detach(), leaf.grad


def check(found: tuple[Tensor, Tensor], z: Tensor, y: Tensor, **arguments: object) -> None:
    expected, slope = truth(z, y, EL, **arguments)
    assert found[0].item() == pytest.approx(expected.item(), rel=64 * ULP, abs=64 * ULP)
    assert (row_error(found[1], slope) <= 64 * ULP).all()


@pytest.mark.parametrize("rows", [1, 2, 3, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP, 67])
@pytest.mark.parametrize("later", [False, True])
def test_any_number_of_programs(rows: int, later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "few_bytes", 1 << 30 if later else 0)
    z, y = draw(rows, 3, seed=rows)
    y[rows // 2] = -100 if rows > 1 else y[0]
    found = step(z, y)
    check(found, z, y)
    assert all_empty()
    again = step(z, y)
    assert torch.equal(found[0], again[0])
    assert torch.equal(found[1], again[1])


def test_groups_as_large_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(autograd, "few_bytes", 0)
    monkeypatch.setattr(sums, "in_order_from", 1)
    monkeypatch.setattr(sums, "_words", {})
    z, y = draw(2 * in_order.GROUP.value + 3, 3, seed=1)
    y[::3] = -100
    check(step(z, y), z, y)
    assert all_empty()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED], ids=["sixteen", "streamed"])
@pytest.mark.parametrize("given", ["nothing", "weight", "divisor"])
def test_weights_divisors_and_sums(given: str, tiling: Tiling, reduction: str) -> None:
    z, y = draw(300, seed=5)
    y[::7] = -100
    weight = torch.rand(z.shape[1]) + 0.5 if given == "weight" else None
    divisor = torch.tensor(7.0) if given == "divisor" else None
    if divisor is not None and reduction == "sum":
        return
    found = step(z, y, tiling, weight=weight, reduction=reduction, divisor=divisor)
    over = 1.0 if divisor is None else 7.0
    check((over * found[0], over * found[1]), z, y, weight=weight, reduction=reduction if divisor is None else "sum")
    assert all_empty()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tiling", [ROW_BY_ROW, SIXTEEN], ids=["row by row", "sixteen"])
@pytest.mark.parametrize("later", [False, True])
def test_smoothed_labels(later: bool, tiling: Tiling, weighted: bool, reduction: str,
                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "few_bytes", 1 << 30 if later else 0)
    z, y = draw(2 * GROUP + 3, 4, seed=8)
    y[::5] = -100
    arguments = {"weight": torch.rand(4) + 0.5 if weighted else None, "label_smoothing": 0.2, "reduction": reduction}
    found = step(z, y, tiling, **arguments)
    check(found, z, y, **arguments)
    assert all_empty()
    again = step(z, y, tiling, **arguments)
    assert torch.equal(found[0], again[0])
    assert torch.equal(found[1], again[1])


def test_a_weight_that_is_no_number_is_waited_for_no_longer_than_others() -> None:
    z, y = draw(GROUP + 3, 3, seed=6)
    weight = torch.tensor([1.0, math.nan, 2.0])
    y[:3] = torch.tensor([0, 1, 2])
    assert step(z, y, weight=weight)[0].isnan()
    assert all_empty()


def test_the_first_programs_count_the_labels_in_parts() -> None:
    z, y = draw(600, 3, seed=2)
    y[torch.rand(600) < 0.4] = -100
    y[3] = 17  # names no class: NaN in the loss, and not counted
    assert sums.n_counting(600) == 4
    loss, gradient = step(z, y)
    assert loss.isnan()
    known = (y >= 0) & (y < 3)
    _, slope = truth(z[known], y[known], EL)
    assert (row_error(gradient[known], slope) <= 64 * ULP).all()
    assert all_empty()


def test_a_part_is_counted_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "n_counting", lambda rows: 1)
    z, y = draw(600, 3, seed=4)
    y[::3] = -100
    check(step(z, y), z, y)
    assert all_empty()


@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (256, 1), (257, 2), (1100, 8), (65536, 256), (262144, 256),
                                             (262145, 0)])
def test_how_many_count(rows: int, parts: int) -> None:
    assert sums.n_counting(rows) == parts


@pytest.mark.parametrize("weighted", [False, True])
def test_labels_can_be_counted_before(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "counted_rows", 0)
    monkeypatch.setattr(autograd, "few_bytes", 0)  # the gradient is made ahead
    assert sums.n_counting(20) == 0
    z, y = draw(20, 4, seed=31)
    y[::3] = -100
    weight = torch.rand(4) + 0.5 if weighted else None
    check(step(z, y, weight=weight), z, y, weight=weight)
    assert all_empty()


@pytest.mark.parametrize("later", [False, True])
def test_launches_follow_each_other_on_the_same_words(later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "few_bytes", 1 << 30 if later else 0)
    cases = [draw(rows, classes, seed=rows) for rows, classes in ((100, 3), (40, 37), (GROUP + 3, 4), (1, 5), (100, 3))]
    torch.use_deterministic_algorithms(True)  # which fills what is not initialised with NaN
    try:
        first = [step(z, y, None if z.shape[1] > 4 else ROW_BY_ROW) for z, y in cases]
        assert all_empty()
        again = [step(z, y, None if z.shape[1] > 4 else ROW_BY_ROW) for z, y in cases]
    finally:
        torch.use_deterministic_algorithms(False)
    for one, other, (z, y) in zip(first, again, cases, strict=True):
        check(one, z, y)
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_no_labels_at_all(reduction: str) -> None:
    z, y = draw(GROUP + 5, 3)
    loss, gradient = step(z, torch.full_like(y, -100), reduction=reduction)
    assert loss.isnan() if reduction == "mean" else loss == 0
    assert (gradient == 0).all()
    assert all_empty()


def test_a_share_that_looks_like_an_empty_word_is_one_all_the_same() -> None:
    z, y = draw(9, 3)
    bits = z.view(torch.int32)
    bits[4] = in_order.EMPTY.value
    loss, gradient = step(z, y, reduction="sum")
    assert loss.isnan()
    assert gradient.isnan().any(1).nonzero().flatten().tolist() == [4]
    assert all_empty()


@pytest.mark.parametrize("offset", range(4))
def test_logits_that_start_anywhere(offset: int) -> None:
    z, y = draw(70, 37, seed=offset)
    storage = torch.full((z.numel() + 8,), math.nan)
    view = storage[offset:offset + z.numel()].view(z.shape).copy_(z)
    check(step(view, y, None), z, y)
    assert int(storage.isnan().sum()) == 8


def test_squared_errors() -> None:
    z, y = draw(GROUP + 9, 3)
    found = []
    for way in (1, 1, math.inf):
        sums.in_order_from = way
        leaf = z.clone().requires_grad_()
        with use_tiling(ROW_BY_ROW):
            loss = mse_loss(leaf, y, bonus=True)
        loss.backward()
        found.append((loss.detach(), leaf.grad))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][0], found[2][0], rtol=16 * ULP, atol=0)
    assert all(torch.equal(found[0][1], other[1]) for other in found[1:])
    assert all_empty()


def test_words_grow_and_belong_to_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    like = torch.zeros(1)
    few = sums.words(like, 10)
    assert sums.words(like, 3) is few
    many = sums.words(like, 5000)
    assert many.shape[0] >= 5000 + in_order.COUNTS.value + in_order.GROUPS.value
    assert sums.words(like, 10) is many
    monkeypatch.setattr(sums, "current_stream", lambda device: 1)
    assert sums.words(like, 10) is not many
    monkeypatch.setattr(sums, "is_captured", lambda device: True)
    assert sums.words(like, 10) is not sums.words(like, 10)


def test_who_makes_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "in_order_from", 2049)
    assert [sums.ending(n, 0, in_order=True) for n in (0, 1, 2048, 2049, 65536, 65537)] == [0, 1, 1, 2, 2, 0]
    assert [sums.ending(n, 0, in_order=False) for n in (0, 1, 2048, 2049)] == [0, 1, 1, 0]
    assert [sums.ending(4096, rows, in_order=True) for rows in (1 << 14, 1 + (1 << 14))] == [2, 0]
    monkeypatch.setattr(sums, "in_order_rows", math.inf)
    assert [sums.ending(4096, rows, in_order=True) for rows in (1 << 14, 1 << 18)] == [2, 2]
    monkeypatch.setattr(sums, "in_order_from", math.inf)
    assert sums.ending(2049, 0, in_order=True) == 0
    assert launch.sums is sums


def test_a_repeated_mean_takes_the_way_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = draw(40, seed=3)
    losses = []
    for way in (1, math.inf, 1):
        monkeypatch.setattr(sums, "in_order_from", way)
        repeat.forget()
        for _ in range(2):
            leaf = z.clone().requires_grad_()
            loss = curve_loss(leaf, y, EL, impl="triton")
            loss.backward()
            losses.append(loss.item())
        assert all_empty()
    assert losses == pytest.approx([losses[0]] * 6, rel=16 * ULP)


def test_launches_of_many_logits(tmp_path: Path) -> None:
    """More than 16 MiB, in more than 2048 programs: one launch forward and one backward."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script, out = Path(__file__).parents[2] / "benchmarks" / "host_time.py", tmp_path / "host.json"
    subprocess.run([sys.executable, script, "--repeats", "1", "--shape", "4200x1000", "--out", out, "plain", "sum",
                    "none", "weighted", "divisor", "mse"], env=environment, check=True, capture_output=True)
    launched = {name: len(path["ours"]) for name, path in json.loads(out.read_text())["paths"].items()}
    assert launched == {"plain": 2, "sum": 2, "none": 2, "weighted": 2, "divisor": 2, "mse": 2}
