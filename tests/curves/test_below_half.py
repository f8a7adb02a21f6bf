"""Values and pulls from p and log p, where p is at most 1/2, against the curves themselves."""

from __future__ import annotations

import pytest
import torch

from encouraging import curves
from encouraging.curves import Curve
from encouraging.curves._below_half import ratio_below_half, value_below_half

CURVES = [
    curves.cross_entropy(), curves.normal(), curves.normal(0.7), curves.aggressive(0.3), curves.aggressive(0.5),
    *(curves.conservative(end) for end in (0.0, 0.1, 0.25, 0.5, 0.75, 0.99)),
    *(curves.focal(gamma) for gamma in (0.0, 0.5, 2.0, 3.7)), curves.halted_focal(2.0, 0.3),
    curves.halted_focal(2.0, 0.5), curves.halted_focal(1.5, 0.8), curves.power(2.5, 0.5), curves.power(0.0, 1.0),
    curves.power(0.3, 2.0), curves.poly(-0.5), curves.square(), curves.square(bonus=False)]


class Doubled(curves.focal):
    """A subclass with a formula of its own."""

    def value(self, gap: torch.Tensor) -> torch.Tensor:
        return 2 * super().value(gap)

    def pull(self, gap: torch.Tensor) -> torch.Tensor:
        return 2 * super().pull(gap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("curve", [*CURVES, Doubled(2.0)], ids=repr)
def test_the_curve_from_p_and_its_logarithm(curve: Curve, dtype: torch.dtype) -> None:
    log_p = -torch.cat([torch.logspace(-0.159, 1.9, 2000, dtype=torch.float64), torch.tensor([200.0, 2000.0])])
    log_p = log_p[log_p.exp() < 0.4999].to(dtype)  # at 1/2 itself a curve may jump
    edges = [curve.params.get(name, 0.9) for name in ("log_end", "start", "halt")]
    log_p = log_p[torch.stack([(log_p.exp() - edge).abs() > 1e-4 for edge in edges]).all(0)]
    exact = log_p.double()
    gap, q = exact - torch.log1p(-exact.exp()), -torch.expm1(exact)
    near = {"rtol": max(20 * torch.finfo(dtype).eps, 1e-12), "atol": 20 * torch.finfo(dtype).eps}
    found = value_below_half(curve, log_p, log_p.exp()), ratio_below_half(curve, log_p, log_p.exp())
    for ours, one in zip(found, (curve.value(gap), curve.pull(gap) / q), strict=True):
        torch.testing.assert_close(ours.double(), one, **near)
        assert ours.dtype == dtype
