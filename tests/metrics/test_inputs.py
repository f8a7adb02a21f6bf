"""Arrays as people have them: of other layouts and byte orders, and what is no array of logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from encouraging.curves import normal
from encouraging.errors import DtypeError, ShapeError
from encouraging.metrics import (
    conditional_energy,
    correct,
    free_energy,
    gradient_mass,
    margin,
    mean_pulls,
    minimum_energy,
    read,
    read_unlabelled,
    shot_groups,
    teaching,
)

LOGITS = np.random.default_rng(0).normal(size=(6, 4))
LABELS = np.random.default_rng(1).integers(4, size=6)
ENERGIES = [conditional_energy, free_energy, minimum_energy]


@pytest.mark.parametrize("layout", [
    lambda a: a[::-1].copy()[::-1], lambda a: a.astype(a.dtype.newbyteorder(">")), np.asfortranarray, np.ndarray.tolist,
    lambda a: np.lib.stride_tricks.as_strided(a, a.shape, a.strides, writeable=False),
], ids=["reversed", "big-endian", "by columns", "list", "read-only"])
def test_arrays_of_any_layout_mean_the_same(layout: Callable[[Any], Any]) -> None:
    for metric in (margin, correct, lambda z, t: read(z, t).gap, lambda z, t: read_unlabelled(z).log_odds,
                   *(lambda z, t, energy=energy: energy(z) for energy in ENERGIES)):
        assert torch.equal(metric(layout(LOGITS), layout(LABELS)), metric(LOGITS, LABELS))


@pytest.mark.parametrize("logits", [LOGITS.astype(np.longdouble), LOGITS.astype(object), LOGITS.astype(str), None,
                                    [[1.0, 2.0], [1.0]]], ids=["long double", "objects", "text", "None", "ragged"])
def test_what_torch_cannot_hold_is_refused_in_words(logits: Any) -> None:
    for metric in (lambda z: margin(z, LABELS), lambda z: read(z, LABELS), read_unlabelled, *ENERGIES):
        with pytest.raises(DtypeError, match="logits: cannot be read as a tensor of numbers"):
            metric(logits)
    with pytest.raises(DtypeError, match="class counts: cannot be read"):
        shot_groups("many")


@pytest.mark.parametrize("logits", [LOGITS[:, 0], LOGITS[:, :1]], ids=["row", "column"])
def test_logits_of_a_binary_classifier_are_refused_with_a_way_out(logits: np.ndarray) -> None:
    with pytest.raises(ShapeError, match=r"torch\.stack\(\[0 \* z, z\], 1\)"):
        read(logits, LABELS % 2)
    z = torch.from_numpy(LOGITS[:, 0])
    assert torch.equal(correct(torch.stack([0 * z, z], 1), LABELS % 2), (z > 0) == torch.from_numpy(LABELS % 2 == 1))


@pytest.mark.parametrize("shares", [mean_pulls, teaching, lambda gap: gradient_mass(gap, normal())],
                         ids=["mean_pulls", "teaching", "gradient_mass"])
def test_logits_are_no_gaps(shares: Callable[[Any], Any]) -> None:
    with pytest.raises(ShapeError, match=r"one gap per example, .*read\(logits, labels\)\.gap"):
        shares(LOGITS)


def test_labels_are_no_curve() -> None:
    with pytest.raises(DtypeError, match="expected a Curve"):
        gradient_mass(LOGITS[:, 0], LABELS)  # type: ignore[arg-type]


@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool], ids=str)
def test_energies_are_those_of_floats(energy: Callable[[Any], Any], dtype: torch.dtype) -> None:
    with pytest.raises(DtypeError, match="expected floating-point numbers"):  # minus 1 is 255 in uint8
        energy(torch.tensor([[1, 0]], dtype=dtype))


@pytest.mark.parametrize("energy", [free_energy, minimum_energy])
@pytest.mark.parametrize("shape", [(2, 0), ()])
def test_no_class_has_no_lowest_energy(energy: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="one class or more"):
        energy(torch.zeros(shape))


def test_gaps_may_be_arrays() -> None:
    gap = LOGITS[:, 0]
    assert gradient_mass(gap, normal()) == gradient_mass(torch.from_numpy(gap), normal())
    assert mean_pulls(gap) == mean_pulls(torch.from_numpy(gap))
    assert teaching(gap) == teaching(torch.from_numpy(gap))


def test_gaps_that_need_a_gradient_are_read_without_a_warning() -> None:
    gap = torch.from_numpy(LOGITS[:, 0])
    learned = gap.clone().requires_grad_()
    assert gradient_mass(learned, normal()) == gradient_mass(gap, normal())
    assert (mean_pulls(learned), teaching(learned)) == (mean_pulls(gap), teaching(gap))
