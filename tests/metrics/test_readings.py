"""The identities between margins, energies, gaps and losses, and what is read off any logits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from encouraging import curve_loss
from encouraging.curves import Curve, cross_entropy, normal
from encouraging.errors import ArgumentError, DtypeError, ShapeError, TargetError
from encouraging.metrics import (
    _blocks,
    conditional_energy,
    correct,
    free_energy,
    gradient_mass,
    margin,
    minimum_energy,
    read,
    read_unlabelled,
    rival_energy,
    teaching,
)
from encouraging.metrics._energy import energies
from encouraging.metrics._margin import margins
from strategies import CURVES, SEEDS, generator, rows_with_gaps

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@st.composite
def labelled(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Hopeless to certain, shifted, with ties and masked classes."""
    seed, classes = draw(SEEDS), draw(st.integers(2, 8))
    gaps = torch.linspace(-20, draw(st.sampled_from([5.0, 40.0, 900.0])), 37, dtype=torch.float64)
    logits, target = rows_with_gaps(gaps, classes, seed)
    logits = logits + draw(st.sampled_from([0.0, 0.0, 256.0, -1024.0]))
    if draw(st.booleans()):
        logits = logits.round()  # ties
    if draw(st.booleans()):
        mask = torch.rand(logits.shape, generator=generator(seed)) < 0.3
        logits = logits.masked_fill(mask.scatter(1, target[:, None], False), -torch.inf)
    return logits.to(dtype), target


def mixed(n: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = generator(seed)
    logits, target = 3 * torch.randn(n, classes, generator=g), torch.randint(classes, (n,), generator=g)
    logits[torch.arange(n), target] += 4
    return logits, target


@given(case=labelled())
def test_a_margin_is_positive_exactly_when_the_label_is_the_only_best(case: tuple[Tensor, Tensor]) -> None:
    logits, target = case
    alone = (logits == logits.amax(1, keepdim=True)).sum(1) == 1
    right = alone & (logits.argmax(1) == target)
    found = read(logits, target)
    assert torch.equal(margin(logits, target) > 0, right)
    assert torch.equal(found.margin > 0, right)
    assert torch.equal(found.correct, right)
    assert torch.equal(correct(logits, target), right)


@given(case=labelled())
def test_margins_and_energies_are_two_views_of_the_same(case: tuple[Tensor, Tensor]) -> None:
    logits, target = case
    found = read(logits, target)
    label = conditional_energy(logits).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(margin(logits, target), rival_energy(logits, target) - label, rtol=0, atol=0)
    torch.testing.assert_close(found.margin, margin(logits, target), rtol=0, atol=0)
    torch.testing.assert_close(-found.score, label, rtol=0, atol=0)
    torch.testing.assert_close(-found.rival, rival_energy(logits, target), rtol=0, atol=0)
    torch.testing.assert_close(-found.lse, free_energy(logits))
    torch.testing.assert_close(-found.highest, minimum_energy(logits), rtol=0, atol=0)
    zeroed = rival_energy(logits, target, zero_label=True).mean().item()
    assert energies(found)["rival_zeroed"] == pytest.approx(zeroed)


@given(case=labelled())
def test_a_margin_of_the_papers_form_counts_no_rival_below_0(case: tuple[Tensor, Tensor]) -> None:
    logits, target = case
    ours, theirs = margin(logits, target), margin(logits, target, zero_label=True)
    score = logits.gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(theirs, torch.minimum(ours, score), rtol=0, atol=0)
    others = logits * (1 - torch.nn.functional.one_hot(target, logits.shape[1]))  # as the authors leave the label out
    torch.testing.assert_close(theirs, score - others.amax(1), rtol=0, atol=0)
    assert margins(read(logits, target))["median_zeroed"] == pytest.approx(float(theirs.quantile(0.5)), rel=1e-5)


def test_a_temperature_of_the_free_energy_is_above_0() -> None:
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(ArgumentError, match="expected a number above 0"):
            free_energy(torch.zeros(2, 3), temperature)


@given(case=labelled())
def test_free_energy_lies_within_log_c_below_the_minimum(case: tuple[Tensor, Tensor]) -> None:
    logits, _ = case
    free, least = free_energy(logits), minimum_energy(logits)
    slack = 1e-12 * least.abs()
    assert bool((free <= least + slack).all())
    assert bool((least <= free + math.log(logits.shape[1]) + slack).all())


@given(case=labelled())
def test_cross_entropy_is_the_label_s_energy_less_the_free_energy(case: tuple[Tensor, Tensor]) -> None:
    logits, target = case
    found = read(logits, target)
    loss = F.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(loss, -found.score - free_energy(logits), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(F.softplus(-found.gap), loss, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.gap.sigmoid(), logits.softmax(1).gather(1, target[:, None])[:, 0])
    torch.testing.assert_close(found.others, logits.scatter(1, target[:, None], -torch.inf).logsumexp(1))
    torch.testing.assert_close(found.confidence, logits.softmax(1).amax(1))


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
def test_any_type_is_read_as_its_numbers_in_float64_are(dtype: torch.dtype, data: st.DataObject) -> None:
    logits, target = data.draw(labelled(dtype))
    found, exact = read(logits, target), read(logits.double(), target)
    assert found.score.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.margin.double(), exact.margin, rtol=1e-6, atol=0)
    torch.testing.assert_close(found.gap.double(), exact.gap, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(found.log_odds.double(), exact.log_odds, rtol=2e-6, atol=2e-6)
    unlabelled = read_unlabelled(logits)
    torch.testing.assert_close(unlabelled.log_odds.double(), exact.log_odds, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(unlabelled.lse.double(), exact.lse, rtol=2e-6, atol=2e-6)


@given(case=labelled())
def test_the_odds_are_the_gap_of_the_class_that_was_chosen(case: tuple[Tensor, Tensor]) -> None:
    logits, target = case
    chosen = read(logits, logits.argmax(1))
    torch.testing.assert_close(read(logits, target).log_odds, chosen.gap, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(read_unlabelled(logits).log_odds, chosen.gap, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("size", [1e3, 1e4, 1e5])
def test_large_margins_stay_exact(size: float) -> None:
    """Far beyond where exp underflows: the label wins, a rival wins, and both by an exact number."""
    logits = torch.tensor([[size, 0.0, 0.0], [0.0, size, 0.0]])
    found = read(logits, torch.tensor([0, 0]))
    assert found.margin.tolist() == [size, -size]
    assert found.gap.tolist() == pytest.approx([size - math.log(2), -size], rel=1e-7)
    assert found.log_odds.tolist() == pytest.approx([size - math.log(2), size - math.log(2)], rel=1e-7)
    assert read_unlabelled(logits).log_odds.tolist() == pytest.approx(found.log_odds.tolist(), rel=1e-7)


@given(case=labelled(torch.float32), offset=st.sampled_from([2.0**14, -(2.0**17)]))
def test_nothing_but_energies_changes_when_all_logits_move_together(case: tuple[Tensor, Tensor],
                                                                   offset: float) -> None:
    logits = (case[0] * 8).clamp(-1000, 1000).round() / 8  # so that moving them loses no digit
    here, there = (read(z, case[1]) for z in (logits, logits + offset))
    for name in ("margin", "gap", "log_odds"):
        torch.testing.assert_close(getattr(here, name), getattr(there, name), rtol=0, atol=0)
    shifted = read_unlabelled(logits + offset)
    torch.testing.assert_close(read_unlabelled(logits).log_odds, shifted.log_odds, rtol=0, atol=0)


@pytest.mark.parametrize("same", [2, 3, 1000])
def test_classes_that_all_tie_are_chosen_at_one_in_so_many(same: int) -> None:
    found = read(torch.full((3, same), 7.0), torch.tensor([0, 1, same - 1]))
    assert not found.correct.any()
    assert found.confidence.tolist() == pytest.approx([1 / same] * 3)
    assert read_unlabelled(torch.full((1, same), 7.0)).confidence.item() == pytest.approx(1 / same)


def test_a_label_whose_rivals_are_all_masked_is_certain() -> None:
    found = read(torch.tensor([[2.0, -torch.inf]]), torch.tensor([0]))
    assert found.correct.item()
    assert found.margin.item() == found.gap.item() == found.log_odds.item() == math.inf
    assert found.lse.item() == 2
    assert read_unlabelled(torch.tensor([[2.0, -torch.inf]])).confidence.item() == 1


@pytest.mark.parametrize("block", [1, 7, 100, 1 << 20])
def test_the_size_of_the_blocks_is_nobody_s_business(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    logits, target = mixed(101, 5)
    logits[::3] *= 100
    whole, unlabelled = read(logits, target), read_unlabelled(logits)
    monkeypatch.setattr(_blocks, "BLOCK", block)
    for name in ("label", "score", "rival", "rival_excess", "log_odds"):
        torch.testing.assert_close(getattr(read(logits, target), name), getattr(whole, name), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(read_unlabelled(logits).log_odds, unlabelled.log_odds, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32,
                                  torch.int64, torch.uint64])
def test_labels_of_any_integer_type(kind: torch.dtype) -> None:
    logits, target = mixed(40, 5)
    assert torch.equal(read(logits, target.to(kind)).gap, read(logits, target).gap)


def test_readings_outlive_what_they_were_read_from() -> None:
    logits, target = mixed(40, 5)
    found, again = read(logits, target), read(logits, target)
    logits.zero_()
    target.zero_()
    assert torch.equal(found.label, again.label)
    assert int(found.label.max()) > 0
    assert torch.equal(found.gap, again.gap)


def test_no_graph_is_kept_and_columns_may_come_first() -> None:
    logits, target = mixed(40, 5)
    assert not read(logits.requires_grad_(), target).gap.requires_grad
    turned = logits.detach().T.contiguous().T
    assert torch.equal(read(turned, target).gap, read(logits, target).gap)


@pytest.mark.parametrize(("logits", "target", "error", "says"), [
    (torch.zeros(3), torch.zeros(3, dtype=torch.int64), ShapeError, r"\(examples, classes\).*got \(3,\)"),
    (torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64), ShapeError, "two classes or more"),
    (torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), ShapeError, r"the shape \(3,\), got \(2,\)"),
    (torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.int64), ShapeError, r"got \(3, 2\)"),
    (torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), DtypeError, "floating-point.*int64"),
    (torch.zeros(3, 2), torch.zeros(3), DtypeError, "expected integers, got torch.float32"),
    (torch.zeros(3, 2), torch.zeros(3, dtype=torch.bool), DtypeError, "got torch.bool"),
    (torch.zeros(3, 2), torch.tensor([0, 1, 2]), TargetError, "row 2 has 2, expected 0 to 1"),
    (torch.zeros(3, 2), torch.tensor([0, -100, 2]), TargetError, "row 1 has -100"),
    (torch.tensor([[0.0, 1], [torch.nan, 0]]), torch.tensor([0, 0]), TargetError, "row 1 has NaN"),
    (torch.tensor([[0.0, 1], [0, torch.nan]]), torch.tensor([0, 0]), TargetError, "row 1 has NaN"),
    (torch.tensor([[0.0, 1], [torch.inf, 0]]), torch.tensor([0, 0]), TargetError, "row 1 has NaN or infinite"),
    (torch.tensor([[0.0, 1], [0, torch.inf]]), torch.tensor([0, 0]), TargetError, "row 1 has NaN or infinite"),
    (torch.tensor([[0.0, 1], [-torch.inf, 0]]), torch.tensor([0, 0]), TargetError, "except the label's"),
])
def test_what_cannot_be_read_is_refused_with_its_row(logits: Tensor, target: Tensor, error: type[Exception],
                                                     says: str) -> None:
    with pytest.raises(error, match=says):
        read(logits, target)


def test_rows_are_counted_from_where_the_block_begins() -> None:
    with pytest.raises(TargetError, match="row 1001 has NaN"):
        read(torch.tensor([[0.0, 1], [torch.nan, 0]]), torch.tensor([0, 0]), first=1000)
    with pytest.raises(TargetError, match="row 1000 has 5"):
        read(torch.zeros(1, 2), torch.tensor([5]), first=1000)
    for strange in ([[0.0, torch.nan]], [[torch.inf, 0.0]], [[-torch.inf, -torch.inf]]):
        with pytest.raises(TargetError, match="row 7 has NaN or infinite"):
            read_unlabelled(torch.tensor(strange), first=7)


@given(case=labelled(), curve=CURVES)
def test_the_gradient_mass_is_that_of_autograd(case: tuple[Tensor, Tensor], curve: Curve) -> None:
    logits, target = case
    logits = logits.clamp(min=-60, max=60).requires_grad_()
    curve_loss(logits, target, curve, reduction="sum").backward()
    assert logits.grad is not None
    part, gap = logits.grad.abs().sum(1), read(logits.detach(), target).gap
    total = float(part.sum())
    for level, share in gradient_mass(gap, curve).items():
        above = float(part[gap.sigmoid() > float(level)].sum())
        assert share * total == pytest.approx(above, rel=1e-7, abs=1e-9 * total + 1e-300)


def test_what_teaches_is_never_nan() -> None:
    certain = teaching(torch.tensor([torch.inf, 800.0, -800.0]))
    assert all(0 <= share <= 1 for shares in certain.values() for share in shares.values())
    nobody = gradient_mass(torch.tensor([800.0]), cross_entropy())
    assert set(nobody.values()) == {0.0}
    exact = gradient_mass(torch.tensor([0.0, 800.0]), normal(eps=0))
    assert exact == {"0.5": 0.5, "0.9": 0.5, "0.99": 0.5}


@pytest.mark.parametrize("energy", [conditional_energy, free_energy, minimum_energy])
def test_energies_of_arrays_are_those_of_tensors(energy: Callable[..., Tensor]) -> None:
    logits = torch.randn(5, 3)
    assert torch.equal(energy(logits.numpy()), energy(logits))


def test_logits_that_are_far_apart_are_read_as_fast():
    logits, target = torch.randn(1000, 1000, generator=generator(0)), torch.zeros(1000, dtype=torch.int64)
    times = {scale: shortest(scale * logits, target) for scale in (1, 40)}
    assert times[40] < 3 * times[1], times  # with torch's exp 9 times


def shortest(logits, target):
    """Seconds of the processor, so that other work beside it does not count."""
    times = []
    for _ in range(8):
        start = time.process_time()
        read(logits, target)
        read_unlabelled(logits)
        times.append(time.process_time() - start)
    return min(times)
