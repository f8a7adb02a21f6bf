"""Arms that begin alike: the beginning is trained once, and nothing tells the runs apart."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from encouraging.engine import RunDir
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import jobs_of, train_job
from encouraging.recipes.trunks import trunks
from task_laws import assert_same_bits, call, job_of, train_stopped, train_to_end

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = { epochs = 4, lr = 0.1, momentum = 0.9, batch_size = 256, ema = 0.9, evaluate_every = 3, %s }

[arms.ce]
curve = "cross_entropy"

[arms.drw]
reweight_from_epoch = 3

[arms.el]
curve = "encouraging"
log_end = 0.75

[arms.el_drw]
curve = "encouraging"
log_end = 0.75
reweight_from_epoch = 4

[arms.late]
curve = "encouraging"
log_end = 0.75
bonus_from_epoch = 3

[arms.late_authors]
curve = "normal"
reweight_from_epoch = 4
bonus_from_epoch = 4
bonus_divisor = "examples"

[arms.drw_further]
reweight_from_epoch = 3
changes = [{ from_epoch = 4, label_smoothing = 0.1 }]
"""


@pytest.fixture
def read(tmp_path):
    def read(train="schedule = 'cosine'", more=""):
        path = tmp_path / "mine.toml"
        path.write_text(RECIPE % train + more)
        return read_recipe(path)
    return read


def test_an_arm_branches_off_from_the_one_it_has_most_in_common_with(read):
    assert trunks(read()) == {"drw": ("ce", 2), "el_drw": ("el", 3), "late": ("ce", 2), "late_authors": ("ce", 3),
                              "drw_further": ("drw", 3)}


@pytest.mark.parametrize("more", [
    "[arms.other]\nreweight_from_epoch = 3\ntrain = { lr = 0.2 }",
    "[arms.other]\nreweight_from_epoch = 3\nmodel_options = { cosine = true }",
    "[arms.other]\nreweight_from_epoch = 3\nbalanced_softmax = true",
    "[arms.other]\nreweight_from_epoch = 1",
    "[arms.other]\nchanges = [{ from_update = 9, label_smoothing = 0.1 }]",
    "[arms.other]\nafter = 'ce'\nreweight_from_epoch = 3",
    "[arms.other]\ncurve = 'cross_entropy'",  # the same from beginning to end: a run of its own
    "[arms.other]\nreweight_from_epoch = 3\n[[arms.other.stages]]\n[[arms.other.stages]]",
])
def test_an_arm_that_begins_differently_has_no_trunk(read, more):
    assert "other" not in trunks(read(more=more))


@pytest.mark.parametrize("train", ["probe_every = 1", "conclude_on = 'average'", "max_steps = 20"])
def test_what_depends_on_all_epochs_is_trained_whole(read, train):
    """Probes compare with objectives of the arm's own; an average may need the weights of early epochs."""
    assert trunks(read(train)) == {}


def test_a_run_that_branches_off_equals_one_that_does_not(read, tmp_path):
    """To the last bit, when the trunk was interrupted too; and its first epochs were not trained again."""
    recipe = read()
    jobs = {job.arm: job for job in jobs_of(recipe, str(tmp_path / "shared"), device="cpu", threads=1)}
    assert [job.rank for job in jobs.values()] == sorted(job.rank for job in jobs.values())
    assert jobs["drw_further"].rank == 2
    for arm, job in jobs.items():
        trained = []
        if arm == "ce":
            train_stopped(job)
        else:
            train_job(job, lambda line: trained.append(line["epoch"]))  # noqa: B023
        whole = train_to_end(job_of(recipe, tmp_path / "alone", arm))
        assert_same_bits(job.folder, whole)
        if job.trunk is not None:
            assert trained == list(range(job.trunk.epochs + 1, 5))
            assert json.loads((job.folder / "timing.json").read_text())["shared_epochs"] == job.trunk.epochs
        assert not (whole / "branches").exists()
        assert "shared_epochs" not in json.loads((whole / "timing.json").read_text())


def test_only_a_fitting_trunk_is_taken(read, tmp_path):
    """Another config, another machine, a damaged file or no file: the arm trains the beginning itself."""
    recipe = read()
    ce, drw = (next(job for job in jobs_of(recipe, str(tmp_path), arms=["ce", "drw"], device="cpu", threads=1)
                    if job.arm == arm) for arm in ("ce", "drw"))
    assert ce.leaves == {2, 3}
    assert jobs_of(recipe, str(tmp_path), arms=["ce"])[0].leaves == {2, 3}  # others may be asked for later
    train_to_end(ce)

    def trained(name):
        lines = []
        job = replace(drw, out=str(tmp_path / name))
        (tmp_path / name / "mine").mkdir(parents=True)
        (tmp_path / name / "mine" / "ce").symlink_to(ce.folder.parent)
        train_job(job, lambda line: lines.append(line["epoch"]))
        return lines

    config, branch = ce.folder / "config.json", ce.folder / "branches" / "epoch-2"
    text = config.read_text()
    assert trained("fitting") == [3, 4]
    config.write_text(json.dumps({**json.loads(text), "fingerprint": "another"}))
    assert trained("config") == [1, 2, 3, 4]
    found = json.loads(text)
    config.write_text(json.dumps({**found, "environment": {**found["environment"], "device": "another"}}))
    assert trained("machine") == [1, 2, 3, 4]
    config.write_text(text)
    tensors = next(branch.glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-1])
    assert trained("damaged") == [1, 2, 3, 4]
    tensors.unlink()
    assert trained("missing") == [1, 2, 3, 4]


def test_the_command_trains_trunks_first(read, tmp_path):
    read()
    printed = call("run", tmp_path / "mine.toml", "--out", tmp_path / "runs", "--device", "cpu", "--jobs", "1",
                   "--arm", "drw", "--arm", "ce")
    assert printed.index("ce seed 0: accuracy") < printed.index("drw seed 0: accuracy")
    assert RunDir(tmp_path / "runs" / "mine" / "drw" / "seed0").done
    timing = json.loads((tmp_path / "runs" / "mine" / "drw" / "seed0" / "timing.json").read_text())
    assert (timing["shared_epochs"], timing["epochs"]) == (2, 4)
    planned = call("run", tmp_path / "mine.toml", "--out", tmp_path / "other", "--device", "cpu", "--dry-run",
                   "--arm", "ce", "--arm", "drw")
    assert "2 of 4" in planned
