"""The report: one page from records, whole, escaped, of a size to be mailed, and at home in a real browser."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from markupsafe import Markup

import synthetic_runs as synthetic
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.metric_book import book_of
from encouraging.judge.stats import mean_of
from encouraging.recipes import read_recipe
from encouraging.report.diagnosis_page import diagnosis_page
from encouraging.report.drawing.style import VARIABLES
from encouraging.report.numbers import between, show, signed
from encouraging.report.page import build_report, fill_template
from encouraging.report.sections.parts import Cell, Section, Table
from page_elements import Reading
from page_text import PageText

EVIL = "<script>alert(1)</script>"
WHOLE = {"outside": ("svhn",), "attacks": True, "shots": True}


@pytest.fixture(scope="module")
def records():
    """Five arms, five seeds, and everything that a diagnosis may hold."""
    return synthetic.shipped("digits", **WHOLE)


@pytest.fixture(scope="module")
def text(records):
    return build_report(records, when=date(2026, 1, 2))


@pytest.fixture(scope="module")
def read(text):
    return Reading(text)


def test_all_sections_are_there_and_reachable(read):
    sections = {attributes["id"] for attributes in read.all("section")}
    for key in ("claims", "arms", "training", "margins", "energy", "calibration", "out-of-distribution-1", "attacks",
                "class-frequency", "gradient-mass"):
        assert f"r1-{key}" in sections
    assert {"explorer", "reproduce"} <= sections
    assert len(read.ids) == len(set(read.ids))
    for link in read.all("a"):
        assert link["href"][1:] in read.ids
    assert len(read.all("h1")) == 1


def test_every_figure_says_in_words_what_it_shows(read):
    figures = [attributes for attributes in (*read.all("figure"), *read.all("div")) if attributes.get("role") == "img"]
    assert len(figures) >= 14
    for attributes in figures:
        assert re.search(r"\d", attributes["aria-label"])
        assert attributes["aria-label"].endswith(".")
    assert len(read.all("figcaption")) >= len(figures)


def test_it_is_small_and_needs_nothing_from_elsewhere(text, read):
    assert len(text.encode()) < 600_000
    for tag, attributes in read.tags:
        assert tag not in ("link", "img", "iframe", "object")
        assert not {"src", "srcset"} & set(attributes)
    assert "@import" not in text
    assert "url(http" not in text


def test_the_numbers_are_those_of_the_records(records, read):
    words = " ".join(" ".join(read.words).split())
    recipe = read_recipe("digits")
    for row in claim_rows(recipe, finals_of("digits", records), book_of(records)):
        assert f"{row.claim.arm} beats {row.claim.beats}" in words
        assert row.comparison.verdict in words
        assert signed(row.comparison.mean) in words
    for arm in recipe.arms:
        finals = [record.final for record in records if record.arm == arm]
        row = next(cells for cells in read.cells if cells[:1] == [arm] and "5" in cells[:3])
        for values, digits in (([final["accuracy"] for final in finals], 2), ([final["ece"] for final in finals], 4),
                               ([final["margin"]["median"] for final in finals], 2),
                               ([final["energy"]["label"] for final in finals], 2),
                               ([final["ood"]["min_energy"]["fpr95"] for final in finals], 2)):
            assert show(statistics.fmean(values), digits) in row
            mean = mean_of(values)
            assert between(max(mean.low, -1e9 if digits == 2 else 0), mean.high, digits) in row


@pytest.mark.usefixtures("without_figures")
def test_a_claim_that_fails_is_as_prominent_as_one_that_holds():
    recipe = read_recipe("mnist-large-margin")
    records = [synthetic.record(recipe.name, arm, seed, config=recipe.config(arm, seed))
               for arm in recipe.arms for seed in range(4)]
    for record in records:
        record.final["best_accuracy"] = 99.0 + 0.01 * record.seed - (
            (0.5 + 0.02 * record.seed) if record.arm == "lsoftmax_el" else 0.0)
    page_ = build_report(records)
    words = " ".join(" ".join(Reading(page_).words).split())
    assert "The one claim is contradicted." in words
    assert '<a class="pill bad" href="#verdict-contradicted">contradicted</a>' in page_
    assert '<p class="verdict contradicted">contradicted</p>' in page_
    assert "−0.53" in words
    assert "99.62 → 99.64" in words


def test_the_same_records_give_the_same_words(records):
    one, two = (Reading(build_report(records[:2], when=date(2026, 1, 2))) for _ in range(2))
    assert one.words == two.words
    assert "Made on 2026-01-02 from 2 runs" in " ".join(one.words)


def test_figures_follow_the_page_s_colours(text):
    drawn = "".join(re.findall(r'<svg class="fig" viewBox="0 0 344.*?</svg>', text, re.DOTALL))
    assert len(drawn) > 50_000
    assert set(re.findall(r"#[0-9a-fA-F]{6}", drawn)) == set()
    used = set(re.findall(r"\b[fs]-(\w+)", " ".join(re.findall(r'class="([^"]*)"', drawn))))
    assert used <= set(VARIABLES.values())
    for name in used:
        assert f".f-{name} {{ fill: var(--{name}); }}" in text
    declared = set(re.findall(r"--(\w+):", text))
    assert set(VARIABLES.values()) <= declared
    assert set(re.findall(r"var\(--(\w+)", text)) <= declared


def test_names_stay_text_wherever_they_stand():
    records = [synthetic.record(EVIL, arm, seed, outside=(EVIL,), attacks=True)
               for arm in (EVIL, "$x_1$ & 'co'", "a\x07b", "\u6c49\u5b57") for seed in range(3)]
    page_ = build_report(records)
    assert page_.count("<script") == 2  # the page's and the explorer's
    assert "alert(1)</script>" not in page_
    read = Reading(page_)
    assert EVIL in read.words  # the heading, and panel titles
    assert any(EVIL in (attributes.get("aria-label") or "") for attributes in read.all("div"))
    assert "$x_1$ & 'co'" in read.words


def test_class_names_are_shown_and_stay_text():
    found = synthetic.diagnosis()
    worst = min(range(10), key=lambda label: found["class_accuracy"][label])
    found["class_names"] = [EVIL if label == worst else f"c{label}" for label in range(10)]
    page_ = diagnosis_page(found, EVIL, [EVIL])
    assert page_.count("<script") == 2
    assert any(f"Examples of class {worst}, {EVIL}" in words for words in Reading(page_).words)


def test_what_is_missing_is_left_out():
    bare = [synthetic.record("mine", arm, seed) for arm in ("a", "b") for seed in range(2)]
    ids = Reading(build_report(bare)).ids
    assert "r1-margins" in ids
    assert not {"r1-claims", "r1-out-of-distribution-1", "r1-attacks", "r1-class-frequency", "paper"} & set(ids)
    poor = [replace(record, final={"accuracy": 90.0}, timing={}, epochs=[], diagnosis=None) for record in bare]
    read = Reading(build_report(poor))
    assert [i for i in read.ids if i.startswith("r1-")] == ["r1-arms"]
    assert "90.00" in read.words


def test_a_recipe_that_is_not_at_hand_has_arms_but_no_claims():
    words = " ".join(Reading(build_report([synthetic.record("mine", "a", 0)])).words)
    assert "No claims are known" in words
    assert "encouraging run mine.toml --seeds 1" in words
    assert "encouraging, log_end 0.5" in words


@pytest.mark.usefixtures("without_figures")
def test_the_command_repeats_exactly_these_runs():
    changed = read_recipe("digits", ["train.epochs=3", "train.lr=0.05"])
    records = [synthetic.record("digits", arm, seed, config=changed.config(arm, seed))
               for arm in ("ce", "el_1") for seed in (1, 4)]
    command = ("encouraging run digits --set train.epochs=3 --set train.lr=0.05 --arm ce --arm el_1 --seeds 1,4")
    assert command in " ".join(Reading(build_report(records)).words)
    other = read_recipe("bccd-retinanet", ["model_options.score_thresh=0.1"])
    records = [synthetic.record("bccd-retinanet", "focal", seed, config=other.config("focal", seed)) for seed in (0, 1)]
    command = "encouraging run bccd-retinanet --set model_options.score_thresh=0.1 --arm focal --seeds 2"
    assert command in " ".join(Reading(build_report(records)).words)
    odd = changed.config("ce", 0) | {"objectives": [{"loss": "curve", "curve": "focal", "gamma": 2.0}]}
    words = " ".join(Reading(build_report([synthetic.record("digits", "ce", 0, config=odd)])).words)
    assert "depart from the recipe" in words


@pytest.mark.usefixtures("without_figures")
def test_the_length_of_a_training_is_said_in_updates_where_they_end_it():
    for name, arm, words in (("coco-retinanet", "focal", "updates 90000"), ("bccd-retinanet", "focal", "epochs 120")):
        records = [synthetic.record(name, arm, 0, config=read_recipe(name).config(arm, 0))]
        assert words in " ".join(Reading(build_report(records)).words)


@pytest.mark.usefixtures("without_figures")
def test_the_paper_s_tables_stand_beside_ours():
    records = (synthetic.shipped("mnist", 3, outside=("fashion_mnist",))
               + synthetic.shipped("mnist-label-smoothing", 3, outside=("fashion_mnist",)))
    numbers = [replace(record, diagnosis=None, epochs=[]) for record in records]
    read = Reading(build_report(numbers))
    words = " ".join(read.words)
    rows = {cells[0]: cells for cells in read.cells if len(cells) > 5}
    ours = [r.final["energy"]["rival_zeroed"] for r in records if r.key[:2] == ("mnist", "el")]
    row = next(cells for cells in read.cells if cells[:1] == ["encouraging loss, LE 1"] and "−131.6" in cells)
    assert f"{show(statistics.fmean(ours))} ± {show(statistics.stdev(ours))}" in row
    assert "cross-entropy, smoothed" in rows
    for number in ("0.009", "−5.85", "97.10", "20.92", "0.98"):
        assert any(number in cells for cells in read.cells), number
    assert "could not be confirmed" in words
    assert "contradicts itself" in words
    assert {"r1", "r2", "paper"} <= set(read.ids)


def test_a_single_model_has_its_page():
    found = synthetic.diagnosis(outside=("svhn", "kmnist"), shots=True)
    read = Reading(diagnosis_page(found, "logits.npz", ["Read from here."]))
    expected = {"margins", "energy", "calibration", "out-of-distribution-1", "out-of-distribution-2",
                "class-frequency", "gradient-mass", "explorer"}
    assert expected <= set(read.ids)
    assert not {"reproduce", "r1"} & set(read.ids)
    assert "Read from here." in read.words
    assert f"{found['accuracy']:.2f}%" in " ".join(read.words)
    bins = found["calibration"]["bins"]
    confidence = sum(row["count"] * row["confidence"] for row in bins if row["count"]) / found["examples"]
    assert f"with a mean confidence of {100 * confidence:.2f}%" in " ".join(read.words)
    for classes in (2, 100):
        assert diagnosis_page(synthetic.diagnosis(classes=classes), "x").startswith("<!doctype html>")


def test_masked_classes_leave_a_page():
    import torch

    from encouraging.metrics import Reader

    reader = Reader(3)
    logits = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    logits[:, 2] = -torch.inf
    reader.update(logits, torch.zeros(40, dtype=torch.int64))
    assert "Margins" in Reading(diagnosis_page(reader.diagnosis(), "masked")).words


@pytest.mark.parametrize(("width", "scheme"), [(380, "light"), (1200, "light"), (1200, "dark")])
def test_it_is_at_home_in_a_browser(open_page, text, tmp_path, width, scheme):
    path = tmp_path / "report.html"
    path.write_text(text)
    shown = open_page(path, viewport=(width, 900), color_scheme=scheme)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = shown.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (paper, ink)]
    assert (bright[0] > bright[1]) == (scheme == "light")
    spilled = """[...document.querySelectorAll('.panel, .claim, .legend, figcaption')]
                 .filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"""
    assert shown.evaluate(spilled) == 0
    drawn = "[...document.querySelectorAll('figure svg')].every(s => s.getBoundingClientRect().width > 20)"
    assert shown.evaluate(drawn)


def test_hostile_names_do_nothing_in_a_browser(open_page, tmp_path):
    path = tmp_path / "report.html"
    long = "an_arm_whose_name_goes_on_" * 6
    path.write_text(build_report([synthetic.record(EVIL, arm, seed) for arm in (EVIL, long) for seed in range(2)]))
    shown = open_page(path, viewport=(380, 800))
    shown.on("dialog", lambda dialog: pytest.fail("a script ran"))
    assert shown.evaluate("document.documentElement.scrollWidth") <= 380
    assert shown.inner_text("h1") == EVIL


def test_it_prints(open_page, text, tmp_path):
    (tmp_path / "report.html").write_text(text)
    shown = open_page(Path(tmp_path / "report.html"), color_scheme="dark")
    shown.emulate_media(media="print")
    assert shown.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(26, 26, 26)"
    assert shown.pdf(format="A4")[:4] == b"%PDF"


def test_a_sheet_of_a4_has_the_tables_of_a_screen_and_cuts_nothing_off(open_page, text, tmp_path):
    (tmp_path / "report.html").write_text(text)
    shown = open_page(Path(tmp_path / "report.html"), viewport=(718, 1047))  # A4 less Chromium's margins
    assert shown.evaluate("getComputedStyle(document.querySelector('.board')).display") == "block"
    shown.emulate_media(media="print")
    assert shown.evaluate("getComputedStyle(document.querySelector('.board')).display") == "table"
    parts = "[...document.querySelectorAll('main, main table, main pre, main p')]"
    assert shown.evaluate(f"{parts}.filter(e => e.scrollWidth > innerWidth).map(e => e.outerHTML.slice(0, 90))") == []


def test_what_stands_between_backticks_is_shown_as_code_everywhere():
    page = build_report(synthetic.shipped("mnist"))
    assert "<code>encouraging list</code> names them." in page
    mark = "run `a < b` first"
    section = Section("s", "Title", lead=[mark], tables=[Table(mark, ["x"], [[Cell("1")]])], notes=[mark])
    filled = fill_template(title="t", kicker="k", made="m", explorer=Markup(""), warnings=[mark], lead=[mark],
                           notes=[mark], sections=[section])
    assert filled.count("run <code>a &lt; b</code> first") == 6
    for html in (page, filled, build_report(synthetic.shipped("mnist-attack"))):
        read = PageText(html)
        assert "`" not in " ".join([*read.words, *(cell for row in read.cells for cell in row)])
