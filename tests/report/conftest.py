"""A real browser for the pages of the report: Debian's Chromium, driven by Playwright, without a network.

``open_page`` opens a page and ``page_errors`` lists what went wrong in it; a test that leaves an error there fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from encouraging.engine.records import Record
from encouraging.recipes import read_runs
from encouraging.report.board import Scoreboard
from encouraging.report.markdown_board import board_of_records

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]
LOCAL = ("file:", "data:", "about:")


class OpenPage(Protocol):
    """The type of ``open_page``."""

    def __call__(self, source: Path | str, viewport: tuple[int, int] = (1200, 800), color_scheme: str = "light",
                 **context: Any) -> Any: ...


# One a module, not one a session: while Playwright's own event loop runs, asyncio.run fails in this thread, and tests
# of other modules may need it.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, or a skip that says what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser found: none of {', '.join(BROWSERS)} is on the path")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page_errors() -> list[str]:
    """Errors of the pages that this test opened: exceptions, console errors, and requests beyond the page itself.

    A test that provokes an error on purpose looks at it here and then calls ``page_errors.clear()``.
    """
    return []


@pytest.fixture
def open_page(browser: Any, page_errors: list[str]) -> Iterator[OpenPage]:
    """``open_page(source, viewport=(1200, 800), color_scheme="light", **context)`` gives a loaded Playwright ``Page``.

    ``source`` is the ``Path`` of an HTML file or HTML text; ``context`` goes to ``browser.new_context`` (for example
    ``java_script_enabled=False``). Whatever is not a ``file:``, ``data:`` or ``about:`` address is refused and counts
    as an error, and so do exceptions and console errors: they gather in ``page_errors``, which must be empty when the
    test ends.
    """
    contexts = []

    def refuse(route: Any) -> None:
        if route.request.url.startswith(LOCAL):
            route.continue_()
        else:
            page_errors.append(f"request: {route.request.url}")
            route.abort()

    def listen(message: Any) -> None:
        if message.type == "error":
            page_errors.append(f"console: {message.text}")

    def open_page(source: Path | str, viewport: tuple[int, int] = (1200, 800), color_scheme: str = "light",
                  **context: Any) -> Any:
        width, height = viewport
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, color_scheme=color_scheme,
                                            offline=True, **context))
        page = contexts[-1].new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: page_errors.append(f"exception: {error}"))
        page.on("console", listen)
        page.route("**/*", refuse)
        if isinstance(source, Path):
            page.goto(source.resolve().as_uri())
        else:
            page.set_content(source)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert page_errors == []


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """The records of this repository."""
    return read_runs(Path(__file__).parents[2] / "results")


@pytest.fixture(scope="module")
def board(records: list[Record]) -> Scoreboard:
    found = board_of_records(records)
    assert found is not None
    return found
