"""A recipe with more arms than colours: the reader picks lines, and the page begins with some of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import synthetic_runs as synthetic
from encouraging.report.arms import for_picking, groups_of
from encouraging.report.looks import drawn_groups
from encouraging.report.page import build_report
from encouraging.report.sections import arms

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


def with_panels(page):
    """The arms whose panels are shown, the same in every figure that has one panel per arm."""
    figures = page.evaluate("""() => [...document.querySelectorAll(".panels")]
        .map(figure => [...figure.querySelectorAll(".panel[data-arm]")]).filter(panels => panels.length)
        .map(panels => panels.filter(panel => panel.checkVisibility()).map(panel => panel.dataset.arm))""")
    assert len(figures) > 3
    assert all(figure == figures[0] for figure in figures)
    return set(figures[0])


def pressed(page):
    return set(page.eval_on_selector_all(".picker [aria-pressed=true]", "all => all.map(e => e.dataset.arm)"))


def in_legends(page):
    return set(page.eval_on_selector_all(".legend [data-arm]",
                                         "all => all.filter(e => e.checkVisibility()).map(e => e.dataset.arm)"))


def name(page, arm):
    return page.locator(".picker [data-arm]", has_text=arm)


def test_the_first_arm_and_the_five_best_are_shown_at_first(shown):
    picked = {"arm-0", *(f"arm-{place}" for place in range(4, 9))}
    assert bright(shown) == with_panels(shown) == pressed(shown) == in_legends(shown) == picked
    assert shown.locator(".picker output").text_content() == "6 of 9 arms"


def test_rows_of_mean_energies_follow_the_choice_as_lines_do(shown):
    panel = shown.locator("[id$=energy] .panel", has_text="Mean over all examples")
    marks = panel.locator("[data-arm]")
    dim = marks.evaluate_all(DIM)
    assert len(dim) == len(ARMS)
    assert {arm for arm in dim if not dim[arm]} == pressed(shown)


def test_there_is_one_button_per_arm(shown):
    assert shown.locator(".picker [data-arm]").count() == len(ARMS)
    assert shown.locator(".legend button").count() == 0


def test_a_click_picks_an_arm_in_every_figure_of_the_recipe(shown):
    for expected in (True, False):
        name(shown, "way2").click()
        shown.mouse.move(0, 0)
        assert bright(shown) == with_panels(shown) == pressed(shown) == in_legends(shown)
        assert ("arm-2" in pressed(shown)) is expected


def test_all_none_and_back(shown):
    for button, count in (("all", len(ARMS)), ("none", 0), ("way0 and the 5 best", 6)):
        shown.locator(".picker").get_by_text(button, exact=True).click()
        shown.mouse.move(0, 0)
        assert bright(shown) == with_panels(shown) == pressed(shown) == in_legends(shown)
        assert len(pressed(shown)) == count


def test_the_last_arm_can_be_put_away(shown):
    shown.locator(".picker [data-pick=none]").click()
    name(shown, "way1").click()
    name(shown, "way1").click()
    shown.mouse.move(0, 0)
    assert bright(shown) == with_panels(shown) == pressed(shown) == set()


def test_a_pointer_over_a_name_shows_that_arm_alone_and_moves_nothing(shown):
    before, tall = bright(shown), shown.evaluate("document.body.offsetHeight")
    name(shown, "way3").hover()
    assert bright(shown) == {"arm-3"}
    assert shown.evaluate("document.body.offsetHeight") == tall
    shown.mouse.move(0, 0)
    assert bright(shown) == before


def test_the_focus_of_the_keyboard_shows_an_arm_alone(shown):
    before = bright(shown)
    shown.locator(".picker [data-pick=none]").focus()
    shown.keyboard.press("Tab")
    assert bright(shown) == {"arm-0"}
    shown.keyboard.press("Shift+Tab")
    assert bright(shown) == before


def test_without_scripts_and_on_paper_everything_is_shown(open_page, page_file, shown):
    plain = open_page(page_file, java_script_enabled=False)
    assert plain.locator(".picker").is_hidden()
    panels = plain.locator(".panel[data-arm]")
    assert panels.count() > 3 * len(ARMS)
    assert all(panel.is_visible() for panel in panels.all())
    shown.emulate_media(media="print")
    assert shown.locator(".picker").is_hidden()
    assert len(with_panels(shown)) == len(in_legends(shown)) == len(ARMS)


def test_the_bar_begins_with_the_first_figure_that_follows_it(shown):
    assert shown.eval_on_selector(".picker", "bar => bar.nextElementSibling.id") == "r1-training"


def test_the_bar_stays_in_sight_and_covers_no_heading(shown):
    shown.evaluate("location.hash = document.querySelector('[id$=class-frequency]').id")
    bar, heading = (shown.locator(place).first.bounding_box() for place in (".picker", "[id$=class-frequency] h4"))
    assert bar["y"] == pytest.approx(0, abs=1)
    assert heading["y"] >= bar["y"] + bar["height"]


def test_the_bar_is_one_row_on_a_phone(open_page, page_file):
    phone = open_page(page_file, viewport=(390, 844))
    assert phone.locator(".picker").bounding_box()["height"] < 60
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_arms_that_are_shown_at_first_have_colours_of_their_own():
    group, = drawn_groups(runs(ARMS), {})
    assert len(group.picked) == 6
    assert len({arm.colour for arm in group.picked}) == 6
    assert {arm.dashes for arm in group.picked} == {"-"}
    assert len({(arm.colour, arm.dashes) for arm in group.arms}) == len(ARMS)


def test_as_many_arms_as_colours_are_not_picked():
    page = build_report(runs(ARMS[:7]))
    assert "data-arm=" not in page
    assert '<div class="picker"' not in page


def column(page, number):
    return page.eval_on_selector_all(f".arm-board tbody tr > :nth-child({number})",
                                     "all => all.map(e => e.textContent.trim())")


def test_what_many_arms_reached_is_one_line_per_arm_with_the_best_first(shown):
    assert column(shown, 1) == list(reversed(ARMS))
    assert column(shown, 3) == [f"{50 + number}.00" for number in reversed(range(len(ARMS)))]
    assert shown.eval_on_selector(".arm-board [aria-sort]", "e => e.textContent") == "accuracy, %"
    heights = shown.eval_on_selector_all(".arm-board tbody tr", "all => all.map(e => e.offsetHeight)")
    assert max(heights) < 32


def test_a_click_on_a_head_sorts_the_arms(shown):
    heads = shown.locator(".arm-board thead th")
    heads.nth(0).get_by_role("button").click()
    assert column(shown, 1) == ARMS  # as in the recipe
    heads.nth(2).get_by_role("button").click()
    assert column(shown, 1) == list(reversed(ARMS))
    heads.nth(2).get_by_role("button").click()
    assert column(shown, 1) == ARMS
    assert heads.nth(2).get_attribute("aria-sort") == "ascending"
    errors = next(n for n, words in enumerate(heads.all_text_contents(), 1) if words == "calibration error")
    heads.nth(errors - 1).get_by_role("button").click()
    numbers = [float(text) for text in column(shown, errors)]
    assert numbers == sorted(numbers)  # lower is better


def test_figures_and_intervals_of_many_arms_are_folded_and_on_paper_they_are_not(shown, open_page, page_file):
    section = shown.locator("[id$=-arms]")
    assert section.bounding_box()["height"] < 800
    assert not section.locator(".panels").is_visible()
    section.locator("summary").click()
    assert section.locator(".panels").is_visible()
    assert section.locator("table:not(.arm-board) tbody tr").count() == len(ARMS)
    section.locator("summary").click()
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert section.locator(".panels").is_visible()
    shown.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not section.locator(".panels").is_visible()
    plain = open_page(page_file, java_script_enabled=False)
    assert column(plain, 1) == list(reversed(ARMS))


def test_the_table_of_many_arms_fits_a_phone(open_page, page_file):
    phone = open_page(page_file, viewport=(390, 844))
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    box = phone.locator(".arm-board tbody tr").first.locator("td").nth(1).bounding_box()
    assert box["x"] + box["width"] <= 390  # the number that the arms are sorted by, and its interval


def test_an_arm_without_the_number_comes_last_and_names_are_text():
    found = runs(ARMS)
    for run in found:
        if run.arm == "way8":
            del run.final["accuracy"]
    odd = [replace(run, config={**run.config, "arm": "<b>_x"}) if run.arm == "way0" else run for run in found]
    (group,) = groups_of(odd, {})
    board = arms.section(for_picking(group).shown, {}, group.metrics).board
    assert [row.key.label for row in board.rows] == [*(f"way{n}" for n in range(7, 0, -1)), "<b>_x", "way8"]
    assert board.rows[-1].cells[1] == ("–", None, "")
    page = build_report(odd)
    assert "&lt;b&gt;_<wbr>x" in page
    assert "<b>_" not in page


def test_few_arms_have_their_figure_and_their_table_at_once():
    page = build_report(runs(ARMS[:7]))
    assert '<table class="arm-board"' not in page
    assert '<details class="more"' not in page
