"""A sweep from the command to the page: trained, drawn over its values, with words for those who do not see it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import synthetic_runs as synthetic
from encouraging.cli import app
from encouraging.engine.records import collect
from encouraging.errors import RunError
from encouraging.recipes import read_recipe, read_runs
from encouraging.recipes.sweep import sweep_recipe
from encouraging.report.arms import groups_of
from encouraging.report.numbers import show
from encouraging.report.page import build_report, write_report
from encouraging.report.sections import sweep, sweep_verdicts
from encouraging.report.sections.sweep import positions
from page_text import PageText

ENDS = (0, 0.25, 0.5, 0.75, 0.9, 1)
QUICK = ["--set", "train.epochs=2", "--set", "train.milestones=[]", "--set", "train.schedule=constant", "--jobs", "1",
         "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    """LE over the paper's range on digits, as a user types it."""
    out = tmp_path_factory.mktemp("runs")
    done = CliRunner().invoke(app, ["run", "digits", "--sweep", f"log_end={','.join(map(str, ENDS))}", "--arm", "el_1",
                                    "--seeds", "2", "--out", str(out), *QUICK], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return out, done.output


def made_up(texts, arms=(), recipe="digits", seeds=2, **how):
    """Records of a sweep that nobody trained: the later an arm, the larger its margins."""
    swept, names = sweep_recipe(read_recipe(recipe), texts, arms)
    records = []
    for place, arm in enumerate(names):
        for seed in range(seeds):
            run = synthetic.record(recipe, arm, seed, 2.0 + place, config=swept.config(arm, seed), examples=200, **how)
            run.final["accuracy"] = 90.0 + place + 0.1 * seed
            records.append(replace(run, recipe_tree=swept.about_runs(arm)["recipe"]))
    return records


def group_of(records):
    group, = groups_of(records, {"digits": read_recipe("digits")})
    return group


def test_every_value_is_trained_beside_the_baseline(trained):
    out, printed = trained
    arms = {record.arm for record in read_runs(out)}
    assert arms == {"ce", *(f"el_1.log_end-{end:g}" for end in ENDS)}
    for arm in arms:
        assert arm in printed
    assert "not measured" not in printed


def test_every_value_has_a_verdict_in_the_terminal(trained):
    printed = trained[1]
    assert "sweep of el_1" in printed
    for end in ENDS:
        assert printed.count(f"│ log_end = {end:g} ") == 2  # what it reached, and its claim
    assert "claims that these values beat ce on accuracy: 95% interval" in " ".join(printed.split())
    assert "All 6 comparisons with ce are undecided." in printed


def test_the_page_has_the_figure_with_its_words(trained):
    text = (trained[0] / "digits" / "report.html").read_text()
    section = re.search(r'<section id="r1-sweep-1">.*?</section>', text, re.DOTALL)[0]
    alt = re.search(r'aria-label="(Accuracy over log_end[^"]*)"', section)[1]
    records = read_runs(trained[0])
    for end in ENDS:
        values = [record.final["accuracy"] for record in records if record.arm == f"el_1.log_end-{end:g}"]
        assert f"{end:g}: {show(sum(values) / len(values))}" in alt
    assert "ce has" in alt
    assert section.count('<svg class="fig"') >= 5
    assert "with ce are undecided" in section  # two seeds decide nothing
    assert all(f'<th scope="row">log_end = {end:g}' in section for end in ENDS)
    assert 'class="legend"' in section
    assert 'id="scoreboard"' not in text  # no claim was measured, so none is listed


def test_the_page_has_the_command(trained):
    words = " ".join(PageText((trained[0] / "digits" / "report.html").read_text()).words)
    assert ("encouraging run digits --sweep log_end=0,0.25,0.5,0.75,0.9,1 --arm el_1 --set train.epochs=2 --set "
            "'train.schedule=\"constant\"' --set 'train.milestones=[]' --seeds 2") in words


@pytest.mark.usefixtures("without_figures")
def test_records_keep_the_sweep(trained, tmp_path):
    collect(trained[0], tmp_path)
    assert 'id="r1-sweep-1"' in build_report(read_runs(tmp_path))


def test_finished_runs_are_not_trained_again(trained):
    done = CliRunner().invoke(app, ["run", "digits", "--sweep", "log_end=0.25,0.5", "--arm", "el_1", "--seeds", "2",
                                    "--out", str(trained[0]), *QUICK], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "6 of 6 runs were finished before" in done.output


def test_a_sweep_beside_the_recipe_s_own_runs_stays_out_of_its_figures():
    recipe = read_recipe("digits")
    own = [synthetic.record("digits", arm, seed, config=recipe.config(arm, seed), examples=200)
           for arm in ("el_05", "el_1") for seed in range(2)]
    group = group_of([*own, *made_up(["log_end=0,1"])])
    assert [arm.name for arm in group.shown] == ["ce", "el_05", "el_1"]
    alone = group_of(made_up(["log_end=0,1"]))
    assert len(alone.shown) == 3


def test_every_value_is_judged_against_the_baseline_on_the_page():
    records = made_up(["log_end=0,0.5,1"], seeds=4)
    for number, record in enumerate(records):
        record.final["accuracy"] += 0.01 * (number % 5)
    section, = sweep.sections(group_of(records))
    verdicts, means = section.tables
    assert [[cell.main for cell in row][::5] for row in verdicts.rows] == [
        [f"log_end = {end}", "holds"] for end in ("0", "0.5", "1")]
    assert "Does a value beat ce on accuracy?" in verdicts.caption
    assert section.lead[0].startswith("All 3 comparisons with ce hold. The best mean accuracy")
    assert re.search(r"log_end = 1 \(93.*?; \+3.*? against ce, interval .* to .*: holds\)", section.lead[0])
    assert [row[0].main for row in means.rows] == ["log_end = 0", "log_end = 0.5", "log_end = 1", "ce"]


def test_all_values_of_a_sweep_are_one_family():
    few, many = (sweep_verdicts.judged(group, group.arms) for group in (
        group_of(made_up([f"log_end={ends}"], seeds=4)) for ends in ("0,1", "0,0.1,0.2,0.3,0.4,1")))
    assert (len(few), len(many)) == (2, 6)
    assert max(row.comparison.level for row in many) > max(row.comparison.level for row in few)


def test_copies_of_the_baseline_are_what_is_compared_where_both_are_swept():
    section, = sweep.sections(group_of(made_up(["train.lr=0.01,0.1"], ["ce", "el_1"], seeds=3)))
    verdicts = section.tables[0]
    assert [(row[0].main, row[0].small) for row in verdicts.rows] == [
        ("el_1, lr = 0.01", "against ce, lr = 0.01"), ("el_1, lr = 0.1", "against ce, lr = 0.1")]


def test_two_keys_make_a_map_whose_frame_is_around_the_best(tmp_path):
    records = made_up(["log_end=0,1", "train.lr=0.01,0.1"], ["el_1"])
    section, = sweep.sections(group_of(records))
    picture, = section.pictures
    for pair, value in ((("0", "0.01"), "91.05"), (("0", "0.1"), "92.05"), (("1", "0.01"), "93.05"),
                        (("1", "0.1"), "94.05")):
        assert f"log_end = {pair[0]} and lr = {pair[1]} {value}" in picture.alt
    assert "ce 90.05" in picture.alt
    assert "log_end = 1 and lr = 0.1 (94.05" in section.lead[0]
    svg = next(str(svg) for _, svg in picture.parts())
    frames = re.findall(r'<path d="([^"]*)" class="s-c1"', svg)
    assert len(frames) == 1  # the best pair
    assert all(value in svg for value in ("91.05", "92.05", "93.05", "94.05"))
    assert len(picture.panels) <= sweep.MAPS
    written = write_report(records, tmp_path / "r.html", figures=tmp_path / "figures")
    assert tmp_path / "figures" / "sweep-1.svg" in written


def test_a_rate_has_a_logarithmic_axis_and_a_line_per_arm():
    section, = sweep.sections(group_of(made_up(["train.lr=0.001,0.01,0.1"], ["ce", "el_1"])))
    picture, = section.pictures
    assert [key.label for key in picture.keys] == ["ce", "el_1"]
    places, log = positions([0.001, 0.01, 0.1])
    assert log
    assert len(places) == 3
    assert positions([0.25, 0.5])[1] is False
    assert positions([True, False])[0] == {(1, "True"): 0.0, (1, "False"): 1.0}


def test_words_and_switches_can_be_swept():
    section, = sweep.sections(group_of(made_up(["match_norm=true,false"], ["el_1"])))
    assert "false: " in section.pictures[0].alt
    assert "true: " in section.pictures[0].alt
    list(section.pictures[0].parts())


def test_one_seed_and_one_value_are_drawn_too():
    section, = sweep.sections(group_of(made_up(["log_end=0.5"], ["el_1"], seeds=1)))
    assert len(list(section.pictures[0].parts())) >= 5


def test_a_recipe_of_one_s_own_keeps_claims_and_sweep():
    tree = read_recipe("digits").model_dump(mode="json", exclude_unset=True) | {"name": "mine"}
    records = [replace(record, config={**record.config, "recipe": "mine"},
                       recipe_tree={**record.recipe_tree, "name": "mine"}) for record in made_up(["log_end=0,1"])]
    page = build_report(records)
    assert tree["claims"]
    assert 'id="r1-sweep-1"' in page
    assert "encouraging run mine.toml --sweep log_end=0,1 --arm el_05" in page


@pytest.mark.parametrize("damage", [{"arm": 3}, {"values": {}}, "x", {"arm": "a", "values": 7}])
def test_a_damaged_sweep_is_an_error_in_words(damage):
    records = made_up(["log_end=0,1"])
    tree = records[-1].recipe_tree
    arms = {**tree["arms"], records[-1].arm: {**tree["arms"][records[-1].arm], "swept": damage}}
    broken = [*records[:2], *(replace(record, recipe_tree={**tree, "arms": arms}) for record in records[-2:])]
    with pytest.raises(RunError, match=r"the sweep in the record of digits, el_05\.log_end-1, cannot be read"):
        build_report(broken)
