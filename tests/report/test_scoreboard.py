"""The scoreboard: every claim has a row, in the order of the paper, with the numbers of the judge, in three places."""

from __future__ import annotations

import math
import re
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from encouraging import cli
from encouraging.engine.records import Record
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.looks import plan_of
from encouraging.judge.metric_book import book_of
from encouraging.recipes import names, read_recipe, read_runs
from encouraging.report.board import WIDTH, natural, scoreboard_of
from encouraging.report.markdown_board import board_of_records, whole_board
from encouraging.report.markdown_figure import drawn
from encouraging.report.markdown_forms import FORMS, updated
from encouraging.report.numbers import PLAIN
from encouraging.report.page import build_report
from encouraging.report.scoreboard import score_rows, unmeasured_rows
from encouraging.report.verdicts import VERDICTS, counted, verdict_of

REPOSITORY = Path(__file__).parents[2]
RECORDS = REPOSITORY / "results"


@pytest.fixture(scope="module")
def records():
    return read_runs(RECORDS)


@pytest.fixture(scope="module")
def board(records):
    found = board_of_records(records)
    assert found is not None
    return found


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
    if abs(row.row.comparison.mean) > 1:
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


def short_lines(board):
    """The lines of the short form's table by the words of their group, and the sentences below it."""
    lines, groups, group = FORMS["short"](board), {}, ""
    for line in lines[2:]:
        if line.startswith("| "):
            group = line.split("|")[1].strip(" *") or group
            groups.setdefault(group, []).append(line)
    return groups, [line for line in lines if line.startswith("**")]


def test_a_claim_that_a_bonus_costs_is_told_as_worse_with_a_bonus(board):
    """The records have 7 BLEU less with LE 1: not under 'undecided' alone, and not as a success."""
    groups, _ = short_lines(board)
    assert "|  | `multi30k-de-en` (el_1_ls against ce_ls) | BLEU | 41.27 -> 34.18 | 4 |" in groups["worse"]
    line = next(line for line in FORMS["accuracy"](board) if "el_1_ls against ce_ls" in line)
    assert "| 41.27 | 34.18 | -7.09 | (-10.57, -3.60) | 4 | worse |" in line


def test_an_empty_board_is_none():
    assert scoreboard_of([]) is None


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md"])
def test_the_pages_have_the_board_of_the_committed_records(board, page):
    text = (REPOSITORY / page).read_text()
    assert updated(text, board, page) == text


def test_the_figures_of_the_pages_are_drawn_from_the_committed_records(records):
    """Text between markers, and the words and numbers in the picture."""
    text = (REPOSITORY / "docs" / "choosing.md").read_text()
    written, pictures = drawn(text, records, "docs/choosing.md")
    assert written == text
    assert list(pictures) == ["images/mnist-initialisation.svg"]
    for path, svg in pictures.items():
        kept = (REPOSITORY / "docs" / path).read_bytes()
        assert _words(kept) == _words(svg)
        assert "Best accuracy" in _words(svg)


def _words(svg):
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter() if node.tag.endswith("}text")]


@pytest.mark.parametrize(("marker", "words"), [
    ("mnist-initialisatoin over model_options.head_scale: best_accuracy", "Did you mean 'mnist-initialisation'?"),
    ("mnist-initialisation over train.lr: best_accuracy", "differ in train.lr alone"),
    ("mnist-initialisation over model_options.head_scale: best_acuracy", "Did you mean 'best_accuracy'?"),
    ("mnist-initialisation over model_options.head_scale:", "expected metrics after the colon"),
    ("mnist-initialisation", "expected <!-- figure: RECIPE over KEY"),
])
def test_a_figure_that_cannot_be_drawn_is_answered(records, marker, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        drawn(f"<!-- figure: {marker} -->\n<!-- end of figure -->", records, "page.md")


MASKED = "better only under attacks that follow cross-entropy"


def test_the_short_form_says_where_it_helped_and_where_not_with_n(board):
    groups, _ = short_lines(board)
    shown = 0
    for row in board.rows:
        if not (row.measured and row.bonus and row.verdict.tone in ("good", "bad")):
            continue
        side = ("better", "worse")[(row.verdict.tone == "good") == (row.bonus < 0)]
        claim, words = row.row.claim, re.escape(row.row.metric.words)
        if claim.metric.startswith("attacks."):  # the sizes of an attack are together
            attack, size, rest = re.fullmatch(r"(.* of size )([\d.]+)(.*)", row.row.metric.words).groups()
            words = rf"{attack}[\d., ]*{re.escape(size)}[\d., ]*{rest}"
        compared = {(other.row.claim.arm, other.row.claim.beats) for other in board.rows
                    if other.recipe == row.recipe and other.measured and other.bonus}
        arms = f" ({' against '.join([claim.arm, claim.beats][::row.bonus])})" if len(compared) > 1 else ""
        line = next(line for line in groups[MASKED if row.is_masked else side]
                    if re.search(rf"\| `{row.recipe}`{re.escape(arms)} \| {words}", line))
        assert re.search(rf"\| [\d to]*{row.n} \|$", line)
        shown += 1
    assert shown >= sum(map(len, groups.values()))


def test_the_short_form_counts_the_rest_by_recipe(board):
    _, sentences = short_lines(board)
    for word, chosen in {"No difference": lambda row: row.measured and row.verdict.tone == "same",
                         "Undecided": lambda row: row.measured and row.verdict.tone == "open",
                         "Not measured yet": lambda row: not row.measured}.items():
        rows = [row for row in board.rows if row.bonus and chosen(row)]
        (sentence,) = (line for line in sentences if line.startswith(f"**{word}**: {len(rows)} comparisons, in "))
        counts = {name: int(count) for name, count in re.findall(r"`([^`]+)` \((\d+)\)", sentence)}
        assert counts == Counter(row.recipe for row in rows)


def test_the_questions_are_answered_by_claims_of_the_board(board):
    """Every line of questions.toml is a claim about a bonus, and has that claim's numbers and verdict."""
    lines = FORMS["questions"](board)
    text = (REPOSITORY / "src" / "encouraging" / "report" / "questions.toml").read_text()
    rows = {(row.recipe, row.row.claim.metric, row.row.claim.arm, row.row.claim.beats): row for row in board.rows}
    answers = [answer for question in tomllib.loads(text)["questions"] for answer in question["answers"]]
    shown = [line for line in lines[2:] if line.startswith("| ")]
    for answer, line in zip(answers, shown, strict=True):
        row = rows[answer["recipe"], answer["metric"], answer["arm"], answer["beats"]]
        assert row.bonus
        setting, *cells = [cell.strip(" *") for cell in line[1:-1].split("|")][1:]
        assert setting == answer["setting"]
        good, bad = ("better", "worse")[::row.bonus]
        expected = "not measured yet" if not row.measured else "only seemingly" if row.is_masked else {
            "good": good, "bad": bad, "same": "no difference", "open": "undecided"}[row.verdict.tone]
        numbers = row.our_words(PLAIN).split(" -> ")[::row.bonus] if row.measured else ["", ""]
        assert cells == [*numbers, str(row.n) if row.measured else "", expected]
    measured = [row for row in board.rows if row.bonus and row.measured]
    assert f"of {len(measured)} comparisons" in lines[-1]


def test_lines_of_one_recipe_follow_each_other(board):
    for lines in short_lines(board)[0].values():
        order = [re.search(r"`([^`]+)`", line)[1] for line in lines]
        assert len(list(groupby(order))) == len(set(order))


def test_a_gain_that_scale_free_attacks_do_not_confirm_is_not_among_what_is_better(board):
    """The paper's attack figure is reproduced, and no page may leave it at that."""
    groups, _ = short_lines(board)
    assert not any("FGSM" in line or "PGD" in line for line in groups["better"])
    assert ("|  | `mnist-attack` | accuracy under FGSM of size 0.1, 0.15, 0.2, 0.25, 0.3 by cross-entropy "
            "| +5.1 to +21.7; scale-free -1.2 to +1.0 | 8 |") in groups[MASKED]
    (row,) = (row for row in board.rows
              if (row.recipe, row.row.claim.metric) == ("mnist-attack", "attacks.fgsm.0.3"))
    assert (row.verdict.word, row.beside) == ("reproduced", "−1.2 when scale-free: does not survive")
    assert any("**reproduced**; -1.2 when scale-free: does not survive" in line for line in whole_board(board))
    assert board.answer.count("scale-free") == 1
    assert f"{sum(row.is_masked for row in board.rows)} of the gains are under attacks that follow" in board.answer


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


@pytest.mark.parametrize(("text", "words"), [
    ("nothing", "expected <!-- scoreboard: short -->"),
    ("<!-- scoreboard: short -->\n", "expected <!-- scoreboard: short -->"),
    ("<!-- scoreboard: shrt -->\n<!-- end of scoreboard -->", "Did you mean 'short'?"),
])
def test_markers_that_are_wrong_are_answered(tmp_path, text, words):
    page = tmp_path / "page.md"
    page.write_text(text)
    done = CliRunner().invoke(cli.app, ["results", str(RECORDS), "-o", str(tmp_path / "r.md"), "--update", str(page)])
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())
    assert page.read_text() == text
    assert not (tmp_path / "r.md").exists()


def test_the_command_writes_all_pages(tmp_path):
    page = tmp_path / "mine.md"
    page.write_text("# Mine\n\n<!-- scoreboard: short -->\nold\n<!-- end of scoreboard -->\n\nthe rest\n")
    done = CliRunner().invoke(cli.app, ["results", str(RECORDS), "-o", str(tmp_path / "r.md"), "--update", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("the rest\n")
    assert "old" not in text
    assert "| **better** | `mnist` |" in text
    assert (tmp_path / "r.md").read_text().index("## Scoreboard") < (tmp_path / "r.md").read_text().index("## mnist")
    marker = "<!-- figure: mnist-initialisation over model_options.head_scale: accuracy -->"
    page.write_text(f"{marker}\n<!-- end of figure -->")
    done = CliRunner().invoke(cli.app, ["results", str(RECORDS), "-o", str(tmp_path / "r.md"), "--update", str(page)])
    assert done.exit_code == 0, done.output
    assert "| 0.25 |" in page.read_text()
    assert "Accuracy" in _words((tmp_path / "images" / "mnist-initialisation.svg").read_bytes())
    missing = CliRunner().invoke(cli.app, ["results", str(RECORDS), "-o", str(tmp_path / "r.md"), "--update", "no.md"])
    assert missing.exit_code == 2
    assert "expected a Markdown page" in missing.output
