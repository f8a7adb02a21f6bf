"""A diagnosis in about ten lines of the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from ..report.detection_words import below_chance
from ..report.diagnosis_page import by_class, overconfidence
from ..report.numbers import plural
from ..report.sections.out_of_distribution import SCORES, UNNAMED


def overview(diagnosis: Mapping[str, Any], title: str) -> Table:
    """Subjects on the left, their numbers on the right."""
    table = Table.grid(padding=(0, 2))
    table.title = f"{escape(title)}: {plural(diagnosis['examples'], 'example')}, {diagnosis['classes']:,} classes"
    table.title_justify = "left"
    for subject, words in _lines(diagnosis):
        indent = len(words) - len(words.lstrip())  # kept in all lines of words that are wrapped
        table.add_row(f"[bold]{escape(subject)}[/]", Padding(escape(words.strip()), (0, 0, 0, indent)))
    return table


def _lines(diagnosis: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "accuracy", f"{diagnosis['accuracy']:.2f}%, negative log-likelihood {diagnosis['nll']:.4g}" + (
        f"; {words}" if (words := by_class(diagnosis)) else "")
    yield "calibration", _calibration(diagnosis)
    margin, energy = diagnosis["margin"], diagnosis["energy"]
    yield "margin", (f"median {margin['median']:.4g}, mean {margin['mean']:.4g}; {100 * margin['wrong']:.2f}% are "
                     "misclassified, with a margin of 0 or less")
    yield "energy", (f"{energy['label']['mean']:.4g} on the label, {energy['rival']['mean']:.4g} on its best rival, "
                     f"free {energy['free']['mean']:.4g} (means; lower is more confident)")
    for name, detection in diagnosis.get("ood", {}).items():
        yield ("detection" if name == UNNAMED else name,
               f"{plural(detection['examples'], 'out-of-distribution example')}, detected by")
        rates: dict[str, None] = {}
        for score, numbers in detection["scores"].items():
            line = f"AUROC {numbers['auroc']:.2f}, AUPR {numbers['aupr']:.2f}, FPR95 {numbers['fpr95']:.2f}"
            if score != "msp" or line not in rates:  # only worth a line where rounding to float32 costs something
                yield "", f"  {SCORES.get(score, score)}: {line}"
            rates[line] = None
        yield from (("", f"  {words}") for words in below_chance(detection, diagnosis["examples"]))
    if "shots" in diagnosis:
        yield "frequency", ", ".join(f"{group} {accuracy:.2f}%" for group, accuracy in diagnosis["shots"].items())
    yield from (("gradient" if number == 0 else "", words) for number, words in enumerate(_gradient(diagnosis)))


def _calibration(diagnosis: Mapping[str, Any]) -> str:
    calibration, excess = diagnosis["calibration"], overconfidence(diagnosis)
    side = "over" if excess > 0 else "under"
    words = f"ECE {calibration['ece']:.4f}, {side}confident by {100 * abs(excess):.2f} points"
    if scaled := calibration.get("temperature"):
        words += (f"; divided by the temperature {scaled['value']:.3g}, fitted on {scaled['fitted_on']:,} of the "
                  f"examples, ECE goes from {scaled['ece_before']:.4f} to {scaled['ece_after']:.4f} on the "
                  f"other {scaled['judged_on']:,}")
    return words


def _gradient(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    shares = dict(diagnosis["teaching"]["shares"])
    hard_examples = 1 - shares.pop("examples")["0.9"]
    pulls = diagnosis["teaching"].get("pulls", {})
    if pulls and not any(pulls.values()):
        yield "no loss has any gradient left on these examples"
        return
    below = [(name, percent(1 - above["0.9"])) for name, above in shares.items()]
    name, share = below[0]
    yield (f"{name} takes {share} of its gradient from examples below p = 0.9, which are {percent(hard_examples)} of "
           "all examples")
    if below[1:]:
        yield "other losses: " + "; ".join(f"{name}: {share}" for name, share in below[1:])


def percent(share: float) -> str:
    """Whole percents; shares close to 0 or 1 get more digits, so that they are not shown as 0% or 100%.

    >>> percent(0.126), percent(0.9999)
    ('13%', '99.99%')
    """
    if 0 < share < 0.01 or 0.99 < share < 1:
        return f"{100 * share:.2g}%" if share < 0.5 else f"{100 - 100 * (1 - share):.4g}%"
    return f"{100 * share:.0f}%"
