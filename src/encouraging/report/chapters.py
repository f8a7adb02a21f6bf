"""The chapters of the report: everything it says about one recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..engine.records import Record
from ..errors import RunError
from ..recipes import Recipe, kept_recipes, names, read_recipe
from .arms import Arm, Group, groups_of
from .config_words import loss_words, setup_words
from .drawing.panels import Picture
from .numbers import listed, show
from .sections import (
    arms,
    attacks,
    calibration,
    class_frequency,
    energies,
    gradient_mass,
    margins,
    out_of_distribution,
    training,
)
from .sections.claims import Claims, claims_of
from .sections.parts import Section
from .sections.reproduction import commands


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
    notes: Sequence[str]

    @property
    def pictures(self) -> list[Picture]:
        together = [self.claims.together] if self.claims and self.claims.together else []
        return together + [picture for section in self.sections for picture in section.pictures]


def chapters_of(records: Iterable[Record], recipes: Mapping[str, Recipe] | None = None) -> list[Chapter]:
    """One chapter per recipe. Recipes that come with the package are found by name; others are given, or were kept by
    their runs."""
    records = list(records)
    shipped = {name: read_recipe(name) for name in names() if any(record.recipe == name for record in records)}
    chapters = []
    for number, group in enumerate(groups_of(records, {**kept_recipes(records), **shipped, **(recipes or {})}), 1):
        with in_words(group.name):
            chapters.append(_chapter(number, group))
    return chapters


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """Records come from anywhere: whatever one of them breaks in a table or a drawing becomes an error in words."""
    try:
        yield
    except RunError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunError(f"a record of {name} contains something that cannot be shown ({type(error).__name__}: {error}). "
                       "Remove the damaged run; reports of single runs show which it is.") from error


def model_sections(subjects: Sequence[Arm]) -> list[Section]:
    """The sections that come from diagnoses, for the arms of a recipe or for one model."""
    sections = [margins.section(subjects), energies.section(subjects), calibration.section(subjects),
                *out_of_distribution.sections(subjects), attacks.section(subjects), class_frequency.section(subjects),
                gradient_mass.section(subjects)]
    return [section for section in sections if section]


def _chapter(number: int, group: Group) -> Chapter:
    claims = claims_of(group)
    recipe = group.recipe
    about = [recipe.about] if recipe and recipe.about else []
    if recipe and recipe.paper:
        about.append(f"In the paper: {recipe.paper}.")
    about.append(setup_words(group))
    if recipe and recipe.departs:
        about.append(f"Departs from the paper: {recipe.departs}")
    if claims is not None:
        summary = claims.summary
    elif recipe is not None:
        summary = "The recipe makes no claims; its arms are compared below."
    else:
        summary = "No claims are known for these runs, because their recipe was not found. Their arms are shown."
    lines, notes = commands(group)
    losses = {arm.name: loss_words(arm.records[0].config) for arm in group.arms}
    sections = [arms.section(group.arms, losses, group.metrics), training.section(group.arms, group.metrics),
                *model_sections(group.arms)]
    return Chapter(f"r{number}", group, about, f"{summary} {_reached(group)}".strip(), claims,
                   [section for section in sections if section], lines, notes)


def _reached(group: Group) -> str:
    """The primary metric of all arms in one sentence."""
    primary, chosen = group.metrics.primary, _chosen_by(group)
    means = [(arm, arm.mean(f"best_{primary.path}" if chosen else primary.path)) for arm in group.arms]
    words = [f"{arm.name} {show(mean.value, primary.digits, primary.unit)}" for arm, mean in means if mean.n]
    when = f"at the epoch of the best {chosen}" if chosen else "after the last epoch"
    return f"Mean {primary.words} {when}: {listed(words)}." if words else ""


def _chosen_by(group: Group) -> str | None:
    """What chose the epoch that all these runs conclude on; None where it is the last one."""
    last = [record.config["train"][-1] for record in group.records if record.config.get("train")]
    paths = {stage.get("monitor") if stage.get("conclude_on") == "best" else None for stage in last}
    path = paths.pop() if len(paths) == 1 else None
    return group.metrics[path].words if path and path != group.metrics.primary.path else None
