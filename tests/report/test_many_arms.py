"""A recipe with more arms than colours: the reader picks lines, and the page begins with some of them."""

from __future__ import annotations

import pytest

import synthetic_runs as synthetic
from encouraging.report.page import build_report

ARMS = [f"way{number}" for number in range(9)]
DIM = "all => Object.fromEntries(all.map(e => [e.dataset.arm, e.classList.contains('dim')]))"


def runs(arms):
    found = [synthetic.record("many ways", arm, seed, shots=True, examples=200) for arm in arms for seed in range(2)]
    for run in found:  # every arm has more right than the one before
        for numbers in (run.final, *run.epochs):
            numbers["accuracy"] = 50.0 + int(run.arm[3:])
    return found


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(build_report(runs(ARMS)))
    return path


@pytest.fixture
def shown(open_page, page_file):
    return open_page(page_file)


def bright(page):
    """The arms that stand out in the training curves and those that stand out in the margins by class frequency."""
    found = [page.eval_on_selector_all(f"[id$={section}] .fig [data-arm]", DIM)
             for section in ("training", "class-frequency")]
    assert found[0] == found[1]
    return {arm for arm, dim in found[0].items() if not dim}


def test_the_first_arm_and_the_five_best_stand_out(shown):
    assert bright(shown) == {"arm-0", *(f"arm-{place}" for place in range(4, 9))}


def test_a_click_picks_an_arm_in_every_figure_of_the_recipe(shown):
    button = shown.locator(".legend button", has_text="way2").first
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    shown.mouse.move(0, 0)
    assert "arm-2" in bright(shown)
    assert {b.get_attribute("aria-pressed") for b in shown.locator(".legend button", has_text="way2").all()} == {"true"}
    button.click()
    shown.mouse.move(0, 0)
    assert "arm-2" not in bright(shown)


def test_all_lines_and_back(shown):
    every = shown.locator(".legend .every").first
    every.click()
    assert len(bright(shown)) == len(ARMS)
    every.click()
    assert len(bright(shown)) == 6


def test_a_pointer_over_a_name_shows_that_arm_alone(shown):
    before = bright(shown)
    shown.locator(".legend button", has_text="way3").first.hover()
    assert bright(shown) == {"arm-3"}
    shown.mouse.move(0, 0)
    assert bright(shown) == before


def test_as_many_arms_as_colours_are_not_picked():
    assert "data-arm=" not in build_report(runs(ARMS[:7]))
