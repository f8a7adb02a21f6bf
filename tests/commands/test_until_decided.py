"""``run --until-decided``: looks planned first, and an interruption that changes nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from encouraging.commands.run import run_recipe
from encouraging.engine import sweep
from encouraging.engine.records import collect, read_records
from encouraging.errors import RecipeError
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.looks import plan_of
from encouraging.judge.metric_book import book_of
from encouraging.recipes import kept_recipes, read_recipe
from encouraging.report.page import build_report
from forked import command_on_two_ranks
from task_laws import call

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 2
threads = 1
looks = [3, 5, 7]
train = { epochs = 1, batch_size = 64, lr = 0.1 }
[arms.ce]
curve = "cross_entropy"
[arms.el]
curve = "encouraging"
log_end = 1.0
[[claims]]
metric = "energy.label"
arm = "el"
under = -0.25
"""
NEVER = '[[claims]]\nmetric = "accuracy"\narm = "el"\nover = 76.0\n'  # near what it reaches


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(RECIPE)
    return tmp_path / "mine.toml"


def run(recipe: Path, out: Path, code: int = 0, **how: object) -> str:
    said = io.StringIO()
    how = {"until_decided": True, **how}
    assert run_recipe(str(recipe), out=out, device="cpu", threads=1, jobs=1, console=Console(file=said, width=200),
                      **how) == code
    return said.getvalue()


def finals(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("final.json"))}


def seeds_of(out: Path, arm: str = "el") -> list[int]:
    return sorted(int(path.parent.name.removeprefix("seed")) for path in out.glob(f"mine/{arm}/*/final.json"))


def test_it_ends_at_the_first_look_that_decides_every_claim(recipe, tmp_path):
    said = run(recipe, tmp_path / "runs")
    assert said.startswith("up to 14 runs (2 arms, 7 seeds), of which 0 are finished; the claims are judged at 3, ")
    assert "look 1 of 3, 3 seeds: 1 of 1 claims undecided" in said
    assert "look 2 of 3, 5 seeds: 0 of 1 claims undecided" in said
    assert "holds at look 2" in said
    assert seeds_of(tmp_path / "runs") == [0, 1, 2, 3, 4]
    assert json.loads((tmp_path / "runs/mine/looks.json").read_text()) == {
        "schema": 1, "looks": [3, 5, 7], "seeds": [0, 1, 2, 3, 4, 5, 6]}
    again = run(recipe, tmp_path / "runs")
    assert "look 1 of 3, 3 seeds: 1 of 1 claims undecided" in again
    assert again[again.index("look 2") :] == said[said.index("look 2") :]


@pytest.mark.usefixtures("without_figures")
def test_every_run_keeps_the_plan_and_its_fingerprint_is_that_of_any_run(recipe, tmp_path):
    run(recipe, tmp_path / "planned")
    run(recipe, tmp_path / "plain", until_decided=False, seeds="5", overrides=["looks=[]"])
    planned, plain = (json.loads((tmp_path / out / "mine/el/seed3/config.json").read_text())
                      for out in ("planned", "plain"))
    assert planned["recipe"]["looks"] == [3, 5, 7]
    assert planned["fingerprint"] == plain["fingerprint"]
    assert finals(tmp_path / "planned") == finals(tmp_path / "plain")


@pytest.mark.usefixtures("without_figures")
def test_it_goes_on_to_the_last_look_where_a_claim_stays_undecided(recipe, tmp_path):
    recipe.write_text(RECIPE + NEVER)
    said = run(recipe, tmp_path / "runs")
    assert "look 3 of 3, 7 seeds" in said
    assert seeds_of(tmp_path / "runs") == list(range(7))


@pytest.mark.usefixtures("without_figures")
def test_seeds_that_exist_spend_a_look(recipe, tmp_path):
    run(recipe, tmp_path / "runs", until_decided=False, seeds="0,1,2,9", overrides=["looks=[]"])
    said = run(recipe, tmp_path / "runs")
    plan = json.loads((tmp_path / "runs/mine/looks.json").read_text())
    assert (plan["looks"], plan["seeds"]) == ([4, 5, 7], [0, 1, 2, 9, 3, 4, 5])
    assert "look 1 of 3, 4 seeds" in said


@pytest.mark.usefixtures("without_figures")
def test_interrupting_and_resuming_changes_nothing(recipe, tmp_path, monkeypatch):
    run(recipe, tmp_path / "whole")
    real = sweep.run_here
    for allowed in (2, 3, 2):  # in the middle of a look, at its end, and in the next one
        def stopped(jobs, work, report, allowed=allowed):
            real(jobs[:allowed], work, report)
            for job in jobs[allowed:]:
                report(sweep.Event(job, "stopped", "not started"))

        monkeypatch.setattr(sweep, "run_here", stopped)
        assert "unfinished" in run(recipe, tmp_path / "parts", code=130)
    monkeypatch.setattr(sweep, "run_here", real)
    run(recipe, tmp_path / "parts")
    assert finals(tmp_path / "parts") == finals(tmp_path / "whole")
    plans = [(tmp_path / out / "mine/looks.json").read_bytes() for out in ("whole", "parts")]
    assert plans[0] == plans[1]
    verdicts = []
    for out in ("whole", "parts"):
        records = read_records(tmp_path / out)
        found = read_recipe(recipe)
        verdicts.append([row.comparison for row in claim_rows(found, finals_of("mine", records), book_of(records),
                                                               plan_of(found, records))])
    assert verdicts[0] == verdicts[1]


@pytest.mark.usefixtures("without_figures")
def test_the_report_of_the_runs_and_of_their_records_judges_by_the_same_rule(recipe, tmp_path):
    said = run(recipe, tmp_path / "runs")
    recipe.unlink()  # the runs have kept it
    collect(tmp_path / "runs", tmp_path / "records")
    for folder in (tmp_path / "runs", tmp_path / "records"):
        records = read_records(folder)
        kept = kept_recipes(records)["mine"]
        row, = claim_rows(kept, finals_of("mine", records), book_of(records), plan_of(kept, records))
        assert (row.verdict, row.comparison.look, row.comparison.looks) == ("holds", 2, 3)
        assert f"({row.comparison.low:+.2f}, {row.comparison.high:+.2f})" in said
        page = " ".join(build_report(records).split())
        assert "at 3, 5, 7 seeds" in page
        assert "<dt>look</dt><dd>2 of 3</dd>" in page


def test_two_ranks_agree_on_when_it_ends(recipe, tmp_path):
    words = ["run", str(recipe), "--until-decided", "--out", str(tmp_path / "runs"), "--device", "cpu"]
    printed = command_on_two_ranks(words, tmp_path / "printed", timeout=250)
    assert printed.count("look 2 of 3, 5 seeds: 0 of 1 claims undecided") == 1
    assert seeds_of(tmp_path / "runs") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("how", "words"), [
    ({"seeds": "4"}, "--until-decided with --seeds"),
    ({"arms": ("ce",)}, "--until-decided with --arm"),
    ({"overrides": ["claims=[]"]}, "makes no claims"),
])
def test_what_does_not_go_together_is_refused_before_anything_is_written(recipe, tmp_path, how, words):
    with pytest.raises(RecipeError, match=words):
        run(recipe, tmp_path / "runs", **how)
    assert not (tmp_path / "runs").exists()


ATTACKED = '[[claims]]\nmetric = "attacks.fgsm.0.1"\narm = "el"\nbeats = "ce"\n'


def attack(folder: Path) -> None:
    call("attack", folder, "--attack", "fgsm", "--eps", "0.1", "--examples", "40", "--device", "cpu")


@pytest.mark.usefixtures("without_figures")
def test_claims_that_wait_for_an_attack_are_not_decided(recipe, tmp_path):
    recipe.write_text(RECIPE[: RECIPE.index("[[claims]]")] + ATTACKED)
    out = tmp_path / "runs"
    said = run(recipe, out)
    assert "look 1 of 3, 3 seeds: 0 of 1 claims undecided, 1 not measured" in said
    assert f"1 claim is not measured: run `encouraging attack {out / 'mine'}`, then this command again" in said
    assert seeds_of(out) == [0, 1, 2]
    attack(out / "mine")
    said = run(recipe, out)
    assert "look 1 of 3, 3 seeds: 1 of 1 claims undecided\n" in said
    assert "look 2 of 3, 5 seeds: 0 of 1 claims undecided, 1 not measured" in said  # the new seeds
    assert seeds_of(out) == [0, 1, 2, 3, 4]
    attack(out / "mine")
    assert "look 3 of 3, 7 seeds: 0 of 1 claims undecided, 1 not measured" in run(recipe, out)


@pytest.mark.usefixtures("without_figures")
def test_other_claims_are_decided_first(recipe, tmp_path):
    recipe.write_text(RECIPE + ATTACKED)
    said = run(recipe, tmp_path / "runs")
    assert "look 1 of 3, 3 seeds: 1 of 2 claims undecided, 1 not measured" in said
    assert "look 2 of 3, 5 seeds: 0 of 2 claims undecided, 1 not measured" in said
    assert said.count("then this command again") == 1


@pytest.mark.usefixtures("without_figures")
def test_a_claim_on_a_number_that_no_run_has_is_no_reason_to_train_more(recipe, tmp_path):
    recipe.write_text(RECIPE.replace('"energy.label"', '"energy.lable"'))
    said = run(recipe, tmp_path / "runs")
    assert "1 claim is not measured: no run has a number of both sides, and more seeds would not change that" in said
    assert seeds_of(tmp_path / "runs") == [0, 1, 2]
