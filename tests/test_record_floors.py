"""Baselines of the committed records lie where the literature has them: a comparison with a broken one says nothing."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from encouraging.commands.report import report_on
from encouraging.recipes import read_recipe

RESULTS = Path(__file__).parents[1] / "results"


def finals(recipe: str, arm: str, metric: str) -> list[float]:
    files = sorted((RESULTS / recipe).glob(f"{arm}-seed*.json"))
    return [json.loads(file.read_text())["final"][metric] for file in files]


@pytest.mark.parametrize(("recipe", "arm", "metric", "least", "most", "seeds"), [
    ("cifar100-lt", "ce", "best_accuracy", 37.5, 39.5, 5),
    ("cifar100-lt", "drw", "best_accuracy", 40.5, 42.5, 5),
])
def test_the_mean_of_a_baseline_is_that_of_the_literature(recipe, arm, metric, least, most, seeds):
    values = finals(recipe, arm, metric)
    assert len(values) >= seeds
    assert least <= statistics.mean(values) <= most


@pytest.mark.parametrize("arm", ["focal", "halted_logit", "halted"])
def test_every_detector_finds_blood_cells(arm):
    """The first seed of focal loss has an AP of 55.9 and an AP50 of 88.7: no other run is far below."""
    assert len(finals("bccd-retinanet", arm, "best_ap")) >= 3
    assert min(finals("bccd-retinanet", arm, "best_ap")) >= 54.0
    assert min(finals("bccd-retinanet", arm, "best_ap50")) >= 86.0


def test_the_page_of_the_detectors_shows_their_boxes(tmp_path):
    """Three test images for each of three arms, with what is true and what was found."""
    page = tmp_path / "page.html"
    report_on([RESULTS / "bccd-retinanet"], page)
    text = page.read_text()
    assert text.count("data:image/jpeg;base64,") == 9
    assert "true box" in text
    assert "predicted box" in text


def test_every_smoothed_cross_entropy_translates_as_text_only_transformers_do():
    values = finals("multi30k-de-en", "ce_ls", "bleu")
    assert len(values) >= 4
    assert min(values) >= 37.0


@pytest.mark.parametrize("eps", ["0.05", "0.1", "0.15", "0.2"])
def test_cross_entropy_under_attack_is_that_of_the_paper(eps):
    """Its attack figure has one model: ours scatter around it."""
    attacked = {arm: [json.loads(file.read_text())["attacks"]["attacks"] for file in
                      sorted((RESULTS / "mnist-attack").glob(f"{arm}-seed*.json"))] for arm in ("ce", "el")}
    paper = {claim.metric: claim.paper for claim in read_recipe("mnist-attack").claims if claim.paper}
    for arm, runs in attacked.items():
        assert len(runs) == 8
        for attack in ("fgsm", "pgd"):
            assert all(run[attack]["examples"] == 10_000 for run in runs)
            mean = statistics.mean(run[attack]["accuracy"][eps] for run in runs)
            assert mean == pytest.approx(paper[f"attacks.{attack}.{eps}"][arm], abs=4)
