"""The chapters of the report: everything it says about one recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..engine.records import Record
from ..errors import RunError
from ..judge.scale_free import Gain, gains_under_attack
from ..recipes import Recipe, kept_recipes, names, read_recipe
from .arms import Arm, Group
from .board import ScoreRow
from .config_words import arm_words, setup_rows
from .drawing.panels import Picture
from .looks import drawn_groups
from .scoreboard import score_rows
from .sections import (
    arms,
    attacks,
    boxes,
    by_setting,
    calibration,
    class_frequency,
    energies,
    gains,
    gradient_mass,
    margins,
    out_of_distribution,
    sweep,
    training,
    translations,
    written,
)
from .sections.claim_words import diverged_words
from .sections.claims import Claims, claim_key, claims_of
from .sections.parts import Section
from .sections.reproduction import commands
from .verdicts import Verdict, counted


@dataclass(frozen=True)
class Chapter:
    """All that the page says about one recipe. ``facts`` are names and values of its setting."""

    key: str
    group: Group
    about: Sequence[str]
    facts: Sequence[tuple[str, str]]
    claims: Claims | None
    scores: Sequence[ScoreRow]
    sections: Sequence[Section]
    commands: Sequence[str]
    notes: Sequence[str]

    @property
    def verdicts(self) -> list[tuple[Verdict, int]]:
        """How often each verdict was given."""
        return counted([score.verdict.word for score in self.scores])

    @property
    def unconfirmed(self) -> int:
        """How many gains scale-free attacks do not confirm."""
        return sum(score.is_masked for score in self.scores)

    @property
    def picked_from(self) -> Section | None:
        """The first section with lines or panels that the reader can pick: the bar for picking is placed above it."""
        return next((section for section in self.sections for picture in section.pictures
                     if any(key.tag for key in picture.keys) or any(panel.tag for panel in picture.panels)), None)

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
    for number, group in enumerate(drawn_groups(records, {**kept_recipes(records), **shipped, **(recipes or {})}), 1):
        with in_words(group.name):
            chapters.append(_chapter(number, group))
    return chapters


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """Records may come from anywhere: errors that a damaged one causes in a table or figure become a RunError."""
    try:
        yield
    except RunError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunError(f"a record of {name} contains something that cannot be shown ({type(error).__name__}: {error}). "
                       "Remove the damaged run; reports of single runs show which it is.") from error


def model_sections(subjects: Sequence[Arm], gained: Sequence[Gain] = (),
                   claimed: Sequence[tuple[str, str]] = ()) -> list[Section]:
    """The sections that come from diagnoses, for the arms of a recipe or for one model. ``gained`` are the gains under
    attack that the recipe claims, ``claimed`` the pairs of arms that its claims compare."""
    attacked = attacks.section(subjects)
    if attacked is not None and gained:
        attacked = replace(attacked, lead=[*attacked.lead, gains.gain_words(gained)],
                           tables=[*gains.gain_table(gained), *attacked.tables])
    sections = [margins.section(subjects), energies.section(subjects), calibration.section(subjects),
                *out_of_distribution.sections(subjects), attacked, class_frequency.section(subjects),
                gradient_mass.section(subjects), translations.section(subjects, claimed), written.section(subjects),
                boxes.section(subjects)]
    return [section for section in sections if section]


def _chapter(number: int, group: Group) -> Chapter:
    key = f"r{number}"
    recipe, scores, claims = group.recipe, _scores(group, f"#r{number}-"), claims_of(group)
    if not scores:  # a sweep without the arms that the claims are about
        claims = None
    about = [recipe.about] if recipe and recipe.about else []
    if recipe is None:
        about.append("No claims are known for these runs, because their recipe was not found. Their arms are shown.")
    elif not recipe.claims:
        about.append("The recipe makes no claims; its arms are compared.")
    if recipe is not None:
        about += group.departures.sentences
    facts = setup_rows(group)
    if recipe and recipe.paper:
        facts.insert(0, ("in the paper", recipe.paper))
    if recipe and recipe.departs:
        facts.append(("departs from the paper", recipe.departs))
    if group.diverged:
        facts.append(("diverged", diverged_words([(record.arm, record.seed) for record in group.diverged])))
    lines, notes = commands(group)
    gained = gains_under_attack([score.row for score in scores], {arm.name: arm.finals for arm in group.arms})
    claimed = [(claim.arm, claim.beats) for claim in recipe.claims if claim.beats] if recipe else []
    subjects = group.readable
    losses = arm_words({arm.name: arm.records[0].config for arm in subjects})
    sections = [*sweep.sections(group), arms.section(subjects, losses, group.metrics),
                *by_setting.sections(group), training.section(subjects, group.metrics),
                *model_sections(subjects, gained, claimed)]
    return Chapter(key, group, about, facts, claims, scores, [section for section in sections if section], lines, notes)


def _scores(group: Group, prefix: str) -> list[ScoreRow]:
    """The rows of the scoreboard, each with a link to its claim. Those of a sweep's runs are left out where no claim
    was measured."""
    if group.recipe is None:
        return []
    rows = [replace(row, href=prefix + claim_key(number)) for number, row in
            enumerate(score_rows(group.recipe, [*group.records, *group.diverged]), 1)]
    swept = any(arm.swept for arm in group.arms)
    return [] if swept and not any(row.measured for row in rows) else rows
