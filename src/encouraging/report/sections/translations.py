"""The section of translations: the paired bootstrap between arms, and the best and the worst translations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...metrics import Bootstrap, paired_bootstrap
from ..arms import Arm
from ..numbers import between, plural, show, signed
from .parts import Cell, Section, Table

SENTENCES = 3  # per arm, at either end


def section(arms: Sequence[Arm], claimed: Sequence[tuple[str, str]] = ()) -> Section | None:
    """None where the arms did not translate anything. ``claimed`` has the names of arms that claims compare: the one
    that is said to be better first."""
    translated = [arm for arm in arms if arm.diagnosed("translation")]
    if not translated:
        return None
    tables = [table for table in (*_bootstraps(translated, claimed), *_sentences(translated)) if table]
    signatures = {str(translation.get("signature", "")) for arm in translated
                  for translation in arm.diagnosed("translation")}
    notes = [f"sacrebleu’s signature: {signature}." for signature in sorted(signatures) if signature]
    if not any(arm.diagnosed("translation", "sentences") for arm in translated):
        notes.append("Records hold no sentences, because the text belongs to the dataset: a report on the run "
                     "directories themselves shows them.")
    subject = "The verdicts above compare" if claimed else "Means over seeds compare"
    return Section("translations", "Translations", [
        f"{subject} trainings: would another seed show the difference? The paired bootstrap compares "
        "two trained models: would other sentences show it? A small p says that the two models differ on sentences "
        "like these, and nothing about the loss."], tables=tables, notes=notes)


def _bootstraps(arms: Sequence[Arm], claimed: Sequence[tuple[str, str]]) -> list[Table | None]:
    """A table per arm that others are compared with, as the claims do; an arm without a claim, with the first arm."""
    by_name = {arm.name: arm for arm in arms}
    pairs = [pair for pair in dict.fromkeys(claimed) if set(pair) <= by_name.keys()]
    compared = {name for pair in pairs for name in pair}
    pairs += [(arm.name, arms[0].name) for arm in arms[1:] if arm.name not in compared]
    return [_bootstrap(baseline, [by_name[better] for better, baseline_name in pairs if baseline_name == baseline.name])
            for baseline in arms]


def _bootstrap(baseline: Arm, others: Sequence[Arm]) -> Table | None:
    """Every arm against the baseline, seed by seed."""
    theirs = dict(_counts(baseline))
    rows: list[list[Cell]] = []
    for arm in others:
        for seed, counts in _counts(arm):
            if seed in theirs:
                bootstrap = paired_bootstrap(counts, theirs[seed])
                rows.append([Cell(arm.name), Cell(str(seed)), Cell(signed(bootstrap.difference, 2)),
                             Cell(between(bootstrap.low, bootstrap.high, 2)), Cell(_probability(bootstrap))])
    if not rows:
        return None
    sentences = plural(len(next(iter(theirs.values()))), "test sentence")
    return Table(f"BLEU of a run minus that of {baseline.name} with the same seed: sacrebleu’s paired bootstrap over "
                 f"{sentences}, 1000 draws, and the interval of 95% of the draws.",
                 ["arm", "seed", f"BLEU beside {baseline.name}", "interval", "p"], rows)


def _probability(bootstrap: Bootstrap) -> str:
    """Nothing where all draws have the same difference: sacrebleu's p is smallest for two equal translations."""
    return show(bootstrap.p, 3) if bootstrap.low < bootstrap.high else "–"


def _counts(arm: Arm) -> Iterator[tuple[int, Any]]:
    """What BLEU counts of every sentence, by seed."""
    for record in arm.records:
        translation = (record.diagnosis or {}).get("translation")
        if isinstance(translation, Mapping) and translation.get("counts"):
            yield record.seed, translation["counts"]


def _sentences(arms: Sequence[Arm]) -> list[Table]:
    """The first seed's sentences of every arm that has them."""
    tables = []
    for end, words in (("best", "closest to"), ("worst", "farthest from")):
        rows = []
        for arm in arms:
            for sentence in next(iter(arm.diagnosed("translation", "sentences", end)), [])[:SENTENCES]:
                rows.append([Cell(arm.name), Cell(show(float(sentence["chrf"]), 1)),
                             *(Cell(str(sentence[key]), words=True) for key in ("source", "said", "reference"))])
        if rows:
            tables.append(Table(f"The translations of the first seed that are {words} their references, by chrF.",
                                ["arm", "chrF", "source", "translation", "reference"], rows))
    return tables
