"""Calibration against a count from scratch, and temperatures that are known beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from encouraging.errors import ArgumentError, ShapeError, TargetError
from encouraging.metrics import Reader, ece, fit_temperature, read, reliability
from encouraging.metrics._calibration import _root, nll, temperature_bounds
from strategies import SEEDS, generator, rows_with_gaps


def counted(confidence: list[float], correct: list[bool], bins: int) -> float:
    """Example by example, bin by bin, with plain numbers."""
    error = 0.0
    for k in range(bins):
        low, high = k / bins, (k + 1) / bins
        inside = [i for i, p in enumerate(confidence) if low < p <= high or (k == 0 and p == 0)]
        if inside:
            sure = sum(confidence[i] for i in inside) / len(inside)
            right = sum(correct[i] for i in inside) / len(inside)
            error += len(inside) / len(confidence) * abs(sure - right)
    return error


@given(seed=SEEDS, n=st.integers(1, 60), bins=st.sampled_from([1, 2, 10, 15]))
def test_ece_is_a_count_from_scratch(seed: int, n: int, bins: int) -> None:
    g = generator(seed)
    confidence = torch.rand(n, generator=g, dtype=torch.float64)
    confidence[::3] = (confidence[::3] * bins).round() / bins  # exactly on edges, 0 and 1 among them
    correct = torch.rand(n, generator=g) < 0.7
    found = reliability(confidence, correct, bins)
    assert found.ece == pytest.approx(counted(confidence.tolist(), correct.tolist(), bins), abs=1e-12)
    assert found.ece <= found.mce + 1e-12
    assert found.count.sum() == n


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_confidence_on_an_edge_belongs_to_the_bin_that_ends_there(dtype: torch.dtype) -> None:
    for k in range(1, 11):
        confidence = torch.tensor([k / 10], dtype=dtype)
        assert reliability(confidence, torch.tensor([True])).count.argmax() == k - 1, k
        above = torch.nextafter(confidence, torch.tensor(2.0, dtype=dtype))
        if k < 10:
            assert reliability(above, torch.tensor([True])).count.argmax() == k, k
    assert reliability(torch.zeros(1, dtype=dtype), torch.tensor([True])).count[0] == 1


def test_even_odds_lie_on_an_edge() -> None:
    """Two classes that tie have p = 0.5 exactly, and with ten bins that is the end of the fifth."""
    found = read(torch.tensor([[3.0, 3.0]]), torch.tensor([0]))
    assert reliability(found.confidence, found.correct).rows()[4]["count"] == 1


@given(seed=SEEDS, cut=st.integers(0, 50))
def test_reliabilities_of_parts_add_up(seed: int, cut: int) -> None:
    g = generator(seed)
    confidence, correct = torch.rand(50, generator=g), torch.rand(50, generator=g) < 0.5
    whole = reliability(confidence, correct)
    parts = reliability(confidence[:cut], correct[:cut]) + reliability(confidence[cut:], correct[cut:])
    np.testing.assert_allclose(parts.confidence, whole.confidence, rtol=1e-12)
    assert (parts.count == whole.count).all()
    assert (parts.right == whole.right).all()


@given(seed=SEEDS, classes=st.integers(2, 7))
def test_ece_of_logits_is_that_of_their_softmax(seed: int, classes: int) -> None:
    logits, target = rows_with_gaps(torch.linspace(-6, 8, 40, dtype=torch.float64), classes, seed)
    p, choice = logits.softmax(1).max(1)
    assert ece(logits, target) == pytest.approx(counted(p.tolist(), (choice == target).tolist(), 10), abs=1e-10)


def test_what_is_no_confidence_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"row 1 is 1.5"):
        reliability(torch.tensor([0.5, 1.5]), torch.tensor([True, True]))
    with pytest.raises(ArgumentError, match="row 0 is nan"):
        reliability(torch.tensor([torch.nan]), torch.tensor([True]))
    for bins in (0, 2.5, "a", True):
        with pytest.raises(ArgumentError, match="an integer, one bin or more"):
            reliability(torch.tensor([0.5]), torch.tensor([True]), bins)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"\(2,\) and \(1,\)"):
        reliability(torch.ones(2), torch.tensor([True]))


def test_labels_in_the_place_of_right_or_wrong_are_refused() -> None:
    with pytest.raises(ArgumentError, match="correct has other numbers than 0 and 1"):
        reliability(torch.tensor([0.5, 0.6]), torch.tensor([1, 7]))
    same = [reliability(torch.tensor([0.5, 0.6]), torch.tensor([0, 1], dtype=dtype)).ece
            for dtype in (torch.bool, torch.int64, torch.float32)]
    assert same == [same[0]] * 3


def calibrated(temperature: float, seed: int, n: int = 40_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels drawn from the softmax of logits that are then multiplied by a temperature."""
    g = generator(seed)
    logits = 2 * torch.randn(n, 5, generator=g, dtype=torch.float64)
    return logits * temperature, torch.multinomial(logits.softmax(1), 1, generator=g)[:, 0]


@pytest.mark.parametrize("temperature", [0.05, 0.5, 1.0, 3.0, 500.0])
def test_a_known_temperature_is_found_again(temperature: float) -> None:
    logits, target = calibrated(temperature, seed=1)
    value = fit_temperature(logits, target)
    assert value == pytest.approx(temperature, rel=0.03)
    assert ece(logits / value, target) < 0.01
    best = F.cross_entropy(logits / value, target)
    for other in (0.97, 1.03):
        assert F.cross_entropy(logits / (value * other), target) > best


@given(seed=SEEDS, scale=st.sampled_from([1e-2, 1.0, 30.0]))
def test_a_temperature_never_changes_a_choice(seed: int, scale: float) -> None:
    g = generator(seed)
    logits, target = scale * torch.randn(30, 4, generator=g, dtype=torch.float64), torch.randint(4, (30,), generator=g)
    value = fit_temperature(logits, target)
    low, high = temperature_bounds(logits)
    assert 0.99 * low < value < 1.01 * high
    assert torch.equal((logits / value).argmax(1), logits.argmax(1))
    assert F.cross_entropy(logits / value, target) <= F.cross_entropy(logits, target) + 1e-9


def test_perfect_models_and_hopeless_ones_end_at_the_bounds() -> None:
    logits, right = 5 * torch.eye(4), torch.arange(4)
    assert fit_temperature(logits, right) == pytest.approx(5e-4)  # a row's logits are 5 apart
    assert fit_temperature(logits, (right + 1) % 4) == pytest.approx(5e4)
    assert fit_temperature(torch.zeros(3, 2), torch.tensor([0, 1, 0])) == 1.0  # any is as good
    with pytest.raises(ArgumentError, match="at least one example"):
        fit_temperature(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))


def test_a_temperature_from_two_examples_is_where_their_pulls_balance() -> None:
    """Right by 2 and wrong by 1: at the best temperature the first gains from cooling what the second loses."""
    logits, target = torch.tensor([[2.0, 0.0], [1.0, 0.0]], dtype=torch.float64), torch.tensor([0, 1])
    value = fit_temperature(logits, target)
    assert 2 / (1 + math.exp(2 / value)) == pytest.approx(1 / (1 + math.exp(-1 / value)), rel=1e-4)


def test_a_diagnosis_of_two_examples_fits_on_one_and_judges_on_the_other() -> None:
    reader = Reader(2)
    reader.update(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0]))
    scaled = reader.diagnosis()["calibration"]["temperature"]
    assert (scaled["fitted_on"], scaled["judged_on"], scaled["bound"]) == (1, 1, "lowest")  # one example, and right
    assert scaled["value"] in (pytest.approx(1e-4), pytest.approx(2e-4))
    assert 0 <= scaled["nll_after"] < scaled["nll_before"]


def test_masked_classes_do_not_disturb_a_temperature() -> None:
    logits, target = calibrated(3.0, seed=2, n=5000)
    masked = torch.cat([logits, torch.full((len(logits), 2), -torch.inf, dtype=torch.float64)], 1)
    assert fit_temperature(masked, target) == pytest.approx(fit_temperature(logits, target), rel=1e-4)


def test_a_diagnosis_fits_on_one_half_and_judges_on_the_other() -> None:
    logits, target = calibrated(3.0, seed=3, n=20_000)
    reader = Reader(5)
    reader.update(logits.float(), target)
    scaled = reader.diagnosis()["calibration"]["temperature"]
    assert scaled["fitted_on"] == scaled["judged_on"] == 10_000
    assert scaled["value"] == pytest.approx(3, rel=0.05)
    assert scaled["ece_after"] < 0.02 < scaled["ece_before"]
    assert scaled["nll_after"] < scaled["nll_before"]


@given(seed=SEEDS, offset=st.sampled_from([0.0, 1e3, -1e5]))
def test_the_likelihood_is_torchs_in_float64(seed: int, offset: float) -> None:
    logits, target = rows_with_gaps(torch.linspace(-14, 30, 50, dtype=torch.float64), 6, seed)
    logits = logits + offset
    assert nll(read(logits, target)) == pytest.approx(float(F.cross_entropy(logits, target)), rel=1e-9, abs=1e-12)


def test_the_likelihood_keeps_the_digits_of_float64_where_labels_are_far_behind():
    gaps = torch.linspace(-45, 45, 181, dtype=torch.float64)
    logits, target = torch.stack([gaps, torch.zeros_like(gaps)], 1), torch.zeros(181, dtype=torch.int64)
    for row, gap in enumerate(gaps.tolist()):
        exact = max(0.0, -gap) + math.log1p(math.exp(-abs(gap)))
        assert nll(read(logits[row : row + 1], target[:1])) == pytest.approx(exact, rel=1e-14)



@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5, 1e30])
def test_the_temperature_follows_the_scale_of_the_logits(scale):
    torch.manual_seed(0)
    true = torch.randn(4000, 5, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=true).sample()
    assert fit_temperature(scale * true, labels) == pytest.approx(scale, rel=0.1)


@pytest.mark.parametrize("offset", [1e4, 1e6, -1e6])
def test_a_constant_in_all_logits_does_not_change_the_temperature(offset):
    logits = (48 * torch.randn(500, 10, generator=generator(0))).round() / 16  # exact in float32 beside the constant
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator(1))[:, 0]
    expected = fit_temperature(logits, labels)
    assert expected == pytest.approx(fit_temperature(logits.double(), labels), rel=1e-5)
    assert fit_temperature(logits + offset, labels) == expected


@pytest.mark.parametrize("scale", [1e-25, 1e-35, 1e-38, 1e-41])
def test_tiny_logits_have_a_temperature_and_a_diagnosis(scale):
    small = 16 * torch.randn(400, 5, generator=generator(0))
    labels = torch.multinomial(small.softmax(1), 1, generator=generator(1))[:, 0]
    expected, found = ([], [])
    for logits, values in ((small, expected), ((small.double() * scale).float(), found)):
        reader = Reader(5)
        reader.update(logits, labels)
        values += [fit_temperature(logits, labels), reader.diagnosis()["calibration"]["temperature"]]
    assert found[0] == pytest.approx(scale * expected[0], rel=0.02)
    assert found[1]["value"] == pytest.approx(scale * expected[1]["value"], rel=0.02)
    assert found[1]["nll_after"] == pytest.approx(expected[1]["nll_after"], rel=0.02)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_temperature_for_logits_that_are_none(bad):
    with pytest.raises(TargetError, match="NaN or infinite"):
        fit_temperature(torch.tensor([[1.0, bad]]), torch.tensor([0]))


@given(root=st.floats(-3, 3), below=st.floats(1e-6, 4), above=st.floats(1e-6, 4), sign=st.sampled_from([-1, 1]),
       shape=st.sampled_from([lambda d: d, lambda d: math.tanh(10 * d), math.expm1, lambda d: d ** 3 + 1e-3 * d]))
def test_a_root_is_found_within_the_tolerance(root, below, above, sign, shape):
    found = _root(lambda x: sign * shape(x - root), root - below, root + above, 1e-5)
    assert abs(found - root) <= 1e-5


def test_parts_with_other_bins_are_not_added() -> None:
    confidence, correct = torch.tensor([0.3, 0.9]), torch.tensor([True, False])
    with pytest.raises(ShapeError, match="over 1 and over 10 bins"):  # numpy would repeat the single bin
        reliability(confidence, correct, 1) + reliability(confidence, correct, 10)


def test_reliability_takes_arrays() -> None:
    confidence, correct = torch.tensor([0.3, 0.9]), torch.tensor([True, False])
    assert reliability(confidence.numpy(), correct.numpy()).ece == reliability(confidence, correct).ece
