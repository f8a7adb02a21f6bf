"""The report as one HTML page that needs no other files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from ..engine.outputs import write_output
from ..engine.records import Record
from ..errors import RunError
from ..recipes import Recipe
from .chapters import Chapter, chapters_of, in_words
from .explorer.section import explorer
from .numbers import listed, plural
from .sections import paper
from .sections.claims import overall
from .sections.costs import costs


def build_report(records: Iterable[Record], recipes: Mapping[str, Recipe] | None = None, *,
                 when: date | None = None) -> str:
    """The page of these runs. Recipes that come with the package are found by name; others may be given."""
    chapters = chapters_of(records, recipes)
    with in_words("these runs"):
        return _render(chapters, when)


def write_report(records: Iterable[Record], out: Path, recipes: Mapping[str, Recipe] | None = None, *,
                 figures: Path | None = None) -> list[Path]:
    """Write the page and, where ``figures`` is given, every figure as .svg and .png; the paths of all files.

    Raises:
        RunError: there is no finished run, a record cannot be shown, or a file cannot be written.
    """
    chapters = chapters_of(records, recipes)
    if not chapters:
        raise RunError("no finished run was found; a run is finished when its folder has a final.json.")
    if out.is_dir():
        raise RunError(f"{out}: expected the name of a page to write, and this is a folder.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with in_words("these runs"):
            text = _render(chapters)
        write_output(out, text.encode(errors="replace"))
        written = [out]
        for chapter in chapters if figures else ():
            assert figures is not None
            folder = figures / slug(chapter.group.name) if len(chapters) > 1 else figures
            folder.mkdir(parents=True, exist_ok=True)
            written += [path for picture in chapter.pictures for path in picture.save(folder)]
    except OSError as error:
        raise RunError(f"{out}: the report cannot be written ({error}).") from error
    return written


def _render(chapters: Sequence[Chapter], when: date | None = None) -> str:
    one = len(chapters) == 1
    groups = [chapter.group for chapter in chapters]
    title = listed([group.name for group in groups])
    runs = sum(len(group.records) for group in groups)
    return fill_template(
        title=title if one or len(title) < 60 else plural(len(chapters), "recipe"), kicker="encouraging · report",
        lead=[] if one else [_overall(chapters)], chapters=chapters, sections=[], paper=paper.section(groups),
        costs=costs(groups), explorer=explorer(),
        made=f"Made on {(when or date.today()).isoformat()} from {plural(runs, 'run')} with encouraging {__version__}.")


def _overall(chapters: Sequence[Chapter]) -> str:
    rows = [row for chapter in chapters if chapter.claims for row in chapter.claims.rows]
    return overall(rows) if rows else f"{plural(len(chapters), 'recipe')}, without claims."


def slug(name: str) -> str:
    """A name fit for a folder.

    >>> slug("a/../<b>")
    'a-..-b'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "recipe"


def fill_template(**content: Any) -> str:
    """The HTML of a report or of a diagnosis; all content is escaped."""
    pages = Environment(loader=PackageLoader("encouraging.report", "."), autoescape=True, undefined=StrictUndefined,
                        trim_blocks=True, lstrip_blocks=True)
    text: str = pages.get_template("page.html.j2").render(**content)
    return text
