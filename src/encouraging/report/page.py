"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from ..engine.files import write_whole
from ..engine.records import Record
from ..errors import RunError
from ..recipes import Recipe, names, read_recipe
from .again import commands, loss_words, machines, setting
from .arms import Arm, Group, groups_of, listed, metric, plural, show, single, weakest
from .drawing import Picture
from .explorer import explorer
from .sections import Cell, Section, Table, arms_section, beside_paper, knowledge_sections, training_section
from .verdicts import NOT_MEASURED, VERDICTS, Claims, claims_of, tally


@dataclass(frozen=True)
class Chapter:
    """All that the page says about one recipe."""

    key: str
    group: Group
    about: Sequence[str]
    summary: str
    claims: Claims | None
    sections: Sequence[Section]
    commands: Sequence[str]
    departures: Sequence[str]

    @property
    def pictures(self) -> list[Picture]:
        together = [self.claims.together] if self.claims and self.claims.together else []
        return together + [picture for section in self.sections for picture in section.pictures]


def build_report(records: Iterable[Record], recipes: Mapping[str, Recipe] | None = None, *,
                 when: date | None = None) -> str:
    """The page of these runs. Recipes that come with the package are found by name; others may be given."""
    chapters = chapters_of(records, recipes)
    with _shown("these runs"):
        return _render(chapters, when)


def write_report(records: Iterable[Record], out: Path, recipes: Mapping[str, Recipe] | None = None, *,
                 figures: Path | None = None) -> list[Path]:
    """Write the page and, where asked for, every figure alone as .svg and .png; the paths of all."""
    chapters = chapters_of(records, recipes)
    if not chapters:
        raise RunError("no finished run was found; a run is finished when its folder has a final.json.")
    if out.is_dir():
        raise RunError(f"{out}: expected the name of a page to write, and this is a folder.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _shown("these runs"):
            text = _render(chapters)
        write_whole(out, text.encode(errors="replace"))
        written = [out]
        for chapter in chapters if figures else ():
            assert figures is not None
            folder = figures / slug(chapter.group.name) if len(chapters) > 1 else figures
            folder.mkdir(parents=True, exist_ok=True)
            written += [path for picture in chapter.pictures for path in picture.save(folder)]
    except OSError as error:
        raise RunError(f"{out}: the report cannot be written ({error}).") from error
    return written


def chapters_of(records: Iterable[Record], recipes: Mapping[str, Recipe] | None = None) -> list[Chapter]:
    records = list(records)
    shipped = {name: read_recipe(name) for name in names() if any(record.place[0] == name for record in records)}
    chapters = []
    for place, group in enumerate(groups_of(records, {**shipped, **(recipes or {})}), 1):
        with _shown(group.name):
            chapters.append(_chapter(place, group))
    return chapters


@contextmanager
def _shown(name: str) -> Iterator[None]:
    """Records come from anywhere: what one of them does to a table or a drawing is said in words."""
    try:
        yield
    except RunError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunError(f"a record of {name} holds something that cannot be shown ({type(error).__name__}: {error}). "
                       "Leave out the run that is damaged; reports of single runs show which it is.") from error


def diagnosis_page(diagnosis: Mapping[str, Any], title: str, notes: Sequence[str] = ()) -> str:
    """The page of a single model, without a recipe: whatever its diagnosis holds."""
    arm = single(title, diagnosis)
    rows = [[Cell(words), Cell(show(value, digits, unit))] for words, value, digits, unit in _numbers(arm, diagnosis)]
    if low := weakest(diagnosis):
        rows.append([Cell("weakest classes"), Cell(low)])
    head = Section("numbers", "In numbers", (), (), [Table("", ["", ""], rows)])
    return _page(
        title=title, kicker="encouraging · diagnosis", lead=[_diagnosis_summary(diagnosis), *notes], chapters=[],
        sections=[head, *knowledge_sections([arm])], paper=None, machines=None, explorer=explorer(),
        made=f"Made on {date.today().isoformat()} with encouraging {__version__}.")


def _diagnosis_summary(diagnosis: Mapping[str, Any]) -> str:
    margin, calibration = diagnosis["margin"], diagnosis["calibration"]
    text = (f"Of {plural(diagnosis['examples'], 'example')} in {diagnosis['classes']} classes, "
            f"{show(diagnosis['accuracy'])}% are classified correctly. The median margin is {show(margin['median'])}, "
            f"the calibration error {show(calibration['ece'], 4)}.")
    if scaled := calibration.get("temperature"):
        text += (f" A temperature of {show(scaled['value'])} takes the calibration error from "
                 f"{show(scaled['ece_before'], 4)} to {show(scaled['ece_after'], 4)} on examples it was not fitted on.")
    return text


def _numbers(arm: Arm, diagnosis: Mapping[str, Any]) -> list[tuple[str, float, int, str]]:
    paths = ("accuracy", "nll", "ece", "margin.median", "energy.label", "energy.rival", "energy.free")
    rows = [(metric(path).words, arm.mean(path).value, metric(path).digits, metric(path).unit) for path in paths]
    return [("examples", diagnosis["examples"], 0, ""), ("classes", diagnosis["classes"], 0, ""), *rows]


def _chapter(place: int, group: Group) -> Chapter:
    claims = claims_of(group)
    recipe = group.recipe
    about = [recipe.about] if recipe and recipe.about else []
    if recipe and recipe.paper:
        about.append(f"In the paper: {recipe.paper}.")
    about.append(setting(group))
    if recipe and recipe.departs:
        about.append(f"Departs from the paper: {recipe.departs}")
    if claims is not None:
        summary = claims.summary
    elif recipe is not None:
        summary = "The recipe makes no claims; the arms stand side by side below."
    else:
        summary = "No claims are known for these runs, because their recipe is not at hand. Their arms are shown."
    lines, departures = commands(group)
    losses = {arm.name: loss_words(arm.records[0].asked) for arm in group.arms}
    sections = [arms_section(group.arms, losses), training_section(group.arms),
                *knowledge_sections(group.arms)]
    return Chapter(f"r{place}", group, about, f"{summary} {_reached(group)}".strip(), claims,
                   [section for section in sections if section], lines, departures)


def _reached(group: Group) -> str:
    """Accuracy of all arms in one sentence."""
    found = [(arm, arm.mean("accuracy")) for arm in group.arms]
    words = [f"{arm.name} {show(mean.value)}%" for arm, mean in found if mean.n]
    return f"Mean accuracy after the last epoch: {listed(words)}." if words else ""


def _render(chapters: Sequence[Chapter], when: date | None = None) -> str:
    one = len(chapters) == 1
    title = chapters[0].group.name if one else f"{listed([chapter.group.name for chapter in chapters])}"
    runs = sum(len(chapter.group.records) for chapter in chapters)
    lead = [] if one else [_overall(chapters)]
    return _page(
        title=title if one or len(title) < 60 else plural(len(chapters), "recipe"), kicker="encouraging · report",
        lead=lead, chapters=chapters, sections=[], paper=beside_paper([chapter.group for chapter in chapters]),
        machines=machines([chapter.group for chapter in chapters]), explorer=explorer(),
        made=f"Made on {(when or date.today()).isoformat()} from {plural(runs, 'run')} with encouraging {__version__}.")


def _overall(chapters: Sequence[Chapter]) -> str:
    counts = {verdict: sum(chapter.claims.count(verdict) for chapter in chapters if chapter.claims)
              for verdict in (*VERDICTS, NOT_MEASURED)}
    if not any(counts.values()):
        return f"{plural(len(chapters), 'recipe')}, without claims."
    return f"Of {plural(sum(counts.values()), 'claim')} {tally(counts)}."


def slug(name: str) -> str:
    """A name fit for a folder.

    >>> slug("a/../<b>")
    'a-..-b'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "recipe"


def _page(**content: Any) -> str:
    pages = Environment(loader=PackageLoader("encouraging.report", "."), autoescape=True, undefined=StrictUndefined,
                        trim_blocks=True, lstrip_blocks=True)
    text: str = pages.get_template("page.html.j2").render(**content)
    return text
