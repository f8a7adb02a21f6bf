"""The table at the end of a run."""

from __future__ import annotations

import io
import math
import re
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from encouraging.commands.claim_notes import check_directions, unknown_metrics
from encouraging.commands.compare import compare_file
from encouraging.commands.run import run_recipe
from encouraging.commands.run_table import print_table
from encouraging.engine.records import read_records
from encouraging.errors import RecipeError
from encouraging.judge.claims import finals_of
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import Claim, Departures, Recipe, names, read_recipe
from synthetic_runs import write_mnist_runs


@pytest.fixture
def runs(tmp_path):
    return write_mnist_runs(tmp_path / "runs")


def test_the_terminal_shows_the_interval_and_the_verdict(runs):
    console = Console(record=True, width=150)
    print_table(console, read_recipe("mnist"), finals_of("mnist", read_records(runs)))
    text = console.export_text()
    for words in ("el beats ce: best_accuracy", "reproduced", "+0.15", "99.42 ± 0.02"):
        assert words in text, words


@pytest.mark.parametrize("width", [40, 60, 71, 80])
def test_no_number_and_no_verdict_is_broken_in_a_narrow_terminal(runs, width):
    console = Console(record=True, width=width)
    print_table(console, read_recipe("mnist"), finals_of("mnist", read_records(runs)))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    claims = " ".join(lines[next(number for number, line in enumerate(lines) if line.startswith("claims")) :])
    for word in ("difference", "interval", "+0.15", "reproduced"):
        assert word in claims, word


def test_an_arm_without_runs_is_not_measured(runs):
    finals = finals_of("mnist", read_records(runs))
    del finals["el"]
    console = Console(record=True, width=150)
    print_table(console, read_recipe("mnist"), finals)
    text = console.export_text()
    assert "5 claims are not measured: they need arms that have no runs" in text
    assert "│ el" not in text
    assert "el has no runs" in text


def test_a_rehearsal_of_one_arm_has_one_row_and_nothing_of_the_paper():
    recipe = read_recipe("cifar100-learning-rate-quick")
    finals = {"ce": {0: {"accuracy": 1.0, "best_accuracy": 1.0}}}
    for departures, beside in ((Departures(settings=(("options.train_images", 256, None),)), False), (None, True)):
        console = Console(record=True, width=150)
        print_table(console, recipe, finals, departures=departures)
        text = console.export_text()
        assert [line.split()[1] for line in text.splitlines() if re.match("│ \\w", line)] == ["ce"]
        assert "15 other arms have no runs" in text
        assert "13 claims are not measured: they need arms that have no runs" in text
        assert text.count("beats") == 0
        assert ("paper 74.39" in text) == beside


def said(recipe, finals, **changed):
    console = Console(record=True, width=150)
    print_table(console, recipe.model_copy(update=changed), finals)
    return console.export_text()


def digits(*accuracies):
    return {seed: {"accuracy": accuracy, "margin": {"median": seed + accuracy}}
            for seed, accuracy in enumerate(accuracies)}


def test_it_is_said_why_a_claim_has_no_verdict():
    recipe = read_recipe("digits")
    two = {"ce": digits(90.0, 91.0), "el_05": digits(95.0, 96.0)}
    assert "fewer than three seeds decide nothing" in said(recipe, two)
    three = {"ce": digits(90.0, 91.0, 90.5), "el_05": digits(95.0, 96.0, 95.5), "el_075": digits(95.0, math.nan, 95.5)}
    text = said(recipe, three)
    assert "fewer than three" not in text
    assert "el_05 beats ce: accuracy: all differences are equal, so there is no interval" in text
    assert "el_075 beats ce: accuracy: a number is NaN or infinite, so there is no interval" in text


def test_claims_with_too_few_seeds_are_named_where_others_have_enough():
    recipe = read_recipe("digits")
    finals = {"ce": digits(90.0, 91.0, 90.5), "el_05": digits(95.0, 96.0, 95.2), "el_075": digits(95.0, 96.5)}
    line = next(line for line in said(recipe, finals).splitlines() if "fewer than three" in line)
    assert "train more for el_075 beats ce: accuracy" in line
    assert "el_05 beats" not in line


def test_what_all_claims_have_in_common_is_said_once(tmp_path):
    (tmp_path / "n.csv").write_text("seed,ce,a,b,c\n0,0.9,0.8,0.7,0.9\n1,0.8,0.7,0.7,0.8\n2,0.9,0.9,0.6,0.7\n")
    console = Console(record=True, width=150)
    compare_file(tmp_path / "n.csv", ["loss"], None, console=console, arm="ce,a,b,c",
                 better={"loss": "lower"})
    text = console.export_text()
    assert "claims that these arms beat ce on loss (lower is better): 95% interval" in text
    assert "b beats ce" not in text
    assert [line.split()[1] for line in text.splitlines() if line.count("│") == 7] == ["a", "b", "c"]
    compare_file(tmp_path / "n.csv", ["loss"], None, console=console, arm="ce,a,b")
    assert "b beats ce: loss" in console.export_text()


def test_the_heading_says_what_plus_means_where_lower_is_better(tmp_path):
    (tmp_path / "n.csv").write_text("arm,seed,loss\n" + "".join(
        f"{arm},{seed},{number + seed / 100}\n" for arm, number in (("ce", 0.3), ("el", 0.4)) for seed in range(3)))
    texts = []
    for better in ("lower", "higher"):
        console = Console(record=True, width=150)
        compare_file(tmp_path / "n.csv", ["loss"], None, console=console, better=better)
        texts.append(" ".join(console.export_text().split()))
    assert ["+ supports the claim (where lower is better, + is a decrease)" in text for text in texts] == [True, False]


def test_a_claim_on_a_number_that_no_run_has_is_named_with_the_nearest_one():
    recipe = read_recipe("digits")
    wrong = [recipe.claims[0].model_copy(update={"metric": metric})
             for metric in ("margin.medain", "attacks.fgsm.0.3", "accuracy")]
    text = said(recipe, {"ce": digits(90.0), "el_1": digits(91.0)}, claims=wrong)
    assert "a claim is about 'margin.medain', a number that no run has in its final.json. Did you mean 'margin." in text
    assert "about 'attacks" not in text  # they come after training
    assert "about 'accuracy'" not in text


def test_claims_that_wait_for_an_attack_are_one_line_with_its_command():
    for name, command in (("mnist-attack", "encouraging attack runs/mnist-attack`"),
                          ("mnist-autoattack", "encouraging attack runs/mnist-autoattack --examples 1000`")):
        recipe = read_recipe(name)
        finals = {arm: {seed: {"accuracy": 90.0 + seed + place, "best_accuracy": 91.0 + place} for seed in range(3)}
                  for place, arm in enumerate(recipe.arms)}
        text = said(recipe, finals)
        waiting = sum(claim.metric.startswith("attacks.") for claim in recipe.claims)
        assert waiting > 5
        assert f"{waiting} claims wait for an attack: measure them with `{command}\n" in text
        assert "attacks." not in text
        assert "not measured" not in text


def test_a_claim_that_was_attacked_has_its_row_and_the_others_wait():
    recipe = read_recipe("mnist-attack")
    first = next(claim for claim in recipe.claims if claim.metric == "attacks.pgd.0.1")
    finals = {arm: {seed: {"accuracy": 90.0, "attacks": {"pgd": {"0.1": 50.0 + seed * place}}} for seed in range(3)}
              for place, arm in enumerate(recipe.arms)}
    text = said(recipe, finals)
    rows = sum(claim.metric == first.metric for claim in recipe.claims)
    waiting = sum(claim.metric.startswith("attacks.") for claim in recipe.claims) - rows
    assert text.count("attacks.pgd.0.1") >= rows
    assert f"{waiting} claims wait for an attack" in text
    assert "also need" not in text


def test_a_claim_of_an_arm_without_runs_waits_for_it_too():
    claim = Claim(metric="attacks.fgsm.0.07", arm="el_1", beats="ce")
    text = said(read_recipe("digits"), {"ce": digits(90.0, 91.0, 92.0)}, claims=(claim,))
    assert ("1 claim waits for an attack: measure it with `encouraging attack runs/digits --eps 0,0.07`; it also needs "
            "finished runs of el_1") in text


def test_a_misspelt_metric_is_named_before_the_training_and_a_right_one_is_not():
    for name in names():
        recipe = read_recipe(name)
        assert not list(unknown_metrics(recipe, MetricBook(recipe.needs().metrics))), name
    for metric in ("train_accuracy", "excess_risk", "my.own.number"):
        recipe = claiming("digits", metric)
        assert not list(unknown_metrics(recipe, MetricBook(recipe.needs().metrics)))


def claiming(name: str, metric: str) -> Recipe:
    return read_recipe(name).model_copy(update={"claims": (Claim(metric=metric, arm="el_1", beats="ce"),)})


@pytest.mark.parametrize(("metric", "right"), [("acuracy", "accuracy"), ("best_acuracy", "best_accuracy")])
def test_a_misspelt_metric_is_refused_where_the_task_cannot_have_it(metric: str, right: str):
    recipe = claiming("digits", metric)
    book = MetricBook(recipe.needs().metrics)
    with pytest.raises(RecipeError, match=f"digits: a claim is about '{metric}', .* Did you mean '{right}'?"):
        list(unknown_metrics(recipe, book))
    own = recipe.model_copy(update={"task": "mine:Task"})  # which may measure what it does not declare
    assert f"Did you mean '{right}'?" in " ".join(unknown_metrics(own, book))
    detection = claiming("bccd-retinanet", "val_small")  # all its words are words of metrics
    assert "Did you mean 'val_ap_small'?" in " ".join(unknown_metrics(detection, MetricBook(detection.needs().metrics)))


def test_a_misspelt_metric_ends_the_command_before_training(tmp_path: Path):
    (tmp_path / "mine.toml").write_text('''
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = { epochs = 1, lr = 0.1 }
arms.ce = {}
arms.el = { curve = "encouraging" }
[[claims]]
metric = "acuracy"
arm = "el"
beats = "ce"
''')
    for dry_run in (False, True):
        text = io.StringIO()
        with pytest.raises(RecipeError, match="Did you mean 'accuracy'"):
            run_recipe(str(tmp_path / "mine.toml"), device="cpu", jobs=1, out=tmp_path / "runs", dry_run=dry_run,
                       console=Console(file=text, width=200))
        assert "started" not in text.getvalue()


@pytest.mark.parametrize("metric", ["ece", "best_test_loss", "stage1.nll", "temperature.ece_after",
                                    "ood.svhn.msp.fpr95"])
def test_a_claim_that_leaves_out_that_lower_is_better_ends_the_command_before_training(metric: str, tmp_path: Path):
    """It would be judged the wrong way round: the arm with the larger error would beat the other."""
    (tmp_path / "mine.toml").write_text(f'''
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = {{ epochs = 1, lr = 0.1 }}
arms.ce = {{}}
arms.el = {{ curve = "encouraging" }}
[[claims]]
metric = "{metric}"
arm = "el"
beats = "ce"
''')
    words = re.escape(f"mine: a claim on '{metric}' would be judged the wrong way round: '{metric}' is better when "
                      'lower. Add better = "lower" to the claim.')
    for dry_run in (False, True):
        with pytest.raises(RecipeError, match=words):
            run_recipe(str(tmp_path / "mine.toml"), device="cpu", jobs=1, out=tmp_path / "runs", dry_run=dry_run)
    assert not (tmp_path / "runs").exists()


def test_a_claim_may_state_any_direction_and_of_the_others_none_is_judged_the_wrong_way_round():
    for name in names():
        recipe = read_recipe(name)
        check_directions(recipe, MetricBook(recipe.needs().metrics))
    digits = read_recipe("digits")
    for claim in (Claim(metric="ece", arm="el_1", beats="ce", better="higher"),
                  Claim(metric="ece", arm="el_1", over=0.1), Claim(metric="my_own", arm="el_1", under=0.1),
                  Claim(metric="my_own", arm="el_1", beats="ce", better="higher")):
        check_directions(digits.model_copy(update={"claims": (claim,)}), MetricBook(digits.needs().metrics))


def test_a_claim_on_a_number_that_nothing_declares_states_its_direction():
    """The training loss of a run would silently count as better when higher."""
    digits = read_recipe("digits")
    for claim in (Claim(metric="train_loss", arm="el_1", beats="ce"),
                  Claim(metric="stage1.mine", arm="el_1", beats="ce"),
                  Claim(metric="train_accuracy", arm="el_1", beats_metric="mine")):
        words = "does not say whether it is better when higher or lower. Add better = \"higher\" or better = \"lower\""
        with pytest.raises(RecipeError, match=words):
            check_directions(digits.model_copy(update={"claims": (claim,)}), MetricBook(digits.needs().metrics))


def test_a_recipe_that_concludes_on_the_best_epoch_is_compared_by_its_number():
    best = {"ap": 3.4, "best_ap": 4.5, "accuracy": 3.4, "best_accuracy": 4.5, "bleu": 3.4}
    for name, change, metric in (("bccd-retinanet", (), "best_ap"), ("proteins", (), "best_accuracy"),
                                 ("digits", ("train.conclude_on=best",), "best_accuracy"), ("digits", (), "accuracy"),
                                 ("multi30k-de-en", ("train.conclude_on=best",), "bleu")):
        recipe = read_recipe(name, change)
        text = said(recipe, {arm: {0: best} for arm in recipe.arms}, claims=())
        assert f'metric = "{metric}"' in text
        head = next(line for line in text.splitlines() if " n " in line)
        assert head.index(metric) == min(head.index(each) for each in best if each in head)


def test_without_claims_the_table_shows_how_to_write_one_that_can_be_read(tmp_path):
    recipe = read_recipe("digits")
    text = said(recipe, {"ce": digits(90.0), "el_05": digits(91.0)}, claims=())
    lines = [line.strip() for line in text[text.index("[[claims]]") :].splitlines() if line.strip()]
    claim = Claim(**tomllib.loads("\n".join(lines))["claims"][0])
    assert (claim.metric, claim.arm, claim.beats) == ("accuracy", "el_05", "ce")
    assert "no claims" not in said(recipe, {"ce": digits(90.0), "el_05": digits(91.0)})


def test_a_comparison_of_a_file_shows_what_every_arm_reached(tmp_path):
    (tmp_path / "n.csv").write_text("arm,seed,accuracy\nce,0,92.1\nce,1,91.9\nel,0,92.6\nel,1,92.4\n")
    console = Console(record=True, width=150)
    compare_file(tmp_path / "n.csv", ["accuracy"], None, console=console)
    text = console.export_text()
    for words in ("mean ± standard deviation over n seeds", "92.00 ± 0.14", "92.50 ± 0.14",
                  "fewer than three seeds decide nothing"):
        assert words in text, words
