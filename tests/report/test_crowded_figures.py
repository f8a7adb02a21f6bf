"""Figures of many classes, and of arms of which one has far larger numbers than the others."""

from __future__ import annotations

import re

import numpy as np
import pytest

import synthetic_runs as synthetic
from encouraging.report.looks import drawn_groups
from encouraging.report.page import build_report
from encouraging.report.sections import energies, margins


def arms_of(scales, **how):
    group, = drawn_groups([synthetic.record("mine", f"arm{number}", seed, scale, **how)
                           for number, scale in enumerate(scales) for seed in range(2)], {})
    return group.arms


def drawn(panel):
    """The axes of a panel."""
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    panel.draw(axes)
    return axes


def test_energies_of_many_classes_are_drawn_in_order():
    picture = energies.picture(arms_of([3.0, 5.0], classes=30, examples=300))
    panel = picture.panels[0]
    assert panel.x == "other classes, lowest first"
    lines = [line.get_ydata() for line in drawn(panel).get_lines() if len(line.get_ydata()) > 1]
    assert len(lines) == 2
    assert all(len(line) == 29 and (np.diff(line) >= 0).all() for line in lines)
    assert "from the lowest to the highest" in picture.caption
    assert "single dip" not in picture.caption


def test_energies_of_few_classes_are_drawn_by_class():
    picture = energies.picture(arms_of([3.0, 5.0], classes=10, examples=300))
    assert picture.panels[0].x == "class"
    assert "single dip" in picture.caption


def test_one_arm_with_wide_margins_does_not_compress_the_others():
    arms = arms_of([3.0, 3.5, 4.0, 60.0], examples=300)
    picture = margins.picture(arms)
    limits = [drawn(panel).get_xlim() for panel in picture.panels[:4]]
    assert limits[0] == limits[1] == limits[2]
    assert limits[3][1] > 5 * limits[0][1]
    assert "The margins of arm3 are far wider" in picture.caption
    together = margins.picture(arms_of([3.0, 4.0, 5.0], examples=300))
    assert len({drawn(panel).get_xlim() for panel in together.panels[:3]}) == 1
    assert "far wider" not in together.caption


@pytest.mark.parametrize("median", [-15.0, -2.5, -0.5, 0.5, 2.5, 15.0])
def test_the_words_at_the_median_are_not_crossed_by_the_line_at_0(median):
    edges = np.linspace(-20, 20, 41)
    axes = drawn(margins.Panel(margins._histogram((edges, np.ones(40)), "b", median, (-20.0, 20.0), None)))
    words = axes.texts[0].get_window_extent()
    zero = axes.transData.transform((0, 0))[0]
    frame = axes.get_window_extent()
    assert not words.x0 < zero < words.x1
    assert frame.x0 <= words.x0
    assert words.x1 <= frame.x1


@pytest.mark.usefixtures("without_figures")
def test_the_note_says_which_bars_have_one_scale():
    text = re.sub(r"\s+", " ", build_report(synthetic.shipped("digits", 3, examples=200)))
    assert "Bars of one recipe and metric have the same scale" in text


def test_headings_of_the_scoreboard_are_on_one_line(open_page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(build_report(synthetic.shipped("digits", 3, examples=200)))
    bottoms = open_page(path).evaluate("""() => [...document.querySelectorAll(".board thead th")].map(head => {
        const range = document.createRange();
        range.selectNodeContents((head.querySelector("button, abbr") || head).firstChild);
        return range.getBoundingClientRect().bottom; })""")
    assert len(bottoms) > 4
    assert max(bottoms) - min(bottoms) < 1
