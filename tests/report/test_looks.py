"""Colours of arms: one per line of a figure, and the same in every figure of a recipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import synthetic_runs as synthetic
from encouraging.recipes import read_recipe, read_runs
from encouraging.report.drawing import style
from encouraging.report.drawing.style import BLACK, COLOURS, DASHES, PAPER, RAMP, VARIABLES
from encouraging.report.looks import choose_looks, drawn_groups
from encouraging.report.markdown_figure import with_figures
from encouraging.report.sections import by_setting

RATES = "cifar100-learning-rate-quick"
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def records():
    """Every arm of the recipe, of which there are more than colours."""
    recipe = read_recipe(RATES)
    return [synthetic.record(RATES, arm, seed, 2.0 + place, config=recipe.config(arm, seed), examples=100)
            for place, arm in enumerate(recipe.arms) for seed in range(3)]


@pytest.fixture(scope="module")
def group(records):
    group, = drawn_groups(records, {RATES: read_recipe(RATES)})
    return group


def test_every_line_of_a_figure_has_a_colour_of_its_own(group):
    sections = by_setting.sections(group)
    assert {section.title for section in sections} == {"What lr changes", "What log_end changes"}
    for section in sections:
        for picture in section.pictures:
            colours = [key.colour for key in picture.keys]
            assert len(colours) > 4
            assert len(set(colours)) == len(colours)


def test_black_belongs_to_the_baseline_alone(group):
    assert [arm.name for arm in group.arms if arm.colour == BLACK] == ["ce"]
    assert len({(arm.colour, arm.dashes) for arm in group.arms}) == len(group.arms)


def test_the_baseline_is_the_arm_with_cross_entropy_wherever_it_stands():
    config = {"recipe": "mine", "seed": 0, "task": "image", "data": "mine", "model": "mine", "options": {}, "train": []}
    runs = [synthetic.record("mine", arm, 0, config={**config, "arm": arm, "objectives": [{"curve": curve}]})
            for arm, curve in (("mine", "encouraging"), ("plain", "cross_entropy"))]
    group, = drawn_groups(runs, {})
    assert [arm.name for arm in group.arms if arm.colour == BLACK] == ["plain"]


def test_an_arm_has_one_colour_on_the_page_and_in_markdown(records, group):
    marker = f"<!-- figure: {RATES} over train.lr: best_accuracy -->\n<!-- end of figure -->\n"
    _, pictures = with_figures(marker, records, "page.md")
    drawn = set(re.findall(r"#[0-9a-f]{6}", next(iter(pictures.values())).decode()))
    colours = {arm.name: arm.colour for arm in group.arms}
    lr = next(section for section in by_setting.sections(group) if section.title == "What lr changes")
    for key in lr.pictures[0].keys:
        assert key.colour == colours[key.label]
        assert key.colour.lower() in drawn


def test_the_arms_that_are_shown_at_first_differ_in_colour(group):
    assert len({arm.colour for arm in group.picked}) == len(group.picked) == 6


def test_with_more_lines_than_colours_the_dashes_differ():
    names = [str(number) for number in range(25)]
    looks = choose_looks(names, [names])
    assert len(set(looks.values())) == 25 == 1 + (len(COLOURS) - 1) * len(DASHES)
    assert [name for name, (colour, _) in looks.items() if colour == BLACK] == ["0"]


@pytest.mark.parametrize("name", ["cifar100-learning-rate-quick", "mnist-initialisation", "mnist-attack"])
def test_recorded_runs_have_a_look_per_arm(name):
    group, = drawn_groups(read_runs(RESULTS / name), {name: read_recipe(name)})
    assert len({(arm.colour, arm.dashes) for arm in group.arms}) == len(group.arms)
    assert [arm.name for arm in group.arms if arm.colour == BLACK] == [group.arms[0].name]


def contrast(one: str, other: str) -> float:
    """The ratio by which WCAG measures how well one colour is seen on another."""
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_every_line_is_seen_on_its_paper():
    """WCAG asks for a contrast of 3 for what a picture needs to be understood."""
    for colour in (*COLOURS, *RAMP):
        assert contrast(colour, PAPER) >= 3, colour
    rules = re.findall(r":root \{(.*?)\}", (Path(style.__file__).parents[1] / "page.css").read_text(), re.DOTALL)
    light, dark = ({name: f"#{code}" if len(code) == 6 else "#" + "".join(2 * c for c in code)
                    for name, code in re.findall(r"--(\w+): #(\w+);", rule)} for rule in rules)
    for scheme in (light, dark):
        for colour in COLOURS:
            assert contrast(scheme[VARIABLES[colour]], scheme["paper"]) >= 3, (colour, scheme["paper"])
    assert {name: code.lower() for code, name in VARIABLES.items()}.items() <= light.items()
