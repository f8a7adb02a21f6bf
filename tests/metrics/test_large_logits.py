"""Finite logits stay finite numbers, however large they are."""

from __future__ import annotations

import pytest
import torch

from encouraging.errors import TargetError
from encouraging.metrics import Reader, read, read_unlabelled
from strategies import generator


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 3e38), (torch.bfloat16, 3e38), (torch.float64, 1e39),
                                              (torch.float64, 1e149)])
def test_finite_logits_of_any_size_are_called_finite(dtype: torch.dtype, scale: float) -> None:  # 12.8
    """Everything about them is what it is for the same logits divided by the scale, times the scale."""
    small = (2 * torch.rand(200, 4, generator=generator(0), dtype=torch.float64) - 1).to(dtype).double()
    large = (small * scale).to(dtype)
    small = large.double() / scale
    target = small.argmax(1)
    target[::3] = 0
    readers = []
    for logits in (small, large):
        reader = Reader(4)
        reader.update(logits, target)
        reader.update_outside(logits[::2])
        readers.append(reader)
    one, other = (reader.diagnosis() for reader in readers)
    assert other["accuracy"] == one["accuracy"]
    for path in (("margin", "mean"), ("margin", "median"), ("energy", "label", "mean"), ("energy", "rival", "std")):
        expected, value = one, other
        for key in path:
            expected, value = expected[key], value[key]
        assert value == pytest.approx(scale * expected, rel=1e-4), path
    assert "infinite" not in other["margin"]
    expected, value = (diagnosis["calibration"]["temperature"] for diagnosis in (one, other))
    assert value["value"] == pytest.approx(scale * expected["value"], rel=1e-3)
    assert value["ece_after"] == pytest.approx(expected["ece_after"], abs=1e-3)
    assert torch.isfinite(readers[1].readings.log_odds).all()
    for name in ("min_energy", "max_probability"):
        assert other["ood"]["outside"]["scores"][name]["auroc"] == pytest.approx(
            one["ood"]["outside"]["scores"][name]["auroc"], abs=2)


def test_finite_logits_that_no_number_can_square_are_refused_in_words() -> None:  # 12.8
    for logits in ([[1e200, 0.0]], [[0.0, -1.7e308]], [[0.0, 1e160]]):
        with pytest.raises(TargetError, match=r"row 3 has a number of the size .*; expected at most 1e\+150"):
            read(torch.tensor(logits, dtype=torch.float64), torch.tensor([0]), first=3)
        with pytest.raises(TargetError, match=r"expected at most 1e\+150"):
            read_unlabelled(torch.tensor(logits, dtype=torch.float64))


def test_masked_classes_are_read_in_float32_as_before() -> None:
    logits = torch.tensor([[2.0, -torch.inf], [1.0, 3.0]])
    assert read(logits, torch.tensor([0, 1])).log_odds.dtype == torch.float32
    assert read_unlabelled(logits).log_odds.dtype == torch.float32
    lowest = torch.finfo(torch.float32).min
    assert read(torch.tensor([[2.0, lowest]]), torch.tensor([0])).margin.item() == pytest.approx(-lowest)
