"""Lean figures: shorter paths go where the long ones went, and nothing that can be seen is lost."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encouraging.report.drawing.panels import Panel, inline
from encouraging.report.drawing.paths import Box, circle_radius, shifted, shorter
from encouraging.report.drawing.style import BLACK, BLUE, VARIABLES
from encouraging.report.drawing.svg import number

POINT = st.tuples(st.floats(-400, 400), st.floats(-400, 400))


def long_form(points, closed=False):
    return "M " + " L ".join(f"{x:.6f} {y:.6f}" for x, y in points) + (" z" if closed else "")


def walk(d):
    """Where a short path goes."""
    places, x, y = [], 0.0, 0.0
    for letter, body in re.findall(r"([MhvlzH V])([^A-Za-z]*)", d):
        numbers = [float(n) for n in re.findall(r"-?\d*\.?\d+", body)]
        if letter == "M":
            x, y = numbers
            places.append((x, y))
        elif letter == "h":
            x += numbers[0]
            places.append((x, y))
        elif letter == "v":
            y += numbers[0]
            places.append((x, y))
        elif letter == "l":
            for dx, dy in zip(numbers[::2], numbers[1::2], strict=True):
                x, y = x + dx, y + dy
                places.append((x, y))
    return places


def distance(point, start, end):
    """From a point to a line between two others."""
    (px, py), (ax, ay), (bx, by) = point, start, end
    length = (bx - ax) ** 2 + (by - ay) ** 2
    share = 0.0 if not length else max(0.0, min(1.0, ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length))
    return ((px - ax - share * (bx - ax)) ** 2 + (py - ay - share * (by - ay)) ** 2) ** 0.5


@given(st.lists(POINT, min_size=2, max_size=30))
def test_a_short_path_passes_every_point_of_the_long_one(points):
    short, _ = shorter(long_form(points))
    places = walk(short)
    for end, point in ((places[0], points[0]), (places[-1], points[-1])):
        assert end == pytest.approx(point, abs=0.06)
    lines = list(pairwise(places)) or [(places[0], places[0])]
    for point in points:
        assert min(distance(point, *line) for line in lines) < 0.09
    for place in places:
        assert min(distance(place, point, point) for point in points) < 0.09
    assert len(short) <= len(long_form(points))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200)), min_size=3, max_size=10))
def test_a_histogram_keeps_its_steps(points):
    stairs = [corner for (x, y), (x2, _) in pairwise(points) for corner in ((x, y), (x2, y))]
    short, _ = shorter(long_form(stairs, closed=True))
    assert short.endswith("z")
    for point in stairs:
        lines = list(pairwise(walk(short))) or [(walk(short)[0],) * 2]
        assert min(distance(point, *line) for line in lines) < 0.09


@given(st.lists(POINT, min_size=2, max_size=8), st.floats(-50, 50), st.floats(-50, 50))
def test_a_shifted_path_is_the_path_shifted(points, dx, dy):
    moved = walk(shorter(shifted(long_form(points), dx, dy))[0])
    direct = walk(shorter(long_form([(x + dx, y + dy) for x, y in points]))[0])
    assert moved[0] == pytest.approx(direct[0], abs=0.11)
    assert moved[-1] == pytest.approx(direct[-1], abs=0.11)


@given(st.lists(POINT, min_size=2, max_size=8))
def test_a_clip_stays_where_it_cuts_something_off(points):
    box = Box(-100, -100, 100, 100)
    outside = any(abs(x) > 100.6 or abs(y) > 100.6 for x, y in points)
    assert shorter(long_form(points), box)[1] == (not outside)


def test_only_circles_are_circles():
    circle = "M 0 3.75 C 1 3.75 2 3.3 2.6 2.6 " + "C 3 1 3 0 3 0 " * 7 + "z"
    assert circle_radius(circle) == 3.75
    assert circle_radius("M 0 4.5 L 0 -4.5") is None
    assert circle_radius("M 1 3 C 1 1 1 1 1 1") is None


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (-0.001, "0"), (0.55, ".55"), (-0.5, "-.5"), (10.0, "10"),
                                             (99.96, "100"), (123.45, "123.5"), (0.999, "1")])
def test_numbers_are_as_short_as_they_can_be(value, text):
    assert number(value) == text


def test_a_panel_keeps_its_lines_markers_words_and_colours():
    def draw(axes):
        axes.plot([0, 1, 2], [0, 1, 0], color=BLUE, marker="o", ls="--")
        axes.fill_between([0, 1, 2], [0, 0, 0], [1, 2, 1], color=BLUE, alpha=0.2, lw=0)
        axes.plot([0.5, 1.5], [0.5, 0.5], "|", color=BLACK)
        axes.annotate("a <b> & c", (1, 0.5), fontweight="bold", fontsize=14)
        axes.set_ylim(0, 0.9)
    svg = inline(Panel(draw, "", "an axis", "another"))
    root = ET.fromstring(str(svg))
    kinds = [node.tag for node in root.iter()]
    assert kinds.count("circle") == 3
    words = [node.text for node in root.iter("text")]
    assert {"an axis", "another", "a <b> & c"} <= set(words)
    assert any("stroke-dasharray" in node.attrib for node in root.iter("path"))
    assert any(node.attrib.get("fill-opacity") == ".2" for node in root.iter("path"))
    big = next(node for node in root.iter("text") if node.text == "a <b> & c")
    assert big.attrib["font-size"] == "14"
    assert "b" in big.attrib["class"].split()
    clips = {node.attrib["id"] for node in root.iter("clipPath")}
    assert {node.attrib["clip-path"][5:-1] for node in root.iter() if "clip-path" in node.attrib} == clips != set()
    names = {name[2:] for node in root.iter() for name in node.attrib.get("class", "").split() if name[1:2] == "-"}
    assert names <= set(VARIABLES.values())
    assert "style" not in str(svg)


def test_no_two_figures_share_a_name():
    def draw(axes):
        axes.plot([0, 1], [0, 5])
        axes.set_ylim(0, 1)
    names = [re.findall(r'id="(\w+)"', str(inline(Panel(draw)))) for _ in range(3)]
    assert len({name for found in names for name in found}) == sum(map(len, names)) > 0
