"""The scoreboard: every claim has a row, in the order of the paper, with the numbers of the judge, in three places."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encouraging.engine.records import Record
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.looks import plan_of
from encouraging.judge.metric_book import book_of
from encouraging.recipes import names, read_recipe
from encouraging.report.board import WIDTH, natural, scoreboard_of
from encouraging.report.page import build_report
from encouraging.report.scoreboard import score_rows, unmeasured_rows
from encouraging.report.verdicts import VERDICTS, counted, verdict_of

REPOSITORY = Path(__file__).parents[2]
RECORDS = REPOSITORY / "results"


def test_every_claim_of_a_recipe_with_runs_has_a_row(board, records):
    measured = {record.recipe for record in records}
    shown = [(row.recipe, row.row.claim) for row in board.rows]
    for name in measured:
        claims = read_recipe(name).claims
        assert [claim for recipe, claim in shown if recipe == name and claim in claims]
        assert sum(recipe == name for recipe, _ in shown) == len(claims)


def test_what_the_paper_claims_and_nobody_ran_has_a_row_with_its_command(board, records):
    measured = {record.recipe for record in records}
    waiting = [row for row in board.rows if row.recipe not in measured]
    papers = unmeasured_rows({name: read_recipe(name) for name in names()}, measured)
    assert sorted((row.recipe, row.sentence) for row in waiting) == sorted(
        (row.recipe, row.sentence) for row in papers)
    for row in waiting:
        assert row.papers
        assert not row.measured
        attacked = f" && encouraging attack runs/{row.recipe}" if ".attacks." in f".{row.row.claim.metric}" else ""
        assert row.command == f"encouraging run {row.recipe}{attacked}"
    assert any("encouraging attack" in row.command for row in waiting)


def test_the_command_of_what_is_not_measured_has_the_settings_of_the_runs_beside_it():
    """Without them it would be refused: the folder holds other runs."""
    shipped, quick = read_recipe("digits"), read_recipe("digits", ["train.epochs=3", "options.validation=100"])
    rows = score_rows(shipped, [Record(quick.config("ce", seed), {}, {"accuracy": 90.0}, {}) for seed in range(3)])
    assert {row.measured for row in rows} == {False}
    assert {row.command for row in rows} == {
        "encouraging run digits --set train.epochs=3 --set options.validation=100"}
    assert {row.command for row in score_rows(shipped)} == {"encouraging run digits"}


def test_the_numbers_are_the_judge_s(board, records):
    for row in board.rows:
        if row.measured:
            mine = [record for record in records if record.recipe == row.recipe]
            recipe = read_recipe(row.recipe)
            judged = claim_rows(recipe, finals_of(row.recipe, mine), book_of(mine), plan_of(recipe, mine))
            same = next(other for other in judged if other.claim == row.row.claim)
            assert same.comparison == row.row.comparison
            assert row.verdict.word == same.verdict


def test_rows_are_in_the_order_of_the_paper(board):
    for _, rows in board.kinds:
        places = [natural(row.source) for row in rows]
        assert places == sorted(places)


def test_every_claim_of_the_paper_says_where_it_is(board):
    for row in board.rows:
        if row.papers:
            assert re.match(r"(Table|Figure|Section) \d|Appendix", row.source), row.source


def test_the_paper_s_difference_counts_towards_the_claim(board):
    signs = {row.paper_difference > 0 for row in board.rows if row.paper_difference is not None and row.papers}
    assert True in signs
    for row in board.rows:
        if row.paper_difference is not None:
            ours, theirs = row.row.claim.paper_numbers
            assert (row.paper_difference > 0) == ((ours > theirs) == (row.row.claim.direction == "higher"))


@pytest.mark.parametrize("word", list(VERDICTS))
def test_each_verdict_is_explained_in_two_sentences_without_the_words_of_the_field(word):
    means = VERDICTS[word].means
    assert len(re.findall(r"[.!?](?:\s|$)", means)) == 2, means
    for term in ("interval", "Holm", "paired", "t-test", "arm", "CE", "EL", "significan"):
        assert not re.search(rf"\b{term}", means), term


def test_a_verdict_that_is_not_known_is_shown_without_a_colour():
    assert verdict_of("withdrawn").tone == "none"
    assert "withdrawn" in verdict_of("withdrawn").means
    assert [verdict.word for verdict, _ in counted(["withdrawn", "undecided"])] == ["undecided", "withdrawn"]


def test_every_verdict_of_the_page_leads_to_its_explanation(records):
    few = [record for record in records if record.recipe in ("mnist", "mnist-large-margin")]
    page = build_report([*map(without_figures, few)], whole_paper=True)
    links = set(re.findall(r'href="#(verdict-[\w-]+)"', page))
    assert len(links) >= 3
    for link in links:
        assert f'<div id="{link}">' in page


def without_figures(record):
    return replace(record, diagnosis=None, epochs=[])


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=6, unique=True))
def test_the_small_picture_shows_the_difference_at_its_side_of_0(differences):
    recipe = read_recipe("mnist-large-margin")
    runs = [synthetic_final(recipe, arm, seed, value if arm == "lsoftmax_el" else 0.0)
            for seed, value in enumerate(differences) for arm in recipe.arms]
    row, = score_rows(recipe, runs)
    drawn = str(row.picture)
    dot = float(re.search(r'cx="([-\d.]+)"', drawn)[1])
    assert 0 <= dot <= WIDTH
    ends = row.row.comparison.low, row.row.comparison.high
    a_pixel = max(abs(end) / 50 for end in ends if not math.isnan(end)) if not math.isnan(ends[0]) else 0
    if abs(row.row.comparison.mean) > max(1, a_pixel):
        assert (dot >= WIDTH / 2) == (row.row.comparison.mean > 0)
    if not math.isnan(row.row.comparison.low):
        low, high = map(float, re.search(r'd="M([-\d.]+) 11H([-\d.]+)"', drawn).groups())
        assert 0 <= low <= dot + 0.1
        assert dot - 0.1 <= high <= WIDTH


def synthetic_final(recipe, arm, seed, value):
    return Record(recipe.config(arm, seed), {}, {"best_accuracy": value, "accuracy": value}, {})


def test_only_bonuses_against_their_own_loss_count_as_help(board):
    compared = {(row.row.claim.arm, row.row.claim.beats) for row in board.rows if row.bonus == 1}
    assert ("el", "ce") in compared
    assert ("mse_softmax_bonus", "mse_softmax") in compared
    assert ("lsoftmax_el", "lsoftmax") in compared
    assert ("ce_1", "ce_10") not in compared
    assert ("el_1", "el_10") not in compared
    assert ("ce_ls", "el_1_ls") in {(row.row.claim.arm, row.row.claim.beats) for row in board.rows if row.bonus == -1}


def test_an_empty_board_is_none():
    assert scoreboard_of([]) is None


def test_the_page_says_beside_the_verdicts_of_a_recipe_how_many_gains_are_not_confirmed(board, records):
    attacked = [record for record in records if record.recipe == "mnist-attack"]
    count = sum(row.is_masked for row in board.rows if row.recipe == "mnist-attack")
    page = build_report([*map(without_figures, attacked)])
    summary = re.search(r"<summary>(.*?)</summary>", page, re.DOTALL)[1]
    assert f"{count} not confirmed by scale-free attacks" in summary
    assert "<code>encouraging attack</code>" in summary
    assert page.count("<dt>when scale-free</dt>") == count
    smoothed = [record for record in records if record.recipe == "mnist-mse"]
    assert "not confirmed" not in build_report([*map(without_figures, smoothed)])
