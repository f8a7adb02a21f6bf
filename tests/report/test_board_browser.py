"""The page with thirty recipes in a real browser: it opens at once, and a reader filters, sorts, folds and prints."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from markupsafe import Markup

import synthetic_runs as synthetic
from encouraging.report.drawing import panels
from encouraging.report.page import build_report

RECIPES, DRAWN = 30, 3
WIDTHS = (360, 800, 1400)
CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (at) => { for (; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  } return [255, 255, 255]; };
  const poor = [];
  for (const at of document.querySelectorAll("body *")) {
    if (![...at.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (at.closest("script, style, noscript, .hidden, option") || !at.getClientRects().length) continue;
    const style = getComputedStyle(at);
    const [x, y] = [light(parse(at instanceof SVGElement ? style.fill : style.color)), light(ground(at))];
    const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (ratio < 4.5) poor.push(`${at.outerHTML.slice(0, 90)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
SPILLED = """() => [...document.querySelectorAll("body *")].filter((at) => !at.closest(".scroll, pre, .hidden, svg")
  && at.getBoundingClientRect().right > innerWidth + 0.5).map((at) => at.outerHTML.slice(0, 90))"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """Thirty made-up recipes of two arms, three seeds and thirty panels each. Drawing a thousand panels would take most
    of a minute, so the figures of three recipes serve all: as many, and as large."""
    recipes, records = {}, []
    for number in range(RECIPES):
        recipe, runs = synthetic.made_up(number)
        recipes[recipe.name] = recipe
        records += runs
    drawn, draw = [], panels.inline
    per_recipe = synthetic_panels(recipes, records)
    calls = itertools.count()

    def inline(panel: panels.Panel) -> Markup:
        call = next(calls)
        if call < DRAWN * per_recipe:
            drawn.append(draw(panel))
            return drawn[-1]
        copy = drawn[call % (DRAWN * per_recipe)]
        return Markup(re.sub(r"(id=\"|url\(#)(p\d+)", rf"\g<1>\g<2>x{call}", str(copy)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "inline", inline)
        text = build_report(records, recipes)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text)
    return path


def synthetic_panels(recipes, records) -> int:
    """How many panels the page of one recipe has."""
    count = 0

    def inline(panel: panels.Panel) -> Markup:
        nonlocal count
        count += 1
        return Markup()

    first = next(iter(recipes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "inline", inline)
        build_report([record for record in records if record.recipe == first], recipes)
    return count


@pytest.fixture
def shown(open_page, page_file):
    return open_page(page_file, viewport=(1200, 900))


def visible(page):
    return page.eval_on_selector_all(".board tbody tr:not(.kind)", "all => all.filter(e => e.offsetHeight)"
                                     ".map(e => e.dataset.verdict)")


def opening(page) -> float:
    """Seconds that the page's own thread runs until it is loaded, however busy the machine is with other programs."""
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})

    def ran() -> float:
        return {one["name"]: one["value"] for one in browser.send("Performance.getMetrics")["metrics"]}["TaskDuration"]
    before = ran()
    page.reload()
    return ran() - before


def test_it_is_small_and_opens_at_once(open_page, page_file):
    assert page_file.stat().st_size < 3_000_000
    page = open_page(page_file)
    took = [opening(page) for _ in range(3)]
    assert min(took) < 1, took
    assert page.locator("details.recipe").count() == RECIPES
    assert page.locator("details.recipe[open]").count() == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_runs_over_the_edge_folded_or_not(open_page, page_file, width):
    page = open_page(page_file, viewport=(width, 900))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = e.id === 'r1'; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SPILLED) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_figure_of_a_claim_is_never_magnified(open_page, page_file, width):
    """Below the words it took the whole width of a tablet, with letters twice as large as those of the page."""
    page = open_page(page_file, viewport=(width, 900))
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = e.id === 'r1'; })")
    widths = page.eval_on_selector_all("#r1 .claim svg", "all => all.map(e => e.getBoundingClientRect().width)")
    assert widths
    assert max(widths) <= 384


def test_no_number_of_the_scoreboard_is_broken_on_paper(open_page, page_file):
    page = open_page(page_file, viewport=(794, 1123))
    page.emulate_media(media="print")
    lines = page.eval_on_selector_all(".board td[data-label=paper], .board td[data-label=ours]", """a => a.map(e => {
        const range = document.createRange(); range.selectNodeContents(e); return range.getClientRects().length; })""")
    assert set(lines) == {1}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read(open_page, page_file, scheme):
    page = open_page(page_file, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = e.id === 'r1'; })")
    page.click(".chips button >> nth=0")
    assert page.evaluate(CONTRAST) == []


def test_a_claim_of_the_scoreboard_leads_to_its_details(shown):
    link = shown.locator(".board tbody th a").nth(7)
    target = link.get_attribute("href")
    assert shown.locator(target).is_hidden()
    link.click()
    assert shown.locator(target).is_visible()
    assert shown.evaluate("hash => document.querySelector(hash).closest('details').open", target)
    assert shown.locator(f"{target} .sentence").inner_text().startswith(link.inner_text())
    box = shown.locator(target).bounding_box()
    assert -5 <= box["y"] <= 900
    shown.evaluate("document.querySelectorAll('details').forEach(e => { e.open = false; })")
    link.click()  # the same address again: no event of the browser's own
    assert shown.locator(target).is_visible()


def test_a_verdict_leads_to_its_explanation(shown):
    shown.locator(".board .verdict-cell a").first.click()
    target = shown.evaluate("location.hash")
    assert target.startswith("#verdict-")
    assert shown.locator(f"{target} dd").is_visible()
    assert len(shown.inner_text(f"{target} dd")) > 100


def test_claims_are_filtered_by_verdict_task_and_words(shown):
    every = len(visible(shown))
    chip = shown.locator('.chips [data-verdict="reproduced"]')
    chip.click()
    found = visible(shown)
    assert set(found) == {"reproduced"}
    assert len(found) == int(chip.locator("b").inner_text()) < every
    assert f"{len(found)} of {every}" in shown.inner_text(".filters output")
    shown.locator('.chips [data-verdict="contradicted"]').click()
    assert set(visible(shown)) == {"reproduced", "contradicted"}
    shown.select_option(".filters select", "image · cifar10")
    tasks = shown.eval_on_selector_all(".board tbody tr:not(.kind)", "all => all.filter(e => e.offsetHeight)"
                                       ".map(e => e.dataset.task)")
    assert set(tasks) == {"image · cifar10"}
    shown.click(".filters [type=reset]")
    assert len(visible(shown)) == every
    shown.fill(".filters input", "made-up-17 ACCURACY")
    assert len(visible(shown)) == 1
    shown.fill(".filters input", "no such claim")
    assert visible(shown) == []
    assert shown.is_visible(".nothing")


@pytest.mark.parametrize("width", [390, 1200])
def test_a_heading_without_claims_that_fit_is_hidden(open_page, tmp_path, records, width):
    path = tmp_path / "two.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "inline", lambda panel: Markup())
        path.write_text(build_report([one for one in records if one.recipe in ("mnist", "mnist-initialisation")]))
    shown = open_page(path, viewport=(width, 844))
    headings = shown.locator(".board .kind")
    assert [heading.is_visible() for heading in headings.all()] == [True, True]
    shown.click('.chips [data-verdict="reproduced"]')
    assert [heading.is_visible() for heading in headings.all()] == [True, False]
    small = "[...document.querySelectorAll('nav a, .board button, .chips button')].filter(e => e.offsetHeight)"
    assert shown.evaluate(f"{small}.filter(e => e.getBoundingClientRect().height < 24).map(e => e.outerHTML)") == []


def test_claims_are_sorted_there_back_and_as_they_were(shown):
    def column(name):
        return shown.eval_on_selector_all(".board tbody:first-of-type tr:not(.kind)",
                                          "(all, name) => all.map(e => name === 'text' ? e.cells[0].innerText"
                                          " : e.dataset[name])", name)
    before = column("text")
    button = shown.locator('.board [data-sort="clear"] button')
    button.click()
    numbers = list(map(float, column("clear")))
    assert numbers == sorted(numbers, reverse=True)
    assert shown.get_attribute('.board [data-sort="clear"]', "aria-sort") == "descending"
    button.click()
    assert list(map(float, column("clear"))) == sorted(numbers)
    button.click()
    assert column("text") == before
    assert shown.get_attribute('.board [data-sort="clear"]', "aria-sort") is None
    shown.click('.board [data-sort="verdict"] button')
    order = shown.eval_on_selector_all(".chips button", "all => all.map(e => e.dataset.verdict)")
    places = [order.index(verdict) for verdict in column("verdict")]
    assert places == sorted(places)


def test_recipes_fold_one_by_one_and_together(shown):
    first = shown.locator("#r1")
    first.locator("summary").click()
    assert shown.locator("#r1-arms").is_visible()
    assert shown.locator("#r2-arms").is_hidden()
    first.locator("summary").click()
    assert shown.locator("#r1-arms").is_hidden()
    shown.click(".fold-all")
    assert shown.locator("details.recipe[open]").count() == RECIPES
    assert shown.inner_text(".fold-all") == "Fold all"
    shown.click(".fold-all")
    assert shown.locator("details.recipe[open]").count() == 0


def test_the_keyboard_does_all_of_it(shown):
    shown.focus(".chips button >> nth=0")
    shown.keyboard.press("Space")
    assert shown.get_attribute(".chips button >> nth=0", "aria-pressed") == "true"
    for _ in range(10):
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.name") == "search":
            break
    shown.keyboard.type("made-up-4 ")
    assert len(visible(shown)) < 6
    shown.keyboard.press("Enter")  # nothing is sent anywhere
    shown.fill(".filters input", "")
    shown.focus('.board [data-sort="n"] button')
    shown.keyboard.press("Enter")
    assert shown.get_attribute('.board [data-sort="n"]', "aria-sort") == "descending"
    shown.focus(".board tbody th a >> nth=0")
    shown.keyboard.press("Enter")
    assert shown.evaluate("document.querySelectorAll('details.recipe[open]').length") == 1
    shown.focus("#r2 > summary")
    outline = shown.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    shown.keyboard.press("Enter")
    assert shown.locator("#r2-arms").is_visible()
    assert outline != "none"


def test_paper_has_everything_unfolded(shown):
    folded = shown.evaluate("document.documentElement.scrollHeight")
    shown.emulate_media(media="print")
    assert shown.evaluate("""[...document.querySelectorAll("details.recipe .fig")]
                             .every((e) => e.getBoundingClientRect().height > 10)""")
    assert shown.evaluate("document.documentElement.scrollHeight") > 5 * folded
    assert not shown.is_visible(".filters")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shown.locator("details.recipe[open]").count() == RECIPES
    shown.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown.locator("details.recipe[open]").count() == 0


def test_what_nobody_has_run_is_folded_until_it_is_looked_for(open_page, tmp_path):
    recipe, runs = synthetic.made_up(1)
    path = tmp_path / "whole.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "inline", lambda panel: Markup())
        path.write_text(build_report(runs, {recipe.name: recipe}, whole_paper=True))
    page = open_page(path)
    assert "not-measured" not in visible(page)
    button = page.locator(".board .kind button")
    assert button.get_attribute("aria-expanded") == "false"
    page.fill(".filters input", "encouraging run mnist")
    assert set(visible(page)) == {"not-measured"}
    page.click(".filters [type=reset]")
    page.wait_for_selector(".board:not(.filtered)")  # a form is empty only after its event
    assert "not-measured" not in visible(page)
    button.click()
    waiting = page.locator(".board .waiting")
    assert visible(page).count("not-measured") == waiting.count() > 12
    assert "encouraging run " in waiting.first.inner_text()
    button.click()
    page.emulate_media(media="print")
    assert visible(page).count("not-measured") == waiting.count()


def test_without_scripts_everything_is_there(open_page, page_file):
    page = open_page(page_file, java_script_enabled=False)
    assert page.locator(".filters").is_hidden()
    assert page.locator(".board tbody tr:not(.kind)").count() > RECIPES
    page.locator("#r1 > summary").click()
    assert page.locator("#r1-arms").is_visible()


def test_a_page_of_one_recipe_is_unfolded(open_page, tmp_path):
    path = Path(tmp_path / "one.html")
    recipe, runs = synthetic.made_up(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "inline", lambda panel: Markup())
        path.write_text(build_report(runs, {recipe.name: recipe}))
    page = open_page(path)
    assert page.locator("#r1-claims").is_visible()
    assert page.inner_text("h1") == recipe.name
