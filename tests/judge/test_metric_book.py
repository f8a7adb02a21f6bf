"""The metrics of runs and recipes whose arms measure different numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from encouraging.engine.records import Record
from encouraging.judge.metric_book import MetricBook, book_for, book_of
from encouraging.recipes import Recipe, read_recipe

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = { epochs = 1, lr = 0.1 }
"""
CLEAN, ROBUST = "[arms.clean]\n", '[arms.robust]\noptions = { adversarial = "fgsm", ood = ["digits"] }\n'


def recipe_of(folder: Path, arms: str) -> Recipe:
    (folder / "own.toml").write_text(RECIPE + arms)
    return read_recipe(str(folder / "own.toml"))


def book_of_runs(recipe: Recipe) -> MetricBook:
    return book_of([Record(recipe.config(arm, 0), {}, {}, {}, metrics=recipe.about_runs(arm)["metrics"])
                    for arm in recipe.arms])


@pytest.mark.parametrize("make", [book_for, book_of_runs])
def test_metrics_do_not_depend_on_the_order_of_the_arms(tmp_path: Path, make):
    book, other = make(recipe_of(tmp_path, CLEAN + ROBUST)), make(recipe_of(tmp_path, ROBUST + CLEAN))
    assert book["attacked.accuracy"].words == "accuracy under attack"
    assert [metric.path for metric in book.shown(lambda path: path.startswith("attacked."))]
    assert list(book.metrics.items()) == list(other.metrics.items())
    assert book.primary.path == other.primary.path == "accuracy"


@pytest.mark.parametrize("make", [book_for, book_of_runs])
def test_nor_on_it_where_the_arms_measure_equally_many(tmp_path: Path, make):
    far, farther = (f'[arms.{name}]\noptions = {{ ood = ["digits", "{name}"] }}\n' for name in ("mnist", "cifar10"))
    book, other = make(recipe_of(tmp_path, far + farther)), make(recipe_of(tmp_path, farther + far))
    assert {"ood.mnist.min_energy.fpr95", "ood.cifar10.min_energy.fpr95"} <= book.metrics.keys()
    assert list(book.metrics.items()) == list(other.metrics.items())


def test_each_metric_is_there_once_and_equal_arms_change_nothing(tmp_path: Path):
    alone, twice = (book_for(recipe_of(tmp_path, arms)) for arms in (CLEAN, CLEAN + "[arms.second]\n"))
    assert alone.metrics == twice.metrics
