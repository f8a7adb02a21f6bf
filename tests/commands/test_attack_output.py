"""What ``encouraging attack`` prints, and what records and the report show of its numbers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import synthetic_runs as synthetic
from attack_calls import FEW, accuracy_of, call
from encouraging.cli import app
from encouraging.commands import attack_progress
from encouraging.commands.attack_table import print_attacks
from encouraging.engine.records import read_records
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.metric_book import book_of
from encouraging.recipes import kept_recipes, read_recipe


def test_no_number_is_cut_off_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3")
    record = replace(synthetic.record("mine", "pgd_l2_ce", 0), attacks={"attacks": {
        "pgd_l2_scale_free": {"examples": 10000, "accuracy": dict.fromkeys(sizes, 100.0)}}})
    print_attacks(Console(width=80), read_recipe("mnist-attack"), [record])
    said = " ".join(capsys.readouterr().out.split())
    assert "…" not in said
    assert said.count("100.0") == len(sizes)
    assert "mean over 1 seed" in said


def test_records_claims_and_pages_have_the_numbers(runs: Path, tmp_path: Path) -> None:
    said = call(runs, *FEW)
    assert "el beats ce: attacks.fgsm.0.1" in said
    collected = tmp_path / "records"
    assert CliRunner().invoke(app, ["collect", str(runs), "-o", str(collected)]).exit_code == 0
    for folder in (runs, collected):
        records = read_records(folder)
        recipe = kept_recipes(records)["hit"]
        (row,) = claim_rows(recipe, finals_of("hit", records), book_of(records))
        ours, theirs = (accuracy_of(runs / arm / "seed0", "fgsm", 0.1) for arm in ("el", "ce"))
        assert (row.pairs.ours, row.pairs.theirs) == ([ours], [theirs])
        assert "attacks" not in records[0].final
    assert read_records(collected) == read_records(runs)
    page = tmp_path / "page.html"
    assert CliRunner().invoke(app, ["report", str(collected), "-o", str(page)]).exit_code == 0
    assert "PGD in L2 scale-free" in page.read_text()
    for words in ("runs/hit --attack fgsm --attack fgsm_margin --attack fgsm_dlr --attack pgd --attack pgd_margin "
                  "--attack pgd_dlr --eps 0,0.1 --examples 40", "runs/hit --attack pgd_l2 --attack pgd_l2_margin "
                  "--attack pgd_l2_dlr --eps-l2 0,1 --examples 40"):
        assert f"encouraging attack {words}" in page.read_text()


def test_without_a_terminal_it_says_where_it_stands(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack_progress, "PRINT_EVERY", 0.0)
    said = call(runs, "--attack", "fgsm", "--eps", "0,0.07", "--examples", "20", "--device", "cpu")
    assert re.search(r"ce seed0: \d+%, fgsm at 0\.07", said), said


def test_numbers_of_different_images_stand_in_lines_of_their_own(runs: Path, tmp_path: Path) -> None:
    run = runs / "ce/seed0"
    path = Path(shutil.copytree(run, runs / "ce/seed1")) / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "asked": {**config["asked"], "seed": 1}}))
    call(run, "--attack", "pgd", "--eps", "0,0.1", "--examples", "40", "--device", "cpu")
    said = call(run, "--attack", "pgd", "--eps", "0,9/255", "--examples", "20", "--device", "cpu")
    for images in (40, 20):
        assert f"on the first {images} test images, mean over 1 seed" in " ".join(said.split())
    page = tmp_path / "page.html"
    assert CliRunner().invoke(app, ["report", str(runs), "-o", str(page)]).exit_code == 0
    text = page.read_text()
    assert "On the first 40 test images, mean over 1 seed." in text
    assert "Not drawn, because measured on fewer images: PGD by cross-entropy at 9/255 (20 images)." in text
    assert "20 to 40" not in text
    section = text[text.index('id="r1-attacks"'):].partition("</figure>")[0]
    assert re.findall(r"</svg>(\w+)</span>", section) == ["ce"]  # the legend: el was not attacked
    commands = re.findall(r"encouraging attack .*", text[text.index('id="reproduce"'):])
    assert commands == ["encouraging attack runs/hit/ce/seed0 --attack pgd --eps 0,0.1 --examples 40",
                        "encouraging attack runs/hit/ce/seed0 --attack pgd --eps 9/255 --examples 20"]


def test_warnings_come_before_numbers_and_claims_of_other_runs_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = {"attack": "pgd", "eps": 0.1, "accuracy": 90.0, "robust": 50.0, "compared_with": ["pgd_margin"],
               "flattered": True, "examples": 40}
    record = replace(synthetic.record("mine", "ce", 0), attacks={"verdicts": [verdict], "attacks": {
        "pgd": {"examples": 40, "accuracy": {"0.1": 90.0}}}})
    print_attacks(Console(width=80), read_recipe("mnist-attack"), [record])
    said = capsys.readouterr().out
    assert said.index("Warning: PGD by cross-entropy") < said.index("accuracy in percent")


def test_only_claims_under_attack_are_shown_and_those_without_numbers_are_counted(runs: Path) -> None:
    for path in runs.rglob("config.json"):
        config = json.loads(path.read_text())
        first = config["recipe"]["claims"][0]
        config["recipe"]["claims"] = [first, {**first, "metric": "accuracy"}, {**first, "metric": "attacks.pgd.0.7"},
                                      {**first, "metric": "attacks.pgd.0.8"}]
        path.write_text(json.dumps(config))
    said = " ".join(call(runs, "--attack", "fgsm", "--eps", "0.1", "--examples", "20", "--device", "cpu").split())
    assert "el beats ce: attacks.fgsm.0.1" in said
    assert "el beats ce: accuracy" not in said
    assert "attacks.pgd.0.7" not in said
    assert "2 claims under attack are not measured" in said


def test_the_work_is_said_first_and_the_time_left_for_all_runs(runs: Path) -> None:
    words = ["--attack", "fgsm", "--attack", "pgd", "--attack", "pgd_l2", "--eps", "0,0.1", "--examples", "20"]
    said = call(runs, *words, "--device", "cpu")
    assert said.startswith("hit: 2 runs with 8 measurements each, 16 in all, less what is measured already: fgsm, pgd "
                           "at 0, 0.1; pgd_l2 at 0, 0.3, 1, 3 1/2 "), said
    assert re.search(r"1/2 .*8 attacks and epsilons in [\d.]+ s, about [\d.]+ s left for all runs 2/2 ", said), said
    again = call(runs, *words, "--device", "cpu")
    assert "left for all runs" not in again  # nothing was left
