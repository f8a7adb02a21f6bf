"""The text of a report's page: cells of its tables and all other words, without figures, explorer, script and footer.

``python tests/page_text.py PAGE.html RESULTS.md`` prints both as JSON. The files below ``tests/version_0_1_0`` were
made with it from pages of that version.
"""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "input", "link"}
LEFT_OUT = {"script", "style", "svg", "footer", "title"}


class PageText(HTMLParser):
    """``cells`` has one list per row of a table; ``words`` all other text, and what figures say to screen readers."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[list[str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self._hidden: int | None = None  # how many elements were open when one began that is left out
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in VOID:
            return
        if self._hidden is None and (tag in LEFT_OUT or attributes.get("id") == "explorer"):
            self._hidden = len(self._open)
        self._open.append(tag)
        if self._hidden is not None:
            return
        if tag == "tr":
            self.cells.append([])
        elif tag in ("td", "th", "small"):
            self.cells[-1].append("")
        elif attributes.get("role") == "img" and attributes.get("aria-label"):
            self.words.append(str(attributes["aria-label"]))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass
        if self._hidden is not None and len(self._open) <= self._hidden:
            self._hidden = None

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if self._hidden is not None or not text:
            return
        if {"td", "th"} & set(self._open):
            self.cells[-1][-1] += text
        else:
            self.words.append(text)


def markdown_cells(text: str) -> list[list[str]]:
    """The rows of the tables of a Markdown page."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|") and not line.startswith("| ---")]


if __name__ == "__main__":
    page, results = (Path(path).read_text() for path in sys.argv[1:])
    read = PageText(page)
    print(json.dumps({"report": {"cells": read.cells, "words": read.words},
                      "results": {"cells": markdown_cells(results),
                                  "words": [line for line in results.splitlines() if line and line[0] != "|"]}},
                     indent=0, ensure_ascii=False))
