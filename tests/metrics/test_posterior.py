"""Probabilities read through the loss: the optimum of a loss gives back the probabilities of the labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, hessian

from encouraging import curve_loss, curves, sigmoid_curve_loss
from encouraging.engine import Train
from encouraging.errors import ArgumentError, CurveError, DtypeError, ShapeError
from encouraging.metrics import Reader, posterior_logits, summary
from encouraging.tasks import ObjectiveConfig, StageSpec
from encouraging.tasks.classification import readable_curve

WITH_AN_OPTIMUM = (curves.cross_entropy(), curves.encouraging(0.0), curves.encouraging(0.25), curves.encouraging(0.5),
                   curves.poly(2.0), curves.power(2.0, 0.5), curves.focal(0.5), curves.focal(2.0),
                   curves.from_probability(lambda p: -p.log() - 0.5 * p))


def optimum(curve, shares):
    """The logits with the smallest mean loss of labels with these shares, by Newton's method; the last stays 0."""
    def mean_loss(free):
        logits = torch.cat([free, free.new_zeros(1)])
        return curve_loss(logits[None], shares[None], curve)

    free = shares.log()[:-1] - shares.log()[-1]
    for _ in range(60):
        slope, bend = grad(mean_loss)(free), hessian(mean_loss)(free)
        step = torch.linalg.solve(bend + 1e-9 * torch.eye(len(free), dtype=free.dtype), slope)
        free = free - step.clamp(-1, 1)
        if float(slope.abs().max()) < 1e-12:
            break
    assert float(grad(mean_loss)(free).abs().max()) < 1e-8
    return torch.cat([free, free.new_zeros(1)])


@given(weights=st.lists(st.floats(0.2, 4), min_size=2, max_size=5), curve=st.sampled_from(WITH_AN_OPTIMUM))
def test_the_optimum_of_a_loss_gives_back_the_probabilities_of_the_labels(weights, curve):
    shares = torch.tensor(weights, dtype=torch.float64)
    shares = shares / shares.sum()
    trained = optimum(curve, shares)
    torch.testing.assert_close(posterior_logits(trained[None], curve).softmax(1)[0], shares, rtol=0, atol=1e-6)


@pytest.mark.parametrize("log_end", [0.75, 0.9])
def test_steeper_curves_too_where_one_class_is_likely(log_end):
    p = torch.linspace(1e-6, 1 - 1e-6, 2_000_001, dtype=torch.float64)
    curve, gap = curves.encouraging(log_end), torch.logit(p)
    value, other = curve.value(gap), curve.value(-gap)
    for share in (0.6, 0.8, 0.95):
        best = int((share * value + (1 - share) * other).argmin())
        assert p[best] > share
        read = posterior_logits(torch.stack([gap[best], torch.zeros((), dtype=torch.float64)])[None], curve).softmax(1)
        assert float(read[0, 0]) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("curve", [curves.encouraging(0.25), curves.focal(2.0)])
def test_independent_classes(curve):
    for share in (0.1, 0.5, 0.9):
        logits = torch.linspace(-8, 8, 160_001, dtype=torch.float64)
        present, absent = (sigmoid_curve_loss(logits, torch.full_like(logits, label), curve, reduction="none")
                           for label in (1.0, 0.0))
        best = logits[(share * present + (1 - share) * absent).argmin()]
        assert float(posterior_logits(best, curve, link="sigmoid").sigmoid()) == pytest.approx(share, abs=1e-4)


def test_cross_entropy_changes_nothing_at_any_confidence():
    logits = torch.tensor([[0.0, 90.0, -50.0], [3.0, 2.0, -torch.inf], [1e4, 0.0, -1e4]], dtype=torch.float64)
    read = posterior_logits(logits, curves.cross_entropy())
    torch.testing.assert_close(read.log_softmax(1), logits.log_softmax(1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("curve", [curves.encouraging(0.5), curves.encouraging(0.75), curves.focal(2.0)])
def test_large_margins_stay_finite_and_the_most_probable_class_is_kept(curve):
    logits = torch.tensor([[120.0, 0.0, -5.0], [900.0, 0.0, 1.0], [30.0, 29.0, -300.0]])
    read = posterior_logits(logits, curve)
    assert bool(read.isfinite().all())
    assert read.dtype == torch.float64
    assert read.argmax(1).tolist() == [0, 0, 0]
    np.testing.assert_array_equal(posterior_logits(logits.numpy(), curve), read)


@given(rows=st.lists(st.lists(st.floats(-6, 6), min_size=3, max_size=3), min_size=1, max_size=5),
       log_end=st.sampled_from([0.0, 0.3, 0.5, 0.75, 0.9]))
def test_the_most_probable_class_stays_so(rows, log_end):
    logits = torch.tensor(rows, dtype=torch.float64)
    read = posterior_logits(logits, curves.encouraging(log_end))
    top = logits.argmax(1, keepdim=True)
    assert bool((read.gather(1, top)[:, 0] >= read.amax(1) - 1e-9).all())


def test_what_cannot_be_read_is_refused():
    with pytest.raises(ArgumentError, match="link='probit'"):
        posterior_logits(torch.zeros(2, 3), curves.focal(2.0), link="probit")
    with pytest.raises(ShapeError, match="two classes or more"):
        posterior_logits(torch.zeros(3), curves.focal(2.0))
    with pytest.raises(DtypeError, match="floating-point"):
        posterior_logits(torch.zeros(2, 3, dtype=torch.long), curves.focal(2.0))
    with pytest.raises(DtypeError, match="expected a Curve"):
        posterior_logits(torch.zeros(2, 3), "focal")
    with pytest.raises(CurveError, match="its pull is 0 at a gap"):
        posterior_logits(torch.zeros(2, 3), curves.custom(lambda gap: 0 * gap, torch.zeros_like))


def overconfident(examples: int = 4000) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels of two classes, and the logits at which ``encouraging(0.5)`` is smallest for their probabilities."""
    draw = torch.Generator().manual_seed(0)
    shares = torch.rand(examples, 1, generator=draw, dtype=torch.float64) * 0.45 + 0.52
    p = torch.linspace(0.5, 1, 20_001, dtype=torch.float64)[1:-1]
    curve, gap = curves.encouraging(0.5), torch.logit(p)
    best = p[(shares * curve.value(gap) + (1 - shares) * curve.value(-gap)).argmin(1)]
    labels = (torch.rand(examples, generator=draw, dtype=torch.float64) > shares[:, 0]).long()
    return torch.stack([best, 1 - best], 1).log(), labels


def test_a_diagnosis_has_what_reading_through_the_loss_changes():
    logits, labels = overconfident()
    reader = Reader(2)
    reader.update(logits, labels)
    plain, diagnosis = reader.diagnosis(), reader.diagnosis(trained_with=curves.encouraging(0.5))
    assert "posterior" not in plain["calibration"]
    read = diagnosis["calibration"]["posterior"]
    assert read["curve"] == "conservative(log_end=0.5)"
    assert read["ece_before"] == plain["calibration"]["temperature"]["ece_before"] > 0.06
    assert read["ece_after"] < 0.03
    assert summary(diagnosis)["posterior"] == {"ece": read["ece_after"], "nll": read["nll_after"]}
    assert read["nll_after"] < read["nll_before"]
    flat = curves.custom(lambda gap: 0 * gap, torch.zeros_like)  # whose probabilities nobody can read
    assert "posterior" not in reader.diagnosis(trained_with=flat)["calibration"]


@pytest.mark.parametrize(("arm", "curve"), [
    ({"curve": "encouraging", "log_end": 0.5}, curves.encouraging(0.5)), ({"curve": "focal"}, curves.focal()),
    ({"curve": "cross_entropy"}, None), ({"curve": "encouraging", "log_end": 1.0}, None),
    ({"curve": "square"}, None), ({"curve": "encouraging", "label_smoothing": 0.1}, None), ({"loss": "mse"}, None),
    ({"curve": "encouraging", "reweight_from_epoch": 3}, None),
    ({"curve": "encouraging", "log_end": 0.5, "changes": [{"from_epoch": 2, "log_end": 0.25}]},
     curves.encouraging(0.25))])
def test_runs_are_read_through_the_last_loss_of_an_arm_that_can_be_read(arm, curve):
    stage = StageSpec(Train(epochs=9, lr=0.1), objective=ObjectiveConfig(**arm))
    assert readable_curve(stage, {"epoch": 9, "best_epoch": 1}) == curve


@pytest.mark.parametrize(("keys", "best_epoch", "curve"), [
    ({"bonus_from_epoch": 5}, 4, None), ({"bonus_from_epoch": 5}, 5, curves.encouraging(0.5)),
    ({"changes": [{"from_update": 3, "log_end": 0.25}]}, 5, None)])
def test_a_model_of_the_best_epoch_is_read_through_the_loss_of_that_epoch(keys, best_epoch, curve):
    objective = ObjectiveConfig(curve="encouraging", log_end=0.5, **keys)
    stage = StageSpec(Train(epochs=9, lr=0.1, conclude_on="best"), objective=objective)
    assert readable_curve(stage, {"epoch": 9, "best_epoch": best_epoch}) == curve


def test_cross_entropy_is_read_as_it_is_at_any_distance():
    logits = torch.tensor([0.0, 0.0, -3.0], dtype=torch.float64).repeat(181, 1)
    logits[:, 0] = torch.linspace(-45, 45, 181)
    read = posterior_logits(logits, curves.cross_entropy())
    torch.testing.assert_close(read.log_softmax(1), logits.log_softmax(1), rtol=1e-12, atol=0)
