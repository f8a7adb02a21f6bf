"""The bars at the beginning of a page: every measured claim is in one of them, with the words of its verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from encouraging.engine.records import read_records
from encouraging.report.board import scoreboard_of
from encouraging.report.bonus import bonus_counts
from encouraging.report.markdown_board import board_of_records
from encouraging.report.page import build_report
from encouraging.report.tally import ONLY_ATTACKS, bars_of

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def board():
    records = [record for name in ("mnist", "mnist-attack", "nci1") for record in read_records(RESULTS / name)]
    return board_of_records(records)


def test_every_measured_claim_is_counted_once_and_the_bonus_as_in_its_sentence(board):
    bars = bars_of(board)
    assert [bar.title for bar in bars] == ["Claims of the paper", "Questions of our own", "With and without a bonus"]
    assert bars[0].total + bars[1].total == sum(row.measured for row in board.rows)
    for bar, papers in zip(bars, (True, False), strict=False):
        masked = sum(part.claims for part in bar.parts if part.tone == "masked")
        assert masked == sum(row.is_masked for row in board.rows if row.measured and row.papers == papers)
        for verdict, number in board.verdicts:
            if verdict.word in ("reproduced", "fails", "undecided"):
                of_kind = [row for row in board.rows if row.papers == papers and row.verdict == verdict]
                counted = sum(part.claims for part in bar.parts if part.words.removesuffix(f" {ONLY_ATTACKS}")
                              == verdict.word)
                assert counted == len(of_kind) <= number
    counts = bonus_counts(board.rows)
    assert bars[2].total == counts.measured
    better = next(part.claims for part in bars[2].parts if part.tone == "good")
    assert f"{better} {'is' if better == 1 else 'are'} better with a bonus" in counts.words


def test_without_claims_of_the_paper_nobody_asks_whose_questions_they_are(board):
    own = [row for row in board.rows if not row.papers]
    bars = bars_of(scoreboard_of(own))
    assert bars[0].title == "Claims"
    assert bars[0].total == sum(row.measured for row in own)


def test_a_gain_that_scale_free_attacks_do_not_confirm_looks_different_in_the_scoreboard_too():
    page = build_report(read_records(RESULTS / "mnist-attack"))
    cells = re.findall(r'<td role="cell" class="verdict-cell">(.*?)</td>', page, re.DOTALL)
    assert len(cells) > 20
    for cell in cells:
        assert ('class="pill good masked"' in cell) == ("when scale-free" in cell)


def test_the_page_shows_the_bars_with_their_words_for_everybody(board):
    page = build_report(read_records(RESULTS / "nci1"))
    (bar,) = (bar for bar in bars_of(board_of_records(read_records(RESULTS / "nci1")))
              if bar.title == "With and without a bonus")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index('<div class="tally">'):page.index("<nav")]))
    assert f"With and without a bonus {bar.total}" in text
    for part in bar.parts:
        assert f"{part.claims} {part.words}" in text


def test_a_single_claim_has_no_bar(board):
    assert bars_of(None) == []
    assert bars_of(scoreboard_of(board.rows[:1])) == []
