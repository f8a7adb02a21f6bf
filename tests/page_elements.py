"""The elements of a page of the report with their attributes, and the words that a reader of the page sees."""

from __future__ import annotations

from html.parser import HTMLParser


class Reading(HTMLParser):
    """What a browser would make of the page: its elements, and the words in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.cells: list[list[str]] = []
        self.script = self.cell = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.script = tag in ("script", "style")
        if tag == "tr":
            self.cells.append([])
        elif tag in ("td", "th", "small") and self.cells:
            self.cells[-1].append("")
            self.cell = True

    def handle_data(self, data):
        if not self.script:
            self.words.append(data)
        if self.cell:
            self.cells[-1][-1] += data.strip()

    def handle_endtag(self, tag):
        self.script = False
        self.cell = self.cell and tag not in ("td", "th", "small")

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def ids(self):
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]
