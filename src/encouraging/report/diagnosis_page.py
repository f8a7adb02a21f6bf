"""The page of a single model, without a recipe: the answers in one table, then the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Literal

from .. import __version__
from .arms import single_model
from .chapters import model_sections
from .detection_words import RECOMMENDED, below_chance, best_words, headline, score_words
from .explorer.section import explorer
from .numbers import capitalised, listed, plural, show
from .page import fill_template
from .sections.out_of_distribution import UNNAMED
from .sections.parts import Cell, Table

WEAKEST = 3


def diagnosis_page(diagnosis: Mapping[str, Any], title: str, notes: Sequence[str] = (),
                   warnings: Sequence[str] = (), first: Literal["accuracy", "ood"] = "accuracy",
                   score: str = RECOMMENDED) -> str:
    """The diagnosis of one model as HTML; warnings come before the numbers, notes after. ``first`` is the question that
    the page begins with, ``score`` the one by which detection is reported."""
    def is_later(key: str) -> bool:
        return first == "ood" and not key.startswith("out-of-distribution")

    sections = [replace(section, tables=[without_name(table) for table in section.tables]) for section in
                sorted(model_sections([single_model(title, diagnosis)]), key=lambda section: is_later(section.key))]
    keys = {section.key for section in sections}
    rows = [[Cell(name, href=f"#{key}" if key in keys else ""), Cell(value), Cell(words, words=True)]
            for name, value, words, key in sorted(_answers(diagnosis, score), key=lambda row: is_later(row[3]))]
    return fill_template(
        title=title, kicker="encouraging · diagnosis", warnings=warnings,
        lead=[*(_detection(diagnosis, score) if first == "ood" else ()), _lead(diagnosis)],
        answer=Table("", ["", "", "what it means"], rows), notes=notes, sections=sections, explorer=explorer(),
        made=f"Made on {date.today().isoformat()} with encouraging {__version__}.")


def without_name(table: Table) -> Table:
    """A table without the column that would say in every row which model this is, where other words name the rows."""
    if table.head[0] != "model" or not all(row[1].words for row in table.rows):
        return table
    return replace(table, head=table.head[1:], rows=[row[1:] for row in table.rows])


def _lead(diagnosis: Mapping[str, Any]) -> str:
    confidence = diagnosis["accuracy"] + 100 * overconfidence(diagnosis)
    return (f"{show(diagnosis['accuracy'])}% of {plural(diagnosis['examples'], 'example')} in {diagnosis['classes']:,} "
            f"classes are classified correctly, with a mean confidence of {show(confidence)}%.")


def _detection(diagnosis: Mapping[str, Any], score: str) -> Iterator[str]:
    """How well each set of new images is told apart from the test images, in a sentence."""
    for name, detection in diagnosis["ood"].items():
        chosen = headline(detection, score)
        words = (f"AUROC {show(detection['scores'][chosen]['auroc'])}%: how well {score_words(chosen)} separates "
                 f"{plural(detection['examples'], 'image')} of {name} from "
                 f"{plural(diagnosis['examples'], 'test image')}. 50% is chance, 100% is perfect.")
        remarks = (best_words(detection, chosen), *below_chance(detection, diagnosis["examples"]))
        yield " ".join(filter(None, (words, *remarks)))


def _answers(diagnosis: Mapping[str, Any], score: str) -> Iterator[tuple[str, str, str, str]]:
    """The rows of the table: the name of a number, its value, what it means, and the section that shows it."""
    margin, energy = diagnosis["margin"], diagnosis["energy"]
    classes = by_class(diagnosis)
    yield ("accuracy", f"{show(diagnosis['accuracy'])}%", f"{capitalised(classes)}." if classes else "",
           "class-frequency")
    yield ("negative log-likelihood", show(diagnosis["nll"], 3),
           "Cross-entropy on these examples: minus the logarithm of the label’s probability, on average.", "")
    yield "calibration error", show(diagnosis["calibration"]["ece"], 4), _calibration(diagnosis), "calibration"
    yield ("median margin", show(margin["median"]), "How far the label’s logit is above its best rival. "
           f"{show(100 * margin['wrong'])}% of the examples are misclassified, with a margin of 0 or less.", "margins")
    yield ("energy on the data", show(energy["label"]["mean"]), "Minus the label’s logit, on average. Its best rival "
           f"has {show(energy['rival']['mean'])}, and the free energy is {show(energy['free']['mean'])}.", "energy")
    for number, (name, detection) in enumerate(diagnosis.get("ood", {}).items(), 1):
        chosen = headline(detection, score)
        rates = detection["scores"][chosen]
        words = (f"How well {plural(detection['examples'], 'out-of-distribution example')} are told apart by "
                 f"{score_words(chosen)}; FPR95 {show(rates['fpr95'])}%.")
        remarks = (best_words(detection, chosen), *below_chance(detection, diagnosis["examples"]))
        yield ("AUROC" if name == UNNAMED else f"AUROC, {name}", f"{show(rates['auroc'])}%",
               " ".join(filter(None, (words, *remarks))), f"out-of-distribution-{number}")
    if diagnosis.get("shots"):
        groups = [f"{group} {show(accuracy)}%" for group, accuracy in diagnosis["shots"].items()]
        rare = min(diagnosis["shots"].values())
        yield ("weakest frequency group", f"{show(rare)}%", "Accuracy on classes with many, medium or few training "
               f"examples: {listed(groups)}.", "class-frequency")
    shares = diagnosis["teaching"]["shares"]
    learned = shares["examples"]["0.9"]
    contributions = [f"{show(100 * above['0.9'], 1)}% of the gradient of {name}" for name, above in shares.items()
                     if name != "examples"][:2]
    yield ("learned examples", f"{show(100 * learned, 1)}%", "The share of the examples with p above 0.9. They give "
           f"{listed(contributions)}.", "gradient-mass")


def _calibration(diagnosis: Mapping[str, Any]) -> str:
    calibration, excess = diagnosis["calibration"], overconfidence(diagnosis)
    words = (f"The model is {'over' if excess > 0 else 'under'}confident by {show(100 * abs(excess))} points on "
             "average.")
    if scaled := calibration.get("temperature"):
        words += (f" A temperature of {show(scaled['value'])} takes the error from {show(scaled['ece_before'], 4)} to "
                  f"{show(scaled['ece_after'], 4)} on examples it was not fitted on.")
    return words


def overconfidence(diagnosis: Mapping[str, Any]) -> float:
    """Mean confidence minus accuracy, over all examples."""
    bins = [row for row in diagnosis["calibration"]["bins"] if row["count"]]
    return float(sum(row["count"] * (row["confidence"] - row["accuracy"]) for row in bins) / diagnosis["examples"])


def by_class(diagnosis: Mapping[str, Any]) -> str:
    """The accuracies of a few classes, or of the weakest ones of many; nothing where all examples are right."""
    names = diagnosis.get("class_names")
    accuracies = [(value, label) for label, value in enumerate(diagnosis.get("class_accuracy", ()))
                  if value is not None]
    if len(accuracies) < 2 or diagnosis["accuracy"] == 100:
        return ""
    few = len(accuracies) <= WEAKEST
    return ("by class: " if few else "weakest classes: ") + ", ".join(
        f"{names[label] if names else label} ({value:.1f}%)"
        for value, label in (accuracies if few else sorted(accuracies)[:WEAKEST]))
