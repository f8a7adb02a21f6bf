"""Out-of-distribution detection against scikit-learn, pytorch-ood and a count by hand."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from encouraging.errors import ArgumentError
from encouraging.metrics import Reader, detection, openood_row, read, read_unlabelled, scores, summary
from strategies import SEEDS

SIDES = st.sampled_from(["inside", "outside"])


@st.composite
def two_sets(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores at any scale, one example a side or many, spread, tied or all the same."""
    g = torch.Generator().manual_seed(draw(SEEDS))
    scale = 10.0 ** draw(st.integers(-3, 6))
    many = st.sampled_from([1, 2, 7, 200])
    inside, outside = (torch.randn(draw(many), generator=g, dtype=torch.float64) for _ in range(2))
    inside = inside + draw(st.sampled_from([0.0, 1.0, 5.0, -2.0]))
    match draw(st.sampled_from(["distinct", "tied", "constant"])):
        case "tied":
            inside, outside = inside.round(), outside.round()
        case "constant":
            inside, outside = torch.ones_like(inside), torch.ones_like(outside)
    return inside * scale, outside * scale


def stacked(inside: torch.Tensor, outside: torch.Tensor, positive: str) -> tuple[np.ndarray, np.ndarray]:
    """Truth and scores as other libraries take them: the positive class scores high."""
    truth = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
    values = torch.cat([inside, outside]).numpy()
    return (truth, values) if positive == "inside" else (1 - truth, -values)


@given(sets=two_sets(), positive=SIDES)
def test_areas_are_scikit_learns(sets: tuple[torch.Tensor, torch.Tensor], positive: str) -> None:
    found = detection(*sets, positive)
    truth, values = stacked(*sets, positive)
    assert found.auroc == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
    assert found.aupr == pytest.approx(average_precision_score(truth, values), abs=1e-12)


@given(sets=two_sets(), positive=SIDES)
def test_the_curve_is_scikit_learns_and_fpr95_lies_on_it(sets: tuple[torch.Tensor, torch.Tensor],
                                                         positive: str) -> None:
    found = detection(*sets, positive)
    fpr, tpr, _ = roc_curve(*stacked(*sets, positive), drop_intermediate=False)
    np.testing.assert_allclose(found.fpr, fpr, atol=1e-15)
    np.testing.assert_allclose(found.tpr, tpr, atol=1e-15)
    assert found.fpr95 == fpr[tpr >= 0.95 - 1e-12].min()


@given(sets=two_sets(), positive=SIDES)
def test_only_the_order_of_scores_counts(sets: tuple[torch.Tensor, torch.Tensor], positive: str) -> None:
    ranks = torch.unique(torch.cat(sets), return_inverse=True)[1].double()
    plain, ranked = detection(*sets, positive), detection(*ranks.split([len(part) for part in sets]), positive)
    assert (plain.auroc, plain.aupr, plain.fpr95) == (ranked.auroc, ranked.aupr, ranked.fpr95)


@given(sets=two_sets())
def test_the_other_choice_of_the_positive_class_mirrors_the_curve(sets: tuple[torch.Tensor, torch.Tensor]) -> None:
    one, other = detection(*sets, "inside"), detection(*sets, "outside")
    assert one.auroc == pytest.approx(other.auroc, abs=1e-12)
    np.testing.assert_allclose(np.sort(1 - one.tpr), other.fpr, atol=1e-12)


def test_ten_points_counted_by_hand() -> None:
    """Six inside (I) and four outside (O), from the highest score down: I I O I I=O I O I O, where = shares a score.

    threshold  inside  outside  TPR   FPR   precision
    9          1       0        1/6   0     1
    8          2       0        2/6   0     1
    7          2       1        2/6   1/4
    6          3       1        3/6   1/4   3/4
    5          4       2        4/6   2/4   4/6
    4          5       2        5/6   2/4   5/7
    3          5       3        5/6   3/4
    2          6       3        1     3/4   6/9
    1          6       4        1     1
    """
    inside, outside = torch.tensor([9.0, 8, 6, 5, 4, 2]), torch.tensor([7.0, 5, 3, 1])
    found = detection(inside, outside)
    # Of the 24 pairs inside wins 4+4+3+2+2+1 = 16 and ties one: 16.5.
    assert found.auroc == pytest.approx(16.5 / 24)
    assert found.aupr == pytest.approx((1 + 1 + 3 / 4 + 4 / 6 + 5 / 7 + 6 / 9) / 6)
    assert found.fpr95 == 3 / 4  # TPR 0.95 is reached at the threshold 2 only
    assert found.fpr_at(0.5) == 1 / 4
    # With outside as the positive class, from the lowest score up: O I O I I=O I O I I. Three quarters are not 0.95.
    other = detection(inside, outside, "outside")
    assert other.auroc == pytest.approx(16.5 / 24)
    assert other.aupr == pytest.approx((1 + 2 / 3 + 3 / 6 + 4 / 8) / 4)
    assert other.fpr95 == 4 / 6


def test_constant_scores_are_a_coin_toss_and_perfect_ones_are_perfect() -> None:
    same = detection(torch.ones(30), torch.ones(10))
    assert (same.auroc, same.aupr, same.fpr95) == (0.5, 0.75, 1.0)
    best = detection(torch.tensor([2.0]), torch.tensor([1.0]))
    assert (best.auroc, best.aupr, best.fpr95) == (1.0, 1.0, 0.0)
    worst = detection(torch.tensor([1.0]), torch.tensor([2.0]))
    assert (worst.auroc, worst.aupr, worst.fpr95) == (0.0, 0.5, 1.0)


@given(sets=two_sets(), positive=SIDES)
def test_the_same_scores_in_any_order_are_a_coin_toss(sets: tuple[torch.Tensor, torch.Tensor], positive: str) -> None:
    inside, _ = sets
    shuffled = inside[torch.randperm(len(inside), generator=torch.Generator().manual_seed(0))]
    assert detection(inside, shuffled, positive).auroc == pytest.approx(0.5, abs=1e-12)


def test_infinite_scores_have_their_place_in_the_order() -> None:
    inside, outside = torch.tensor([torch.inf, 1e308, 3.0]), torch.tensor([-torch.inf, 2.0, -1e308])
    assert detection(inside, outside).auroc == 1.0
    assert detection(torch.tensor([torch.inf]), torch.tensor([torch.inf])).auroc == 0.5


@given(sets=two_sets())
def test_the_drawn_curve_is_the_curve_at_its_places(sets: tuple[torch.Tensor, torch.Tensor]) -> None:
    found = detection(*sets)
    drawn = found.points()
    for x, y in zip(drawn["fpr"], drawn["tpr"], strict=True):
        assert y == pytest.approx(found.tpr[found.fpr <= x + 1e-6].max(), abs=1e-5)


def test_probabilities_that_round_to_one_are_still_told_apart() -> None:
    """The maximum probability of both is 1 in float32; its log-odds are not."""
    inside, outside = read_unlabelled(torch.tensor([[60.0, 0.0]])), read_unlabelled(torch.tensor([[40.0, 0.0]]))
    assert inside.confidence.item() == outside.confidence.item() == 1
    assert detection(scores(inside)["max_probability"], scores(outside)["max_probability"]).auroc == 1


def test_labels_do_not_change_the_scores() -> None:
    g = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(200, 6, generator=g)
    labelled = scores(read(logits, torch.randint(6, (200,), generator=g)))
    for name, values in scores(read_unlabelled(logits)).items():
        torch.testing.assert_close(labelled[name], values)
    torch.testing.assert_close(labelled["min_energy"], logits.amax(1))
    torch.testing.assert_close(labelled["free_energy"], logits.logsumexp(1))
    torch.testing.assert_close(labelled["max_probability"].sigmoid(), logits.softmax(1).amax(1))


@pytest.mark.parametrize(("inside", "outside", "says"), [
    (torch.tensor([1.0, torch.nan]), torch.tensor([1.0]), "with NaN"),
    (torch.tensor([1.0]), torch.tensor([]), "non-empty"),
    (torch.ones(2, 2), torch.ones(2), r"\(2, 2\)"),
])
def test_what_cannot_be_ranked_is_refused(inside: torch.Tensor, outside: torch.Tensor, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        detection(inside, outside)
    with pytest.raises(ArgumentError, match="'inside' or 'outside'"):
        detection(torch.ones(1), torch.ones(1), "in")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pytorch_ood() -> Iterator[types.ModuleType]:
    """``pytorch_ood.metrics`` without the package around it, whose import brings torchvision and its models."""
    spec = importlib.util.find_spec("pytorch_ood")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("pytorch-ood is not installed")
    folder = spec.submodule_search_locations[0]
    before = set(sys.modules)
    for name, path in (("pytorch_ood", folder), ("pytorch_ood.utils", f"{folder}/utils")):
        bare = types.ModuleType(name)
        bare.__path__ = [path]
        sys.modules[name] = bare
    yield importlib.import_module("pytorch_ood.metrics")
    for name in set(sys.modules) - before:
        del sys.modules[name]


@given(sets=two_sets())
def test_pytorch_ood_agrees_where_it_measures_the_same(pytorch_ood: types.ModuleType,
                                                       sets: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Its AUROC and FPR95 take outside as the positive class. Its AUPR joins the points of the curve by straight lines,
    which is too kind to a detector; ours is the average precision, so the two meet on the curve and not in the area."""
    inside, outside = sets
    labels = torch.cat([torch.zeros(len(inside)), -torch.ones(len(outside))]).long()
    values = -torch.cat(sets)
    measure = pytorch_ood.functional
    theirs = pytorch_ood.MetricCollection([pytorch_ood.AUROC(), pytorch_ood.FPRAtTPR()])
    numbers = theirs.update(scores=values, labels=labels).compute()
    found = detection(inside, outside, "outside")
    assert found.auroc == pytest.approx(numbers["AUROC"], abs=1e-12)
    assert found.fpr95 == pytest.approx(numbers["FPR95TPR"], abs=1e-12)
    for positive, name in (("inside", "id"), ("outside", "ood")):
        precision, recall, _ = precision_recall_curve(*stacked(inside, outside, positive))
        their_area = float(measure.aupr(values, labels, positive=name))
        assert their_area == pytest.approx(auc(recall, precision), abs=1e-12)
        ours = detection(inside, outside, positive)
        steps = float((np.diff(ours.tpr) * precision[::-1][1:]).sum())
        assert ours.aupr == pytest.approx(steps, abs=1e-12)


@given(sets=two_sets())
def test_openoods_columns_are_those_of_its_definition(sets: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Out-of-distribution examples are positive; areas under precision over recall by straight lines."""
    row = openood_row(*sets)
    outside, negated = stacked(*sets, "outside")
    fpr, tpr, _ = roc_curve(outside, negated, drop_intermediate=False)
    assert row["FPR@95"] == pytest.approx(100 * fpr[tpr >= 0.95 - 1e-12].min(), abs=1e-9)
    assert row["AUROC"] == pytest.approx(100 * auc(fpr, tpr), abs=1e-9)
    for name, side in (("AUPR_IN", "inside"), ("AUPR_OUT", "outside")):
        precision, recall, _ = precision_recall_curve(*stacked(*sets, side))
        assert row[name] == pytest.approx(100 * auc(recall, precision), abs=1e-9)


def test_msp_in_float32_cannot_rank_what_log_odds_rank() -> None:
    """Margins of 20 and 40: both probabilities round to 1 in float32, so MSP guesses where log-odds know."""
    known, other = torch.tensor([[40.0, 0.0]] * 5), torch.tensor([[20.0, 0.0]] * 5)
    inside, outside = scores(read_unlabelled(known)), scores(read_unlabelled(other))
    assert detection(inside["max_probability"], outside["max_probability"]).auroc == 1.0
    assert detection(inside["msp"], outside["msp"]).auroc == 0.5


@given(seed=SEEDS)
def test_msp_is_the_highest_probability(seed: int) -> None:
    logits = 3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(scores(read_unlabelled(logits))["msp"], logits.softmax(1).amax(1))


def test_near_and_far_sets_are_averaged_and_usual_names_are_there() -> None:
    g = torch.Generator().manual_seed(0)
    reader = Reader(4)
    reader.update(2 * torch.randn(50, 4, generator=g), torch.randint(4, (50,), generator=g))
    for name in ("a", "b", "c"):
        reader.update_outside(torch.randn(30, 4, generator=g), name)
    found = summary(reader.diagnosis(groups={"a": "near", "b": "near", "c": "far"}))["ood"]
    assert found.keys() == {"a", "b", "c", "nearood", "farood"}
    for path in (("msp", "auroc"), ("max_logit", "fpr95")):
        near = [found[name][path[0]][path[1]] for name in ("a", "b")]
        assert found["nearood"][path[0]][path[1]] == pytest.approx(sum(near) / 2)
        assert found["farood"][path[0]][path[1]] == found["c"][path[0]][path[1]]
    assert found["a"]["max_logit"] == found["a"]["min_energy"]
    assert found["a"]["log_odds"] == found["a"]["max_probability"]
    assert found["a"]["energy"] == found["a"]["free_energy"]
    near = [found[name]["msp"]["openood"]["AUPR_OUT"] for name in ("a", "b")]
    assert found["nearood"]["msp"]["openood"]["AUPR_OUT"] == pytest.approx(sum(near) / 2)


def test_a_single_set_in_a_group_keeps_its_name() -> None:
    reader = Reader(3)
    reader.update(torch.randn(9, 3), torch.arange(9) % 3)
    reader.update_outside(torch.randn(5, 3), "a")
    assert summary(reader.diagnosis(groups={"a": "near"}))["ood"].keys() == {"a", "nearood"}
    assert "msp" in summary(reader.diagnosis())["ood"]


@pytest.mark.parametrize("rate", [95, 1.01, -0.1, float("nan")])
def test_a_rate_in_percent_is_refused(rate: float) -> None:
    with pytest.raises(ArgumentError, match=r"expected a true positive rate from 0 to 1, such as 0\.95"):
        detection([1.0, 2.0], [0.0, 3.0]).fpr_at(rate)
