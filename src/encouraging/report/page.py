"""The report as one HTML page that needs no other files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from markupsafe import Markup

from .. import __version__
from ..engine.outputs import write_output
from ..engine.records import Record
from ..errors import ArgumentError, RunError
from ..recipes import Recipe, names, read_recipe
from ..recipes.runs import read_recipe_once
from .arms import Group
from .board import scoreboard_of
from .bonus import bonus_answer
from .chapters import Chapter, chapters_of, in_words
from .drawing.style import VARIABLES
from .explorer.section import explorer
from .numbers import plural
from .scoreboard import unmeasured_rows
from .sections import costs, paper
from .sections.reproduction import needed_data
from .tally import bars_of
from .templates import template

SWEEPS_IN_LEAD = 3
Say = Callable[[str], None]  # called with what is being done, to show progress


def _silent(words: str) -> None:
    """Shows no progress."""


def build_report(records: Iterable[Record], recipes: Mapping[str, Recipe] | None = None, *,
                 whole_paper: bool = False, when: date | None = None) -> str:
    """The page of these runs. Recipes that come with the package are found by name; others may be given.

    With ``whole_paper`` the scoreboard and the costs also list the paper's experiments that have not been run.
    """
    chapters = chapters_of(records, recipes)
    with in_words("these runs"):
        return _render(chapters, whole_paper, when)


def write_report(records: Iterable[Record], out: Path, recipes: Mapping[str, Recipe] | None = None, *,
                 figures: Path | None = None, whole_paper: bool = False, say: Say = _silent) -> list[Path]:
    """Write the page and, where ``figures`` is given, every figure as .svg and .png; returns the paths of all files.
    ``say`` is called before the figures of each recipe: drawing takes most of the time.

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
            text = _render(chapters, whole_paper, say=say)
        write_output(out, text.encode(errors="replace"))
    except OSError as error:
        raise RunError(f"{out}: the report cannot be written ({error}).") from error
    if figures is None:
        return [out]
    try:
        return [out, *_write_figures(chapters, figures, say)]
    except OSError as error:
        raise RunError(f"{figures}: the figures cannot be written ({error}). The report {out} is there.") from error


def _write_figures(chapters: Sequence[Chapter], figures: Path, say: Say) -> Iterator[Path]:
    """Write every figure as .svg and .png, in a folder per recipe if there are several."""
    for chapter in chapters:
        say(f"writing the figures of {chapter.group.name}")
        folder = figures / slug(chapter.group.name) if len(chapters) > 1 else figures
        folder.mkdir(parents=True, exist_ok=True)
        for picture in chapter.pictures:
            yield from picture.save(folder)


def _render(chapters: Sequence[Chapter], whole_paper: bool, when: date | None = None, say: Say = _silent) -> str:
    groups = [chapter.group for chapter in chapters]
    title = groups[0].name if groups else ""
    runs = sum(len(group.records) for group in groups)
    scores = [score for chapter in chapters for score in chapter.scores]
    if whole_paper:
        scores += unmeasured_rows({name: read_recipe(name) for name in names()}, [group.name for group in groups])
    board = scoreboard_of(scores, departures_said=len(chapters) == 1)
    if len(chapters) == 1:  # departures are stated once: before the verdicts or, without verdicts, in the chapter
        stated = groups[0].departures.sentences if board else []
        chapters = [replace(chapters[0], about=[words for words in chapters[0].about if words not in stated])]
    numbers = {chapter.key: number for number, chapter in enumerate(chapters, 1)}

    def begin(chapter: Chapter) -> str:
        say(f"drawing {chapter.group.name} ({numbers[chapter.key]} of {len(chapters)})")
        return ""

    return fill_template(
        begin=begin, title=title if len(chapters) == 1 else f"{plural(len(chapters), 'recipe')}, {plural(runs, 'run')}",
        kicker="encouraging · report",
        lead=[*(_departures(groups) if board or len(chapters) > 1 else []),
              *([board.answer, *bonus_answer(board.rows)] if board else []), *_sweeps(chapters)],
        bars=bars_of(board), board=board, notes=[] if whole_paper else _missing_recipes(groups),
        chapters=chapters, paper=paper.section([group for group in groups if not group.departures.settings]),
        costs=costs.section(groups, whole_paper), explorer=explorer(), needs=needed_data(groups),
        made=f"Made on {(when or date.today()).isoformat()} from {plural(runs, 'run')} with encouraging {__version__}.")


def _departures(groups: Sequence[Group]) -> list[str]:
    """Which runs do not test the claims of their recipe: before any verdict."""
    return [words if len(groups) == 1 else f"{group.name}: {words}" for group in groups if group.recipe
            for words in group.departures.sentences]


def _missing_recipes(groups: Sequence[Group]) -> list[str]:
    """A note for a page about some of the paper's experiments: how many others there are."""
    present = {group.name for group in groups if group.name in names() and read_recipe_once(group.name).paper}
    absent = [name for name in names() if name not in present and read_recipe_once(name).paper] if present else []
    are = "is" if len(absent) == 1 else "are"
    return [f"{plural(len(absent), 'other recipe')} for experiments of the paper {are} not on this page; "
            "`encouraging list` names them."] if absent else []


def _sweeps(chapters: Sequence[Chapter]) -> list[str]:
    """What the sweeps found, where there are few enough to say it at the beginning."""
    leads = [f"{section.title}: {section.lead[0]}" for chapter in chapters for section in chapter.sections
             if section.key.startswith("sweep-")]
    return leads if len(leads) <= SWEEPS_IN_LEAD else []


def slug(name: str) -> str:
    """A name fit for a folder.

    >>> slug("a/../<b>")
    'a-..-b'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "recipe"


EMPTY: Mapping[str, Any] = {"warnings": [], "bars": [], "lead": [], "answer": None, "notes": [], "board": None,
                            "chapters": [], "sections": [], "paper": None, "costs": None, "needs": [],
                            "begin": lambda chapter: ""}


def fill_template(*, title: str, kicker: str, made: str, explorer: Markup, **content: Any) -> str:
    """The HTML of a report or of a diagnosis; all content is escaped.

    Every page begins with its answer: a scoreboard (``board``) or a table (``answer``). ``warnings``, ``bars`` and
    ``lead`` come before it, ``notes`` after it; then ``chapters`` of recipes, or ``sections``. ``needs`` says what the
    commands need; ``begin`` is called with each chapter before it is drawn.
    """
    if unknown := content.keys() - EMPTY.keys():
        raise ArgumentError(f"fill_template: unknown content {', '.join(sorted(unknown))}; there are "
                            f"{', '.join(EMPTY)}.")
    return template("page.html.j2").render(
        title=title, kicker=kicker, made=made, explorer=explorer, colours=list(VARIABLES.values()),
        **{**EMPTY, **content})
