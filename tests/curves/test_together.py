"""Value and pull made together are the two that the curve itself has, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from encouraging import curves
from encouraging.curves import _together
from encouraging.curves._log_bonus import Conservative
from paper_formulas import ALL_CURVES

FLOATS = st.sampled_from([torch.float32, torch.float64])
ODD = (torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e30, -1e30, 88.5, 104.0, -104.0)
SHARES = st.floats(0, 1, exclude_max=True)
OWN = st.one_of(
    st.builds(curves.conservative, SHARES), st.builds(curves.normal, SHARES),
    st.builds(curves.focal, st.floats(0, 8)), st.builds(curves.poly, st.floats(-1, 8)),
    st.just(curves.cross_entropy()))


def assert_same(curve: curves.Curve, gap: Tensor) -> None:
    together, apart = _together.value_and_pull(curve, gap), (curve.value(gap), curve.pull(gap))
    for ours, theirs in zip(together, apart, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_they_have_the_bits_of_value_and_pull(curve: curves.Curve, dtype: torch.dtype) -> None:
    assert_same(curve, torch.cat([torch.linspace(-30, 30, 4001, dtype=dtype), torch.tensor(ODD, dtype=dtype)])[:, None])


@given(curve=OWN, dtype=FLOATS, gaps=st.lists(st.floats(-120, 120, width=32), min_size=1, max_size=9))
def test_with_any_parameters(curve: curves.Curve, dtype: torch.dtype, gaps: list[float]) -> None:
    assert_same(curve, torch.tensor(gaps, dtype=dtype))


def test_where_the_curve_changes() -> None:
    for log_end in (0.0, 0.3, 0.75, 0.99):
        edge = torch.tensor(_together.logit(log_end))
        assert_same(curves.conservative(log_end), torch.stack([edge.nextafter(torch.tensor(-99.0)), edge,
                                                               edge.nextafter(torch.tensor(99.0))]))


def test_the_gap_stays_as_it_is() -> None:
    for curve in ALL_CURVES:
        gap = torch.linspace(-9, 9, 7)
        _together.value_and_pull(curve, gap)
        assert torch.equal(gap, torch.linspace(-9, 9, 7))


def test_a_subclass_with_a_formula_of_its_own_keeps_it() -> None:
    @dataclass(frozen=True, repr=False)
    class Halved(Conservative):
        def value(self, gap: Tensor) -> Tensor:
            return 0.5 * super().value(gap)

        def pull(self, gap: Tensor) -> Tensor:
            return 0.5 * super().pull(gap)

    assert_same(Halved(), torch.linspace(-5, 5, 11))


def test_numbers_that_were_first_asked_for_in_inference_mode_can_be_kept_by_autograd() -> None:
    _together.constant.cache_clear()
    with torch.inference_mode():
        number = _together.constant(0.125, torch.float32)
    assert not number.is_inference()
