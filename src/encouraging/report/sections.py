"""What the report says, section by section, as plain data for the template; what is missing is left out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

from . import courses, lessons, outside, plots
from .arms import Arm, Group, Mean, Metric, between, kind, mean_of, metric, plural, show, shown_metrics
from .drawing import Picture


class Cell(NamedTuple):
    """A number, or words, and smaller below it what belongs to it."""

    main: str
    small: str = ""
    words: bool = False


@dataclass(frozen=True)
class Table:
    """Words first, then numbers; ``caption`` says what they are, ``groups`` what several columns have in common."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it, in this order."""

    key: str
    title: str
    lead: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


def arms_section(arms: Sequence[Arm], losses: Mapping[str, str]) -> Section | None:
    """Every arm's loss, and its numbers with the interval of their mean."""
    metrics = shown_metrics(arms)
    if not metrics:
        return None
    rows = [[Cell(arm.name, losses.get(arm.name, "")), Cell(str(len(arm.finals))),
             *(mean_cell(arm.mean(m.path), m) for m in metrics)] for arm in arms]
    head = ["arm", "n", *(m.words + (f", {m.unit}" if m.unit else "") for m in metrics)]
    picture = courses.at_a_glance(arms, metrics) if len(arms) > 1 else None
    return Section(
        "arms", "What the arms reached",
        ["Accuracy is that of the last epoch, best accuracy that of the best test epoch. Excess risk is training minus "
         "test accuracy. Margins, energies and calibration are those of the last epoch’s model."],
        _there(picture), [Table("Mean over the seeds and, below it, the 95% t interval of the mean.", head, rows)])


def training_section(arms: Sequence[Arm]) -> Section | None:
    return _pictured(courses.training(arms), "training", "How training went")


def knowledge_sections(arms: Sequence[Arm]) -> list[Section]:
    """All that diagnoses hold, for the arms of a recipe or for one model."""
    return [section for section in (_margins(arms), _energies(arms), _calibration(arms), *_outside(arms),
                                    _attacks(arms), _shots(arms), _teaching(arms)) if section]


def _margins(arms: Sequence[Arm]) -> Section | None:
    return _pictured(plots.margins(arms), "margins", "Margins",
                     "The margin says by how much the label wins. Cross-entropy loses interest once an example is "
                     "right; a bonus goes on widening the margin.")


def _energies(arms: Sequence[Arm]) -> Section | None:
    return _pictured(plots.energies(arms), "energy", "Energies",
                     "The energy of a class is minus its logit. It should be low for the label of an example and high "
                     "for every other class.")


_FITTED = {"value": Metric("value", "temperature", 2, low=0), "ece_before": metric("ece"), "ece_after": metric("ece"),
           "nll_before": metric("nll"), "nll_after": metric("nll")}
_RATE = Metric("rate", "rate", 2, "%", 0, 100)


def _calibration(arms: Sequence[Arm]) -> Section | None:
    picture = plots.reliability(arms)
    if picture is None:
        return None
    rows = []
    for arm in arms:
        fitted = arm.of("calibration", "temperature")
        if fitted:
            rows.append([Cell(arm.name), *(mean_cell(mean_of([one[key] for one in fitted]), known) for key, known in
                         _FITTED.items())])
    table = Table("A temperature fitted on one half of the test examples and judged on the other. It divides the "
                  "logits and never changes a decision.",
                  [kind(arms), "", "before", "after", "before", "after"], rows,
                  [("", 1), ("temperature", 1), ("calibration error", 2), ("negative log-likelihood", 2)])
    return Section("calibration", "Calibration", [
        "Of the examples about which a model is 90% sure, nine in ten should be right. Larger margins make a model "
        "surer, and often too sure. One number, the temperature, can mend much of that; the table shows whether it "
        "did."], [picture], [table] if rows else [])


def _outside(arms: Sequence[Arm]) -> list[Section]:
    sections = []
    for place, name in enumerate(outside.sets(arms)):
        pictures = _there(outside.scores(arms, name, place), outside.roc(arms, name, place))
        rows = []
        for arm in arms:
            for score, words in outside.SCORES.items():
                found = arm.of("ood", name, "scores", score)
                rates = [mean_cell(mean_of([one[key] for one in found]), _RATE) for key in ("auroc", "aupr", "fpr95")]
                if found:
                    rows.append([Cell(arm.name), Cell(words, words=True), *rates])
        if not pictures and not rows:
            continue
        positive = next((side for arm in arms for side in arm.of("ood", name, "positive")), "inside")
        side = "Test examples are" if positive == "inside" else "Outside examples are"
        sections.append(Section(
            f"outside-{place + 1}", "Telling strangers apart" if name == "outside" else f"Telling {name} apart",
            ["A model should notice what it was not trained on. A score is given to every example; the question is how "
             "well it separates the two kinds. Higher AUROC and AUPR are better, lower FPR95 is better."], pictures,
            [Table(f"Detection by three scores, in percent. {side} the positive class.",
                   [kind(arms), "score", "AUROC", "AUPR", "FPR95"], rows)]))
    return sections


def _attacks(arms: Sequence[Arm]) -> Section | None:
    return _pictured(courses.attacks(arms), "attacks", "Under attack")


def _shots(arms: Sequence[Arm]) -> Section | None:
    return _pictured(lessons.shots(arms), "shots", "Frequent and rare classes")


def _teaching(arms: Sequence[Arm]) -> Section | None:
    return _pictured(lessons.teaching(arms), "teaching", "What each loss teaches",
                     "Most examples are learned early. What they still contribute to the gradient depends on the loss: "
                     "with cross-entropy it fades as 1 − p, a bonus keeps it up for longer, the focal loss turns it "
                     "down further.")


def _pictured(picture: Picture | None, key: str, title: str, *lead: str) -> Section | None:
    return Section(key, title, lead, [picture]) if picture else None


def beside_paper(groups: Sequence[Group]) -> Section | None:
    """Tables of the paper whose runs are at hand, ours beside theirs."""
    text = resources.files(__package__).joinpath("paper.toml").read_text(encoding="utf-8")
    arms = {(group.name, arm.name): arm for group in groups for arm in group.arms}
    tables, notes = [], []
    for entry in tomllib.loads(text)["tables"]:
        rows = []
        for row in entry["rows"]:
            arm = arms.get((row["recipe"], row["arm"]))
            cells = [Cell(row["words"])]
            seen = False
            for column, theirs in zip(entry["columns"], row["values"], strict=True):
                mean = arm.mean(column["metric"]) if arm else mean_of([])
                seen = seen or mean.n > 0
                cells += [Cell(theirs.replace("-", "−")), deviation_cell(mean, column["digits"])]
            if seen:
                rows.append(cells)
        if rows:
            tables.append(Table(f"{entry['title']}. {entry['caption']} Ours: mean over the seeds ± standard deviation.",
                                ["", *["paper", "ours"] * len(entry["columns"])], rows,
                                [("", 1), *((column["words"], 2) for column in entry["columns"])]))
            notes += entry.get("notes", [])
    if not tables:
        return None
    return Section("paper", "Beside the paper", ["The paper’s numbers come from its tables, ours from the runs on this "
                                                 "page."], (), tables, notes)


def mean_cell(mean: Mean, known: Metric) -> Cell:
    """A mean with its interval below, cut off where the metric itself ends."""
    low, high = max(mean.low, known.low), min(mean.high, known.high)
    return Cell(show(mean.value, known.digits), between(low, high, known.digits) if mean.n > 1 else "")


def deviation_cell(mean: Mean, digits: int) -> Cell:
    if not mean.n:
        return Cell("–")
    text = show(mean.value, digits)
    return Cell(text + (f" ± {show(mean.std, digits)}" if mean.n > 1 else ""), plural(mean.n, "seed"))


def _there(*pictures: Picture | None) -> list[Picture]:
    return [picture for picture in pictures if picture]
