"""How often a bonus was better or worse: the page says it in the words and numbers of the README."""

from __future__ import annotations

from pathlib import Path

import pytest

import synthetic_runs as synthetic
from encouraging.recipes import read_runs
from encouraging.report.bonus import bonus_answer, bonus_counts
from encouraging.report.chapters import chapters_of
from encouraging.report.markdown_board import board_of_records
from encouraging.report.markdown_forms import FORMS
from encouraging.report.page import build_report
from page_text import PageText

NAMES = ("digits", "mnist-initialisation", "mnist-attack", "cifar100-learning-rate-quick")
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def records():
    return [record for name in NAMES if (RESULTS / name).is_dir() for record in read_runs(RESULTS / name, failed=True)]


def test_page_and_readme_count_alike(records):
    line = FORMS["questions"](board_of_records(records))[-1]
    scores = [score for chapter in chapters_of(records) for score in chapter.scores]
    counts = bonus_counts(scores)
    assert counts.measured > 5
    assert f"of {counts.measured} comparisons: {counts.words}." in line
    sentence, = bonus_answer(scores)
    assert counts.words in sentence


@pytest.mark.usefixtures("without_figures")
def test_the_page_says_it_after_the_verdicts():
    words = " ".join(PageText(build_report(synthetic.shipped("digits", 3, examples=200))).words)
    assert "Does a bonus help? Of 5 comparisons of a loss with a bonus and one without, " in words
    assert words.index("Does a bonus help?") < words.index("Scoreboard")


def test_a_single_comparison_is_not_counted(records):
    assert bonus_answer([]) == []


def test_the_numbers_are_named_where_they_are_few_and_nothing_is_counted_in_vain():
    sentence, = bonus_answer(board_of_records(read_runs(RESULTS / "mnist")).rows)
    assert "none is worse and 1 is undecided. Better with it: best accuracy; AUROC, out-of-distribution" in sentence
    assert "Worse with it" not in sentence
