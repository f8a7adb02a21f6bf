"""Arms that begin alike: the beginning is trained once, and nothing tells the runs apart."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace

import pytest
import torch

from encouraging.engine import RunDir, RunSpec, load_weights
from encouraging.engine import run as engine_run
from encouraging.engine.branches import Branch
from encouraging.errors import RunError
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import jobs_of, train_job
from encouraging.recipes.trunks import trunks
from forked import forkserver
from task_laws import assert_same_bits, call, job_of, train_and_die, train_stopped, train_to_end

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


def test_class_weights_of_another_beta_are_not_shared(read):
    """Both arms are re-weighted from epoch 3, each in its own way, and differ again from epoch 4 on."""
    more = """
    [arms.other]
    reweight_from_epoch = 3
    reweight_beta = 0.9
    changes = [{ from_epoch = 4, label_smoothing = 0.1 }]
    """
    assert trunks(read(more=more))["other"] == ("ce", 2)


@pytest.mark.parametrize("train", ["probe_every = 1", "conclude_on = 'average'", "max_steps = 20"])
def test_what_depends_on_all_epochs_is_trained_whole(read, train):
    """Probes compare with objectives of the arm's own; an average may need the weights of early epochs."""
    assert trunks(read(train)) == {}


def test_a_run_that_branches_off_equals_one_that_does_not(read, tmp_path):
    """To the last bit, when the trunk was interrupted too; and its first epochs were not trained again."""
    recipe = read()
    jobs = {job.arm: job for job in jobs_of(recipe, str(tmp_path / "shared"), device="cpu", threads=1)}
    assert {arm: {other for other in jobs if jobs[other].folder in job.needs} for arm, job in jobs.items()} == {
        "ce": set(), "el": set(), "drw": {"ce"}, "el_drw": {"el"}, "late": {"ce"}, "late_authors": {"ce"},
        "drw_further": {"drw"}}
    assert list(jobs).index("ce") < list(jobs).index("drw") < list(jobs).index("drw_further")
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
        timing = json.loads((whole / "timing.json").read_text())
        assert "shared_epochs" not in timing
        assert timing["samples"] == 4 * 1200  # examples, though the mean of re-weighted arms is over weights


def test_an_arm_has_a_checkpoint_of_its_own_though_nothing_was_left_to_train(read, tmp_path):
    """The trunk stops early after the very epoch from which the arm branches off, and so does the arm."""
    recipe = read("patience = 0, conclude_on = 'best', evaluate_all_from = 1")
    worst = recipe.train.model_copy(update={"monitor": "accuracy", "better": "lower"})  # which reading a file refuses
    recipe = recipe.model_copy(update={"train": worst})
    ce, drw = (job for job in jobs_of(recipe, str(tmp_path), arms=["ce", "drw"], device="cpu", threads=1))
    train_to_end(ce)
    trained = []
    train_job(drw, lambda line: trained.append(line["epoch"]))
    assert (trained, drw.trunk) == ([], ("ce", 2))
    assert_same_bits(drw.folder, train_to_end(job_of(recipe, tmp_path / "alone", "drw")))
    for which in ("last", "best"):
        ours, theirs = (load_weights(folder, which) for folder in (drw.folder, ce.folder))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("write", [1, 2, 3, 4])
def test_killed_where_the_arms_part_both_end_with_the_same_bits(read, tmp_path, write):
    """Before and after the files of the branch and of the checkpoint behind it, in the trunk and in the arm."""
    recipe = read()
    folders = []
    for job in jobs_of(recipe, str(tmp_path), arms=["ce", "drw"], device="cpu", threads=1):
        process = forkserver().Process(target=train_and_die, args=(job, write))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        folders.append(train_to_end(job))
        assert_same_bits(job.folder, train_to_end(job_of(recipe, tmp_path / "alone", job.arm)))
    timing = json.loads((folders[1] / "timing.json").read_text())
    assert timing["shared_epochs"] == 2
    assert timing["resumed"] == (1 if write > 2 else 0)  # until its first checkpoint is whole it branches off again


def test_shared_epochs_are_tracked_and_no_resumption(read, tmp_path, monkeypatch):
    recipe = read()
    tracked = []
    monkeypatch.setattr(engine_run.Tracker, "__call__", lambda self, line: tracked.append(line["epoch"]))
    ce, drw = (job for job in jobs_of(recipe, str(tmp_path), arms=["ce", "drw"], device="cpu", threads=1))
    train_stopped(ce)
    tracked.clear()
    train_to_end(drw)
    assert tracked == [1, 2, 3, 4]
    resumed = [json.loads((job.folder / "timing.json").read_text())["resumed"] for job in (ce, drw)]
    assert resumed == [1, 0]


def test_rank_0_decides_for_all_ranks_whether_a_trunk_fits(read, tmp_path, monkeypatch):
    """Another machine's rank may have another processor; were it to decide for itself, the ranks would part."""
    recipe = read()
    ce, drw = (job for job in jobs_of(recipe, str(tmp_path), arms=["ce", "drw"], device="cpu", threads=1))
    train_to_end(ce)

    class Second:
        leads, rank = False, 1

        def share(self, value, device):
            return True  # rank 0 has a fitting one

    monkeypatch.setattr(engine_run, "environment", lambda device: {"device": "another"})
    branch = Branch(ce.folder, recipe.config("ce", 0), 2)
    spec = RunSpec(lambda: None, (), RunDir(drw.folder), {}, 0, torch.device("cpu"), Second(), branch=branch)
    assert engine_run._load_branch(spec).state["log"]["shared_epochs"] == 2
    with pytest.raises(RunError, match=r"rank 1 cannot read .* same --out"):
        engine_run._load_branch(replace(spec, branch=replace(branch, run=tmp_path / "elsewhere")))


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


def test_a_dry_run_promises_no_epochs_that_are_not_there(read, tmp_path):
    """A finished run without its branches has nothing to share; one that has them, or is yet to be trained, has."""
    read()
    words = ("run", tmp_path / "mine.toml", "--out", tmp_path / "runs", "--device", "cpu", "--jobs", "1")
    assert "2 of 4" in call(*words, "--arm", "ce", "--arm", "drw", "--dry-run")
    call(*words, "--arm", "ce")
    assert "2 of 4" in call(*words, "--arm", "drw", "--dry-run")
    shutil.rmtree(tmp_path / "runs" / "mine" / "ce" / "seed0" / "branches")
    assert "of 4" not in call(*words, "--arm", "ce", "--arm", "drw", "--dry-run")


def test_where_no_branch_can_be_written_the_run_ends_with_a_message(read, tmp_path):
    job = next(iter(jobs_of(read(), str(tmp_path), arms=["ce", "drw"], device="cpu", threads=1)))
    job.folder.mkdir(parents=True)
    (job.folder / "branches").write_text("in the way")
    with pytest.raises(RunError, match=r"epoch-2 could not be created .* run again to continue"):
        train_to_end(job)
