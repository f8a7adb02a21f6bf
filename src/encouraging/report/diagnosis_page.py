"""The page of a single model, without a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from .. import __version__
from ..judge.metric_book import book_of
from .arms import Arm, single_model
from .chapters import model_sections
from .explorer.section import explorer
from .numbers import plural, show
from .page import fill_template
from .sections.parts import Cell, Section, Table

WEAKEST = 3


def diagnosis_page(diagnosis: Mapping[str, Any], title: str, notes: Sequence[str] = (),
                   warnings: Sequence[str] = ()) -> str:
    """Everything that the diagnosis of one model contains, as HTML; warnings come before the numbers, notes after."""
    arm = single_model(title, diagnosis)
    rows = [[Cell(words), Cell(show(value, digits, unit))] for words, value, digits, unit in _numbers(arm, diagnosis)]
    if low := weakest(diagnosis):
        rows.append([Cell("weakest classes"), Cell(low)])
    head = Section("numbers", "In numbers", (), (), [Table("", ["", ""], rows)])
    return fill_template(
        title=title, kicker="encouraging · diagnosis", lead=[*warnings, _summary(diagnosis), *notes], chapters=[],
        sections=[head, *model_sections([arm])], paper=None, costs=None, explorer=explorer(),
        made=f"Made on {date.today().isoformat()} with encouraging {__version__}.")


def _summary(diagnosis: Mapping[str, Any]) -> str:
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
    book = book_of([])
    rows = [(book[path].words, arm.mean(path).value, book[path].digits, book[path].unit) for path in paths]
    return [("examples", diagnosis["examples"], 0, ""), ("classes", diagnosis["classes"], 0, ""), *rows]


def weakest(diagnosis: Mapping[str, Any]) -> str:
    """The classes with the lowest accuracy, where there are more than a few and not all are perfect."""
    names = diagnosis.get("class_names")
    accuracies = [(value, label) for label, value in enumerate(diagnosis.get("class_accuracy", ()))
                  if value is not None]
    if len(accuracies) <= WEAKEST or diagnosis["accuracy"] == 100:
        return ""
    return ", ".join(f"{names[label] if names else label} ({value:.1f}%)"
                     for value, label in sorted(accuracies)[:WEAKEST])
