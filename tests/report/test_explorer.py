"""The explorer's numbers are the curves' own, and a reader can move it by mouse, by keyboard and on a small screen."""

from __future__ import annotations

import math

import pytest
import torch

from encouraging import curves
from encouraging.curves._curve import logit
from encouraging.report.explorer import section
from encouraging.report.explorer.section import catalogue, explorer, formula_names

CASES = [
    ("cross_entropy", {}),
    *(("normal", {"eps": eps}) for eps in (0.0, 1e-8, 1e-5, 1e-2)),
    *(("conservative", {"log_end": end}) for end in (0.0, 0.25, 0.75, 0.99)),
    *(("encouraging", {"log_end": end, "eps": 1e-5}) for end in (0.0, 0.5, 1.0)),
    *(("aggressive", {"start": start, "eps": eps}) for start in (0.0, 0.5, 0.95) for eps in (0.0, 1e-5)),
    *(("power", {"exponent": k, "weight": weight}) for k in (0.0, 0.5, 1.0, 6.0) for weight in (0.0, 1.0, 4.0)),
    *(("poly", {"epsilon": epsilon}) for epsilon in (-1.0, -0.9, 0.0, 1.0, 4.0)),
    *(("focal", {"gamma": gamma}) for gamma in (0.0, 0.5, 2.0, 5.0)),
    *(("halted_focal", {"gamma": gamma, "halt": halt}) for gamma in (0.0, 2.0, 5.0) for halt in (0.0, 0.3, 0.9, 1.0)),
]
ENTRIES = catalogue()
NAMES = list(ENTRIES)
MOVABLE = [name for name in NAMES if name in formula_names()]
ASK = """([name, params, gaps]) => [gaps.map((gap) => encouragingExplorer.value(name, params, gap)),
                                   gaps.map((gap) => encouragingExplorer.pull(name, params, gap))]"""


def host() -> str:
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>host</title>'
            f'<meta name="viewport" content="width=device-width"></head><body>{explorer()}</body></html>')


@pytest.fixture
def page(open_page):
    return open_page(host())


def drawn(page):
    """The two pictures' own lines."""
    return [page.get_attribute(f"#explorer-{kind} path.curve", "d") for kind in ("loss", "pull")]


def move(page, control, value):
    """Set a control as a reader would, and say what the section shows then."""
    return page.evaluate("""([control, value]) => {
        const find = (selector) => document.querySelector(`#explorer-${selector}`);
        find(control).value = value;
        find(control).dispatchEvent(new Event("input", { bubbles: true }));
        return { loss: find("loss path.curve").getAttribute("d"), pull: find("pull path.curve").getAttribute("d"),
                 label: find("pull").getAttribute("aria-label"), words: find("words").textContent,
                 name: find("name").textContent };
    }""", [control, str(value)])


def facts(page):
    return page.eval_on_selector_all("[data-fact]", "all => Object.fromEntries(all.map(e => [e.dataset.fact, "
                                                    "e.textContent]))")


def grid(params):
    """Gaps from -40 to 40, and both sides of every place where a curve changes its formula."""
    edges = [logit(params[key]) for key in ("log_end", "start", "halt") if key in params]
    if params.get("eps"):
        edges.append(logit(1 - params["eps"]))
    gaps = torch.linspace(-40, 40, 321, dtype=torch.float64).tolist()
    return gaps + [edge + side for edge in edges if math.isfinite(edge) for side in (-1e-6, 1e-6)]


def test_the_script_computes_what_the_curves_compute(page):
    for name, params in CASES:
        gaps = grid(params)
        value, pull = torch.tensor(page.evaluate(ASK, [name, params, gaps]), dtype=torch.float64)
        curve, gap = curves.by_name(name, **params), torch.tensor(gaps, dtype=torch.float64)
        wanted_value, wanted_pull = curve.value(gap), curve.pull(gap)
        assert ((value - wanted_value).abs() <= 1e-13 * wanted_value.abs().clamp(min=1)).all(), curve
        # Relative to itself, at any confidence: a pull of 1e-18 is a pull.
        assert ((pull - wanted_pull).abs() <= 1e-12 * wanted_pull).all(), curve


def test_small_losses_are_exact_too(page):
    gaps = [float(gap) for gap in range(0, 41, 5)]
    for name, params in (("cross_entropy", {}), ("focal", {"gamma": 2.0}), ("poly", {"epsilon": 1.0})):
        wanted = curves.by_name(name, **params).value(torch.tensor(gaps, dtype=torch.float64)).tolist()
        assert page.evaluate(ASK, [name, params, gaps])[0] == pytest.approx(wanted, rel=1e-12, abs=0)


def test_every_curve_is_offered_with_its_own_parameters(page):
    assert set(NAMES) == set(curves.names())
    assert page.eval_on_selector_all("option", "all => all.map(e => e.value)") == NAMES
    assert set(page.evaluate("encouragingExplorer.formulas")) == formula_names()
    for name in MOVABLE:
        takes = page.evaluate("name => encouragingExplorer.takes(name)", name)
        assert takes == [param.name for param in ENTRIES[name].parameters]


def test_a_curve_without_a_formula_is_drawn_from_samples_at_its_defaults(page):
    sampled = [name for name in NAMES if name not in MOVABLE]
    assert sampled
    gaps = torch.linspace(-9, 14, 231, dtype=torch.float64)
    for name in sampled:
        shown = move(page, "curve", name)
        assert shown["name"] == f"curves.{name}()"
        assert page.eval_on_selector_all("[data-param]", "all => all.filter(e => e.offsetWidth).length") == 0
        value, pull = torch.tensor(page.evaluate(ASK, [name, {}, gaps.tolist()]), dtype=torch.float64)
        curve = ENTRIES[name].factory()
        torch.testing.assert_close(value, curve.value(gaps), rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(pull, curve.pull(gaps), rtol=2e-3, atol=2e-3)


def test_a_new_curve_of_the_catalogue_needs_nothing_here(open_page, monkeypatch):
    """A curve that only the catalogue knows is offered, and drawn."""
    def halved(strength=0.5):
        return curves.custom(lambda gap: -strength * gap, lambda gap: torch.full_like(gap, strength), "halved")

    entry = ENTRIES["focal"]._replace(
        name="halved", title="half a line", group="new", factory=halved,
        parameters=(ENTRIES["focal"].parameters[0]._replace(name="strength", default=0.5),))
    monkeypatch.setattr(section, "catalogue", lambda: {**ENTRIES, "halved": entry})
    page = open_page(host())
    assert move(page, "curve", "halved")["name"] == "curves.halved()"
    assert page.inner_text("#explorer-curve optgroup:last-child option") == "half a line"
    move(page, "gap", 6)
    assert facts(page)["pull"] == "0.5"
    assert facts(page)["loss"] == "−3"


def test_only_the_sliders_of_the_curve_are_shown(page):
    visible = "all => all.filter(e => e.offsetWidth).map(e => e.dataset.param)"
    for name in MOVABLE:
        move(page, "curve", name)
        shown = page.eval_on_selector_all("[data-param]", visible)
        assert set(shown) == {param.name for param in ENTRIES[name].parameters}


def test_it_starts_at_the_defaults_and_writes_them_as_python(page):
    for name in NAMES:
        assert eval(move(page, "curve", name)["name"], {"curves": curves}) == ENTRIES[name].factory()


def test_a_slider_is_where_it_was_left_after_a_look_at_a_curve_that_ends_earlier(page):
    move(page, "log_end", 1)
    assert "log_end=0.99" in move(page, "curve", "conservative")["name"]
    assert "log_end=1," in move(page, "curve", "encouraging")["name"]


def test_every_slider_moves_its_picture_and_its_words(page):
    for name in MOVABLE:
        move(page, "curve", name)
        for param in ENTRIES[name].parameters:
            if (name, param.name) == ("encouraging", "eps"):
                move(page, "log_end", 1)
            log = param.scale == "log"
            default = math.log10(param.default) if log else param.default
            before = move(page, param.name, default)
            after = move(page, param.name, default - (1 if log else max(param.step, 0.2)))
            # The clamp lies beyond the edge of the loss's picture, where p is 1.
            still = {"loss"} if param.name == "eps" else set()
            assert {part for part in before if before[part] == after[part]} - still == set(), (name, param.name)
            move(page, param.name, default)


def test_the_sliders_have_the_ranges_of_the_catalogue(page):
    for name in MOVABLE:
        move(page, "curve", name)
        for param in ENTRIES[name].parameters:
            ends = [math.log10(end) if param.scale == "log" else end for end in (param.low, param.high)]
            shown = page.eval_on_selector(f"#explorer-{param.name}", "e => [+e.min, +e.max]")
            assert shown == pytest.approx(ends), (name, param.name)
            assert page.inner_text(f'label[for="explorer-{param.name}"]') == param.meaning


def test_the_probe_moves_the_readout_and_leaves_the_lines(page):
    before = move(page, "gap", 4), facts(page)
    after = move(page, "gap", 1.5), facts(page)
    assert [before[0][part] == after[0][part] for part in ("loss", "pull", "label")] == [True, True, False]
    assert not any(before[1][fact] == after[1][fact] for fact in before[1])


def test_the_drawn_pull_is_the_curves(page):
    """Back from pixels: the highest place of the picture, at 1, and the line at the probe."""
    dot, ce = (float(page.get_attribute(f"#explorer-pull .{kind}", "cy")) for kind in ("dot", "ce-dot"))
    ticks = page.eval_on_selector_all("#explorer-pull line.grid, #explorer-pull line.zero",
                                      "all => all.filter(e => e.getAttribute('y1') === e.getAttribute('y2'))"
                                      ".map(e => +e.getAttribute('y1'))")
    zero, half = ticks[:2]
    gap = torch.tensor(4.0, dtype=torch.float64)
    assert (zero - dot) / (zero - half) / 2 == pytest.approx(curves.encouraging().pull(gap).item())
    assert (zero - ce) / (zero - half) / 2 == pytest.approx(curves.cross_entropy().pull(gap).item())


def test_the_readout_says_how_many_times_stronger(page):
    move(page, "log_end", 1)
    move(page, "gap", 11)
    assert facts(page) == {"p": "1 − 1.7·10⁻⁵", "gap": "11.0", "loss": "−11", "pull": "1", "ce": "1.7·10⁻⁵",
                           "times": "59,900×"}
    move(page, "gap", 12)
    assert facts(page)["times"] == "1×"


def test_the_clamp_is_asked_for_only_where_it_acts(page):
    assert page.is_disabled("#explorer-eps")
    page.fill("#explorer-log_end", "1")
    assert page.is_enabled("#explorer-eps")
    page.fill("#explorer-eps", "-8")
    assert page.inner_text('output[for="explorer-eps"]') == "none"
    assert "no minimum" in page.inner_text("#explorer-words")
    page.select_option("#explorer-curve", "conservative")
    assert page.inner_text("#explorer-name") == "curves.conservative(log_end=0.99)"


def test_the_keyboard_reaches_and_moves_everything(page):
    page.focus("#explorer-curve")
    page.keyboard.press("ArrowDown")
    assert page.input_value("#explorer-curve") == "normal"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "explorer-eps"
    before = drawn(page)[1]
    page.keyboard.press("ArrowRight")
    assert page.input_value("#explorer-eps") == "-4"
    assert drawn(page)[1] != before
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "explorer-gap"
    page.keyboard.press("Home")
    assert facts(page)["gap"] == "−6.0"


def test_pointing_into_a_picture_moves_the_probe(page):
    for kind in ("loss", "pull"):
        box = page.locator(f"#explorer-{kind}").bounding_box()
        seen = []
        for share in (0.2, 0.5, 0.8):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            line = page.locator(f"#explorer-{kind} .probe").bounding_box()
            # One step of the probe is a tenth of a gap: a few pixels at most.
            assert line["x"] - box["x"] == pytest.approx(share * box["width"], abs=8)
            seen.append(float(page.input_value("#explorer-gap")))
        assert seen == sorted(set(seen))


def test_every_control_and_picture_has_a_name(page):
    unnamed = page.eval_on_selector_all("#explorer select, #explorer input",
                                        "all => all.filter(e => !e.labels.length || !e.labels[0].textContent.trim())"
                                        ".map(e => e.id)")
    assert unnamed == []
    for kind in ("loss", "pull"):
        assert page.get_attribute(f"#explorer-{kind}", "role") == "img"
        assert "curves.encouraging(log_end=0.75)" in page.get_attribute(f"#explorer-{kind}", "aria-label")
    assert page.get_attribute(".readout", "aria-live") == "polite"
    identifiers = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(identifiers) == len(set(identifiers))


def test_nothing_sticks_out_and_letters_keep_their_size_at_any_width(page):
    cut = """all => all.filter((e) => e.getBoundingClientRect().right > innerWidth ||
                               e.tagName === "DD" && e.scrollWidth > e.clientWidth).map((e) => e.textContent)"""
    for width in (1200, 768, 380, 320):
        page.set_viewport_size({"width": width, "height": 800})
        # A unit of the picture is a pixel of the page, as soon as it has been drawn anew.
        page.wait_for_function("() => [...document.querySelectorAll('#explorer svg')].every("
                               "(e) => Math.abs(e.viewBox.baseVal.width - e.clientWidth) <= 1)")
        for name, gap in (("aggressive", 14), ("halted_focal", -6)):
            move(page, "curve", name)
            move(page, "gap", gap)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.eval_on_selector_all("#explorer dd, #explorer output, #explorer svg text", cut) == []


def test_on_paper_the_picture_stays_and_the_handles_go(page):
    page.emulate_media(media="print")
    assert page.is_visible("#explorer-loss path.curve")
    assert page.is_visible(".readout")
    assert page.is_hidden("#explorer-gap")


def test_without_scripts_a_sentence_stands_in(open_page):
    page = open_page(host(), java_script_enabled=False)
    assert "scripts are switched off" in page.inner_text("#explorer")
    assert page.is_hidden("#explorer-curve")


def test_a_page_that_errs_or_calls_out_is_caught(open_page, page_errors):
    page = open_page("<!doctype html><img src='https://example.org/a.png'>"
                     "<script>console.error('oh'); missing();</script>")
    page.wait_for_timeout(50)
    kinds = {error.split(":")[0] for error in page_errors}
    page_errors.clear()
    assert kinds == {"console", "exception", "request"}


def test_the_fragment_stands_alone():
    text = explorer()
    # Inside a script element, these would end it or change how it is read.
    script = text.split("<script>")[1].split("</script>")[0]
    assert "<!--" not in script
    assert "</" not in script
    assert text.count("</script>") == 1
    addresses = text.replace("http://www.w3.org/2000/svg", "")
    assert not any(word in addresses for word in ("http:", "https:", "@import", "src=", "url(//"))
