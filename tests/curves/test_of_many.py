"""Values and pulls of many gaps at once, in operations that are fast per number, against the curves themselves."""

from __future__ import annotations

import pytest
import torch

from encouraging import curves
from encouraging.curves import Curve
from encouraging.curves._together import pull_of_many, value_of_many

CURVES = [curves.conservative(end) for end in (0.0, 0.001, 0.02, 0.25, 0.5, 0.75, 0.9, 0.98, 0.999)] + [
    curves.focal(gamma) for gamma in (0.0, 0.5, 1.0, 2.0, 3.7)] + [
    curves.cross_entropy(), curves.normal(), curves.aggressive(0.5), curves.halted_focal(2.0, 0.5), curves.poly(1.0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_many_gaps_have_the_curves_values_and_pulls(curve: Curve, dtype: torch.dtype) -> None:
    gaps = torch.cat([torch.linspace(-200, 200, 4001), torch.linspace(-3, 3, 3001),
                      torch.tensor([0.0, -0.0, 1e30, -1e30, torch.inf, -torch.inf])]).to(dtype)
    wide = gaps.double()
    rounding = torch.finfo(dtype).eps
    for many, one in ((value_of_many, curve.value), (pull_of_many, curve.pull)):
        found, exact = many(curve, gaps), one(wide)
        torch.testing.assert_close(found.double(), exact, rtol=max(40 * rounding, 1e-13), atol=16 * rounding)
        assert found.dtype == dtype
    far = gaps > 20
    # Where a pull dies its digits matter: it is all that is left of the gradient.
    normal = curve.pull(wide)[far] > torch.finfo(dtype).tiny / rounding
    torch.testing.assert_close(pull_of_many(curve, gaps)[far][normal].double(), curve.pull(wide)[far][normal],
                               rtol=max(200 * rounding, 1e-12), atol=0.0)


def test_no_number_stays_no_number_and_nothing_is_written_over() -> None:
    gaps = torch.tensor([torch.nan, 1.0])
    for curve in CURVES:
        for many, one in ((value_of_many, curve.value), (pull_of_many, curve.pull)):
            assert many(curve, gaps).isnan().tolist() == one(gaps).isnan().tolist()
    assert gaps[1] == 1.0
