"""Words and tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence


def plain_text(words: str) -> str:
    """Text of unknown origin, such as a device's name, so that Markdown and HTML show it as it is.

    >>> plain_text("a|b <img> *c* mse_softmax `d`\\n# e")
    'a\\\\|b &lt;img&gt; \\\\*c\\\\* mse_softmax \\\\`d\\\\` # e'
    """
    text = " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]|]|^[#+-])", r"\\\1", text)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # inside a word an underscore has no meaning


def table(head: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [cells(head), "|" + " --- |" * len(head)]


def cells(words: Sequence[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(words) + " |"
