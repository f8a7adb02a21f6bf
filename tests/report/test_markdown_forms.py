"""The board and its figures inside Markdown pages: what stands between the markers is what the records say."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest
from typer.testing import CliRunner

from encouraging import cli
from encouraging.recipes import read_recipe
from encouraging.report.markdown_board import whole_board
from encouraging.report.markdown_figure import with_figures
from encouraging.report.markdown_forms import FORMS, with_scoreboards
from encouraging.report.numbers import PLAIN

REPOSITORY = Path(__file__).parents[2]
RECORDS = REPOSITORY / "results"


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


@pytest.mark.parametrize("page", ["README.md", "docs/when-it-helps.md"])
def test_the_pages_have_the_board_of_the_committed_records(board, page):
    text = (REPOSITORY / page).read_text()
    assert with_scoreboards(text, board, page) == text


@pytest.mark.parametrize(("page", "names"), [
    ("when-it-helps.md", ["mnist-initialisation"]),
    ("cifar.md", ["cifar100-learning-rate-quick", "cifar100-learning-rate-quick-2", "cifar10-learning-rate-quick"]),
])
def test_the_figures_of_the_pages_are_drawn_from_the_committed_records(records, page, names):
    """Text between markers, and the words and numbers in the picture."""
    text = (REPOSITORY / "docs" / page).read_text()
    written, pictures = with_figures(text, records, page)
    assert written == text
    assert list(pictures) == [f"images/{name}.svg" for name in names]
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
        with_figures(f"<!-- figure: {marker} -->\n<!-- end of figure -->", records, "page.md")


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
    """Every line of questions.toml is a claim about a bonus, and has that claim's numbers and verdict. A recipe that
    stands in for another one is shown once it has records."""
    lines = FORMS["questions"](board)
    text = (REPOSITORY / "src" / "encouraging" / "report" / "questions.toml").read_text()
    rows = {(row.recipe, row.row.claim.metric, row.row.claim.arm, row.row.claim.beats): row for row in board.rows}
    answers = [answer for question in tomllib.loads(text)["questions"] for answer in question["answers"]]
    recorded = {row.recipe for row in board.rows}
    answers = [answer for answer in answers
               if answer["recipe"] in recorded or not read_recipe(answer["recipe"]).stands_in]
    shown = [line for line in lines[2:] if line.startswith("| ")]
    for answer, line in zip(answers, shown, strict=True):
        row = rows[answer["recipe"], answer["metric"], answer["arm"], answer["beats"]]
        assert row.bonus
        setting, *cells = [cell.strip(" *") for cell in line[1:-1].split("|")][1:]
        assert setting == answer["setting"]
        good, bad = ("better", "worse")[::row.bonus]
        expected = "not measured yet" if not row.measured else "better only under this attack" if row.is_masked else {
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


def test_the_verdict_is_beside_its_claim(board):
    """The last columns of a wide table are out of sight on most screens."""
    heads = [line for line in whole_board(board) if line.startswith("| claim") and "command" not in line]
    assert heads
    assert all(head.startswith("| claim | verdict |") for head in heads)
    rows = [line.split(" | ") for line in whole_board(board) if "| **" in line]
    assert {row[1].strip("*").split("**")[0] for row in rows} <= {row.verdict.word for row in board.rows}
