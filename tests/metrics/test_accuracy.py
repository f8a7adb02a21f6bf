"""One definition of accuracy: the label's logit is higher than every other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from encouraging.errors import DtypeError, ShapeError
from encouraging.metrics import (
    _blocks,
    accuracy,
    class_accuracy,
    class_margin,
    correct,
    ece,
    energy_profile,
    excess_risk,
    margin,
    read,
    rival_energy,
    scores,
    shot_accuracy,
)
from strategies import SEEDS, generator

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_logits_that_are_all_equal_are_never_right(dtype: torch.dtype, classes: int) -> None:
    logits, target = torch.full((classes, classes), 0.3, dtype=dtype), torch.arange(classes)
    assert not correct(logits, target).any()
    assert accuracy(read(logits, target)) == 0.0


@given(seed=SEEDS, shape=st.sampled_from([(), (0,), (7,), (3, 4), (2, 3, 2)]), classes=st.integers(2, 30),
       dtype=st.sampled_from(FLOATS))
def test_without_ties_it_is_argmax(seed: int, shape: tuple[int, ...], classes: int, dtype: torch.dtype) -> None:
    g = generator(seed)
    logits = torch.rand(*shape, classes, generator=g).argsort(-1).to(dtype)  # a permutation: no two are equal
    target = torch.randint(classes, shape, generator=g)
    assert torch.equal(correct(logits, target), logits.argmax(-1) == target)


@given(seed=SEEDS)
def test_a_prediction_is_right_exactly_where_its_margin_is_positive(seed: int) -> None:
    g = generator(seed)
    logits, target = torch.randint(3, (50, 4), generator=g).double(), torch.randint(4, (50,), generator=g)
    assert torch.equal(correct(logits, target), margin(logits, target) > 0)


def test_a_row_with_nan_is_wrong_wherever_the_nan_stands() -> None:
    nan, inf = torch.nan, torch.inf
    logits = torch.tensor([[nan, 1, 0], [1, nan, 0], [1, 0, nan], [nan, nan, nan], [inf, 0, nan],
                           [inf, inf, 0], [-inf, -inf, -inf], [inf, 0, 0], [0, -inf, -inf]])
    assert correct(logits, torch.zeros(9, dtype=torch.int64)).tolist() == [False] * 7 + [True] * 2


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_blocks_do_not_change_it_and_the_logits_stay_as_they_were(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(_blocks, "BLOCK", block)
    g = generator(0)
    logits, target = torch.randint(4, (40, 5), generator=g).float(), torch.randint(5, (40,), generator=g)
    before = logits.clone()
    assert torch.equal(correct(logits.requires_grad_(), target.to(torch.uint8)), margin(before, target) > 0)
    assert torch.equal(logits, before)


METRICS = [correct, margin, rival_energy, lambda logits, target: energy_profile(logits, target, 0)]


@pytest.mark.parametrize("metric", METRICS)
def test_arrays_are_as_good_as_tensors(metric: Callable[..., Tensor]) -> None:
    logits, target = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(metric(logits.numpy(), target.numpy().astype("int16")), metric(logits, target))


@pytest.mark.parametrize("metric", METRICS)
def test_labels_that_do_not_fit_are_refused_and_never_broadcast(metric: Callable[..., Tensor]) -> None:
    logits = torch.zeros(5, 3)
    for target in (torch.tensor([0]), torch.zeros(5, 1, dtype=torch.long), torch.tensor(0)):
        with pytest.raises(ShapeError, match=r"labels: expected one per row of the logits, the shape \(5,\)"):
            metric(logits, target)
    for wrong in (torch.zeros(5), torch.zeros(5, dtype=torch.bool)):
        with pytest.raises(DtypeError, match="labels: expected integers"):
            metric(logits, wrong)
    with pytest.raises(DtypeError, match=r"logits: expected floating-point numbers, got torch\.int64"):
        metric(logits.long(), torch.zeros(5, dtype=torch.long))


def test_logits_and_labels_are_taken_as_by_the_other_metrics() -> None:
    g = generator(0)
    logits, target = torch.randn(40, 5, generator=g), torch.randint(5, (40,), generator=g)
    assert accuracy(logits, target) == accuracy(logits.numpy(), target.numpy()) == accuracy(read(logits, target))
    for bad in ((logits, target[:3]), (logits, target.float()), (target, target)):
        with pytest.raises((ShapeError, DtypeError)) as of_ece:
            ece(*bad)
        with pytest.raises(type(of_ece.value)) as ours:
            accuracy(*bad)
        assert str(ours.value) == str(of_ece.value)


def test_logits_in_place_of_readings_are_answered_with_what_to_pass() -> None:
    logits, target = torch.eye(3), torch.arange(3)
    for call, words in ((lambda: accuracy(logits), r"got Tensor\. Pass accuracy\(logits, labels\)"),
                        (lambda: accuracy(read(logits, target), target), r"Pass accuracy\(readings\)"),
                        (lambda: class_accuracy(logits, target), r"Pass class_accuracy\(read\(logits, labels\), cl"),
                        (lambda: class_margin(logits.numpy(), 3), r"got ndarray\. Pass class_margin\(read\(logits"),
                        (lambda: shot_accuracy(logits, [1, 2, 3]), r"Pass shot_accuracy\(read\(logits, labels\), co"),
                        (lambda: excess_risk(read(logits, target), logits), r"read\(test_logits, test_labels\)\)"),
                        (lambda: scores(logits), r"Pass scores\(read_unlabelled\(logits\)\)")):
        with pytest.raises(DtypeError, match=words):
            call()
