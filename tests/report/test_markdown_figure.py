"""Figures between markers, from records that are not as good as one would like."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

import synthetic_runs as synthetic
from encouraging import cli
from encouraging.errors import ArgumentError
from encouraging.recipes import read_runs
from encouraging.report.markdown_figure import with_figures

RECORDS = Path(__file__).parents[2] / "results" / "mnist-initialisation"
KEY = "model_options.head_scale"


@pytest.fixture(scope="module")
def kept():
    return read_runs(RECORDS, failed=True)


@pytest.fixture
def records(kept):
    return copy.deepcopy(kept)


def marker(metrics="best_accuracy", recipe="mnist-initialisation"):
    return f"<!-- figure: {recipe} over {KEY}: {metrics} -->\n<!-- end of figure -->\n"


def with_values(records, values):
    """The same runs, as if these arms had had other values of the setting."""
    return [replace(record, config={**record.config, "model_options": {"head_scale": values[record.arm]}})
            for record in records if record.arm in values]


def run(*words):
    return CliRunner().invoke(cli.app, ["results", str(RECORDS), *map(str, words)])


def test_two_figures_of_a_recipe_have_two_pictures(records):
    page, pictures = with_figures(marker() + marker("first_updates.confidence") + marker(), records, "page.md")
    assert list(pictures) == [f"images/mnist-initialisation{end}.svg" for end in ("", "-2", "-3")]
    assert all(f"]({path})" in page for path in pictures)
    first, second, third = pictures.values()
    assert first != second
    assert b"onfidence" in second
    assert b"onfidence" not in first + third


def test_a_page_is_not_written_over_by_another_of_the_same_command(tmp_path):
    page, other = tmp_path / "a.md", tmp_path / "b.md"
    page.write_text(marker())
    other.write_text(marker("first_updates.confidence"))
    for words in (("-o", page, "--update", page), ("-o", tmp_path / "." / "a.md", "--update", page),
                  ("-o", tmp_path / "images/mnist-initialisation.svg", "--update", page),
                  ("-o", tmp_path / "r.md", "--update", page, "--update", other)):
        (tmp_path / "images").mkdir(exist_ok=True)
        done = run(*words)
        assert done.exit_code == 2, done.output
        assert "would write it twice" in " ".join(done.output.split())
        assert page.read_text() == marker()
        assert not list((tmp_path / "images").iterdir())
    assert run("-o", tmp_path / "r.md", "--update", page, "--update", page).exit_code == 0


def test_runs_whose_recipe_is_not_known_are_drawn_without_verdicts(records):
    mine = [replace(record, config={**record.config, "recipe": "mine"}, recipe_tree=None) for record in records]
    page, pictures = with_figures(marker(recipe="mine"), mine, "page.md")
    whole, _ = with_figures(marker(), records, "page.md")
    assert list(pictures) == ["images/mine.svg"]
    assert [line for line in page.splitlines() if line.startswith("|")] == [
        line for line in whole.splitlines() if line.startswith("|")]
    assert "**" not in page


def test_runs_that_all_diverged_cannot_be_drawn(records):
    failed = [replace(record, failed="the loss became NaN", final={}, timing={}) for record in records]
    with pytest.raises(ArgumentError, match="all runs of mnist-initialisation diverged"):
        with_figures(marker(), failed, "page.md")


def test_values_that_look_alike_keep_their_own_numbers(records):
    page, _ = with_figures(marker(), with_values(records, {"ce_025": 0.12345678, "ce_10": 0.12345679}), "page.md")
    assert "| 0.12345678 | 99.60" in page
    assert "| 0.12345679 | 99.06" in page


def test_values_are_text_in_a_table(records):
    page, _ = with_figures(marker(), with_values(records, {"ce_025": "a|b", "ce_10": "<b>"}), "page.md")
    assert r"| a\|b | 99.60" in page
    assert "| &lt;b&gt; | 99.06" in page


@pytest.mark.parametrize(("values", "words"), [
    ({"ce_025": 1.0, "ce_1": 1.0, "ce_10": 10.0}, "several arms of mnist-initialisation have the same"),
    ({"ce_025": 1.0, "ce_10": None}, "differ in model_options.head_scale alone"),
])
def test_arms_that_the_setting_does_not_tell_apart_are_refused(records, values, words):
    with pytest.raises(ArgumentError, match=words):
        with_figures(marker(), with_values(records, values), "page.md")


def test_an_arm_whose_seeds_have_different_values_is_refused(records):
    mixed = [replace(record, config={**record.config, "model_options": {"head_scale": 7.0}})
             if (record.arm, record.seed) == ("ce_1", 2) else record for record in records]
    with pytest.raises(ArgumentError, match=r"the runs of ce_1 have several values of model_options\.head_scale"):
        with_figures(marker(), mixed, "page.md")


def test_what_is_better_when_lower_rises_to_its_worst(records):
    assert "the mean FPR95" in (page := with_figures(marker("ood.min_energy.fpr95"), records, "page.md")[0])
    assert " rises by " in page
    assert " falls by " in with_figures(marker(), records, "page.md")[0]


@pytest.mark.parametrize(("key", "head", "line"), [
    ("log_end", "| arm | `log_end` | n | best accuracy |", "| el_075 | 0.75 | 2 | "),
    ("train.lr", "| `lr` | best accuracy, ce | best accuracy, el_075 | best accuracy, el_1 |", "| 0.0125 | ")])
def test_arms_that_differ_in_their_loss_or_rate_are_drawn_over_it(key, head, line):
    """The controls of the learning rate, and the sweep over LE, which are arms of one recipe."""
    records = synthetic.shipped("cifar100-learning-rate-quick", seeds=2)
    page, pictures = with_figures(f"<!-- figure: cifar100-learning-rate-quick over {key}: best_accuracy -->\n"
                                  "<!-- end of figure -->\n", records, "page.md")
    assert head in page
    assert f"\n{line}" in page
    assert list(pictures) == ["images/cifar100-learning-rate-quick.svg"]


def test_arms_without_the_setting_are_rows_of_the_table_too():
    """They are drawn as lines across: their numbers would be missing from a table over the values."""
    records = read_runs(RECORDS.parent / "cifar100-learning-rate-quick")
    text = ("<!-- figure: cifar100-learning-rate-quick over log_end: accuracy temperature.ece_after -->\n"
            "<!-- end of figure -->\n")
    page, _ = with_figures(text, records, "page.md")
    head, _, *rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    assert head == ["arm", "`log_end`", "n", "accuracy", "calibration error after temperature scaling"]
    assert [row[1] for row in rows if row[0].startswith("el_") and row[0] != "el_1_half"] == [
        "0", "0.25", "0.5", "0.75", "0.9", "1"]
    finals = {row[0]: [record.final for record in records if record.arm == row[0]] for row in rows}
    assert {"ce", "ce_2x", "ce_4x"} < finals.keys()
    for arm, value, n, *numbers in rows:
        assert (value == "") == arm.startswith("ce")
        assert int(n) == len(finals[arm])
        assert [number.split(" ")[0] for number in numbers] == [
            f"{fmean(final['accuracy'] for final in finals[arm]):.2f}",
            f"{fmean(final['temperature']['ece_after'] for final in finals[arm]):.4f}"]


ATTACKED = RECORDS.parent / "mnist-attack"


def test_attacks_are_drawn_over_epsilon_with_what_is_left_of_gains():
    records = read_runs(ATTACKED, failed=True)
    text = "<!-- figure: mnist-attack over epsilon: pgd pgd_scale_free -->\n<!-- end of figure -->\n"
    page, pictures = with_figures(text, records, "page.md")
    assert list(pictures) == ["images/mnist-attack.svg"]
    assert b"PGD scale-free" in pictures["images/mnist-attack.svg"]
    assert b"FGSM" not in pictures["images/mnist-attack.svg"]
    rows = [line for line in page.splitlines() if line.startswith("| PGD")]
    assert [line.split(" | ")[:2] for line in rows] == [
        ["| PGD by cross-entropy", "ce"], ["| PGD by cross-entropy", "el"], ["| PGD scale-free", "ce"],
        ["| PGD scale-free", "el"]]
    assert "on the first 10,000 test images, mean over 8 seeds" in page
    assert ("Of 9 gains that are established under attacks by cross-entropy, scale-free attacks confirm none: 5 do not "
            "survive and 4 are not judged. 3 more are not established.") in page
    assert with_figures(page, records, "page.md") == (page, pictures)


@pytest.mark.parametrize(("attacks", "words"), [
    ("pgdd", "Did you mean 'pgd'?"), ("", "expected attacks after the colon")])
def test_attacks_that_were_not_measured_are_answered(attacks, words):
    marked = f"<!-- figure: mnist-attack over epsilon: {attacks} -->\n<!-- end of figure -->"
    with pytest.raises(ArgumentError, match=words.replace("?", r"\?")):
        with_figures(marked, read_runs(ATTACKED), "page.md")
