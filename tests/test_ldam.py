"""LDAM as a module: its formula, its margins, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from encouraging import LDAMLoss, curve_loss, curves
from encouraging.margins import ldam_margins
from strategies import rows_with_gaps


@pytest.mark.parametrize("curve", [None, curves.conservative(0.5)])
def test_ldam_is_its_formula(curve):
    """Cao et al. 2019: margins C / n^(1/4) with the largest max_margin, logits scaled by s."""
    logits, label = rows_with_gaps(torch.linspace(-4, 6, 8, dtype=torch.float64), 3, 0)
    cosines, counts = logits.tanh(), torch.tensor([1000, 100, 10])
    margins = 0.5 * (10 / counts.double()) ** 0.25
    z = 30 * torch.where(F.one_hot(label, 3).bool(), cosines - margins, cosines)
    expected = F.cross_entropy(z, label) if curve is None else curve_loss(z, label, curve)
    ours = LDAMLoss(counts, curve)(cosines, label)
    torch.testing.assert_close(ours, expected, rtol=1e-13, atol=1e-13)  # though the margins are a float32 buffer
    torch.testing.assert_close(LDAMLoss(counts, curve).double()(cosines, label), expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(ldam_margins(counts).double(), margins, rtol=1e-6, atol=0)


def test_ldams_margins_travel_with_the_module_and_ignored_rows_stay_ignored():
    loss = LDAMLoss(torch.tensor([1, 16]))
    assert torch.equal(loss.state_dict()["margins"], torch.tensor([0.5, 0.25]))
    z = torch.tensor([[0.1, 0.2], [float("nan"), 0.0]], requires_grad=True)
    value = loss(z, torch.tensor([1, -100]))
    assert torch.equal(value, loss(z[:1], torch.tensor([1])))
    assert torch.autograd.grad(value, z)[0][1].tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"LDAMLoss.*\(2, 2\)"):
        LDAMLoss(torch.ones(2, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_scale_of_ldam_does_not_lift_roundings(dtype: torch.dtype) -> None:
    cosines = (2 * torch.rand(500, 10, generator=torch.Generator().manual_seed(0)) - 1).to(dtype)
    labels = cosines.argmax(1)
    loss = LDAMLoss([500, 60, 5, 40, 30, 20, 10, 9, 8, 7], reduction="none")
    exact, rounded = loss(cosines.double(), labels), loss(cosines, labels)
    assert rounded.dtype == dtype
    torch.testing.assert_close(rounded.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("way", ["filled", "assigned", "other counts", "the same"])
def test_margins_that_were_loaded_are_those_that_count_in_float64_too(way):
    logits, label = rows_with_gaps(torch.linspace(-4, 6, 8, dtype=torch.float64), 3, 0)
    saved = LDAMLoss([5, 16, 81])
    if way in ("filled", "assigned"):
        with torch.device("meta"):
            loaded = LDAMLoss([5, 16, 81])
        if way == "filled":
            loaded = loaded.to_empty(device="cpu")
            loaded._rounded_off.fill_(1e10)  # as uninitialised memory may
    else:
        loaded = LDAMLoss([1, 2, 3] if way == "other counts" else [5, 16, 81])
    loaded.load_state_dict(saved.state_dict(), assign=way == "assigned")
    tolerance = 0 if way == "the same" else 1e-6
    torch.testing.assert_close(loaded(logits, label), saved(logits, label), rtol=tolerance, atol=0)
    if way == "other counts":
        exact = 30 * (logits - F.one_hot(label, 3) * saved.margins.double())
        torch.testing.assert_close(loaded(logits, label), F.cross_entropy(exact, label), rtol=1e-14, atol=0)
