"""Recipes with a first stage in common: it is trained once, and nothing tells the runs apart."""

from __future__ import annotations

import importlib
import json
from argparse import Namespace
from pathlib import Path

import pytest

from encouraging.errors import RunError
from encouraging.recipes import read_recipe
from encouraging.recipes.first_stages import share_first_stages
from encouraging.recipes.grid import jobs_of, train_job
from task_laws import assert_same_bits, job_of, train_stopped, train_to_end

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 2
train = { epochs = 3, lr = 0.1, momentum = 0.9, batch_size = 256, probe_every = 5 }
"""
ARMS = """
[arms.ce]
curve = "cross_entropy"

[arms.el]
curve = "encouraging"
"""
STAGES = """
[[stages]]

[[stages]]
train = { epochs = 2, lr = 0.1, batch_size = 256 }
objective = { curve = "cross_entropy" }
reset = ["head"]
freeze = ["body"]
"""


@pytest.fixture
def read(tmp_path):
    def read(name, text):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return read_recipe(path)
    return read


def jobs_together(out: Path, *recipes):
    jobs = [job for recipe in recipes for job in jobs_of(recipe, str(out), device="cpu", threads=1)]
    return {(job.recipe.name, job.arm, job.seed): job for job in share_first_stages(jobs)}


def test_what_recipes_have_in_common_is_trained_once_and_gives_the_same_bits(read, tmp_path):
    """A whole training, also under another name of the arm, and a first stage with a second one after it."""
    whole = read("whole", RECIPE + ARMS)
    renamed = read("renamed", RECIPE + ARMS.replace("arms.ce", "arms.plain") + "[arms.poly]\ncurve = 'poly'\n")
    staged = read("staged", RECIPE + STAGES + ARMS)
    jobs = jobs_together(tmp_path / "shared", whole, renamed, staged)
    epochs = {}
    for (recipe, arm, seed), job in jobs.items():
        if seed == 0:
            lines = []
            if (recipe, arm) == ("whole", "ce"):
                train_stopped(job)
            else:
                train_job(job, lambda line: lines.append((line["stage"], line["epoch"])))  # noqa: B023
            epochs[recipe, arm] = lines
            alone = train_to_end(job_of(job.recipe, tmp_path / "alone", arm))
            assert_same_bits(job.folder, alone)
    all_epochs = [(1, 1), (1, 2), (1, 3)]
    del epochs["whole", "ce"]
    assert epochs == {("whole", "el"): all_epochs, ("renamed", "plain"): [], ("renamed", "el"): [],
                      ("renamed", "poly"): all_epochs, ("staged", "ce"): [(2, 1), (2, 2)],
                      ("staged", "el"): [(2, 1), (2, 2)]}
    for name, arm, trained in (("renamed", "plain", 3), ("staged", "ce", 5)):
        timing = json.loads((jobs[name, arm, 0].folder / "timing.json").read_text())
        assert (timing["shared_epochs"], timing["epochs"], timing["samples"]) == (3, trained, 1200 * trained)


def test_the_others_wait_for_the_first_of_their_seed(read, tmp_path):
    jobs = jobs_together(tmp_path, read("whole", RECIPE + ARMS), read("staged", RECIPE + STAGES + ARMS))
    for seed in (0, 1):
        first, second = jobs["whole", "ce", seed], jobs["staged", "ce", seed]
        assert (first.needs, first.leaves, first.branch) == (frozenset(), {3}, None)
        assert (second.needs, second.leaves) == ({first.folder}, frozenset())


@pytest.mark.parametrize("other", [
    RECIPE.replace("lr = 0.1", "lr = 0.2") + ARMS,
    RECIPE.replace("probe_every = 5", "probe_every = 6") + ARMS,
    RECIPE.replace('model = "digits_mlp"', 'model = "digits_mlp"\nmodel_options = { cosine = true }') + ARMS,
    RECIPE + STAGES.replace("[[stages]]\n\n", "[[stages]]\nsampling = 'sequential'\n\n", 1) + ARMS,
    RECIPE + "[arms.ls]\nlabel_smoothing = 0.1\n",
    RECIPE.replace("probe_every = 5", "probe_every = 5, patience = 1") + ARMS,
    RECIPE.replace("probe_every = 5", "probe_every = 5, max_steps = 9") + ARMS,
    RECIPE.replace("seeds = 2", "seeds = [2]") + ARMS,
])
def test_nothing_is_shared_that_may_differ(read, tmp_path, other):
    jobs = jobs_together(tmp_path, read("whole", RECIPE + ARMS), read("other", other), read("another", other))
    assert not any(job.branch for (name, *_), job in jobs.items() if name == "other")
    if "patience" in other or "max_steps" in other:
        assert not any(job.branch for job in jobs.values())


def test_curves_of_one_name_in_two_folders_are_not_one_curve(tmp_path):
    recipes = []
    for name, weight in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine.py").write_text(f"from encouraging import curves\nmine = curves.power(3.0, {weight})\n")
        (folder / f"{name}.toml").write_text(RECIPE + "[arms.mine]\ncurve = 'mine.py:mine'\n")
        recipes.append(read_recipe(folder / f"{name}.toml"))
    assert not any(job.branch for job in jobs_together(tmp_path, *recipes).values())


def test_equal_arms_of_one_recipe_are_trained_twice(read, tmp_path):
    jobs = jobs_together(tmp_path, read("twice", RECIPE + ARMS + "[arms.again]\ncurve = 'cross_entropy'\n"))
    assert not any(job.branch or job.leaves for job in jobs.values())


def test_the_grid_of_a_gpu_shares_also_with_runs_that_are_finished(read, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    planned = importlib.import_module("grid_gpu").planned
    read("whole", RECIPE + ARMS)
    read("staged", RECIPE + STAGES + ARMS)
    words = [f"{tmp_path / name}.toml:1:ce" for name in ("whole", "staged")]
    asked = Namespace(out=tmp_path / "runs", data=tmp_path, checkpoint=60.0, set=[], device="cpu", jobs=2,
                      recorded=None)
    first, second = planned(words, asked)
    assert second.branch.run == first.folder
    train_to_end(first)
    (left,) = planned(words, asked)
    assert left == second.__class__(**{**second.__dict__, "at_once": 1})
    lines = []
    train_job(left, lambda line: lines.append(line["stage"]))
    assert lines == [2, 2]
    with pytest.raises(RunError, match=r"holds another run: there train.lr = 0.1, here 0.2"):
        planned(words, Namespace(**{**vars(asked), "set": ["train.lr=0.2"]}))
