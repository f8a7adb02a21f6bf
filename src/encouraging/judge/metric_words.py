"""Names for numbers that no task declares, because there are too many (attacks, scores, fitted temperatures), and the
unit in which an epoch is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine import Metric
from .attack_names import attack_words

if TYPE_CHECKING:
    from ..engine.records import Record

# What the samples of an epoch are in older records of these tasks; newer ones say it themselves.
_COUNTED_BEFORE = {"translation": "tokens", "language": "tokens"}
RATES = {"auroc": "AUROC", "aupr": "AUPR", "fpr95": "FPR95"}
_SCALED = {path: Metric(path, f"calibration error {when} temperature scaling", digits=4, better="lower", low=0, high=1)
           for path, when in (("temperature.ece_before", "before"), ("temperature.ece_after", "after"))}


def undeclared(path: str) -> Metric:
    """A metric named after its path.

    >>> undeclared("attacks.pgd_margin.0.3").words, undeclared("ood.svhn.msp.auroc").words, undeclared("mine").words
    ('accuracy under PGD of size 0.3 by margin', 'AUROC by msp, svhn', 'mine')
    >>> undeclared("temperature.ece_after").words
    'calibration error after temperature scaling'
    """
    return measured_for_all(path) or Metric(path, path.replace("_", " "), "%" if path.endswith("accuracy") else "")


def measured_for_all(path: str) -> Metric | None:
    """A number that the package itself measures, for a task of any kind: None for all others."""
    kind, *parts = path.split(".")
    if kind == "attacks" and len(parts) > 1:
        return Metric(path, f"accuracy under {attack_words(parts[0], '.'.join(parts[1:]))}", "%", low=0, high=100)
    if kind == "ood" and len(parts) > 1 and parts[-1] in RATES:
        *data, score, rate = parts
        words = f"{RATES[rate]} by {score.replace('_', ' ')}" + (f", {'.'.join(data)}" if data else "")
        return Metric(path, words, "%", better="lower" if rate == "fpr95" else "higher", low=0, high=100)
    return _SCALED.get(path)


def counted_words(record: Record) -> str:
    """What the samples of an epoch are: "samples" or, where a batch is measured in them, "tokens"."""
    return str(record.timing.get("counted") or _COUNTED_BEFORE.get(str(record.config.get("task")), "samples"))
