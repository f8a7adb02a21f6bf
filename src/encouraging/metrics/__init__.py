"""What a classifier has learned: accuracy, margins, energies, calibration, out-of-distribution detection, accuracy by
class frequency, and which examples its loss learns from."""

from ._accuracy import accuracy, correct, excess_risk
from ._bleu import Bootstrap, bleu_of_counts, paired_bootstrap
from ._calibration import Reliability, ece, fit_temperature, reliability
from ._diagnosis import Reader, summary
from ._energy import conditional_energy, energy_profile, free_energy, minimum_energy, rival_energy, scores
from ._margin import margin
from ._ood import Detection, detection, openood_row
from ._posterior import posterior_logits
from ._readings import Readings, Unlabelled, read, read_unlabelled
from ._shots import class_accuracy, class_margin, shot_accuracy, shot_groups
from ._spread import LEVELS, mean_spread, shares, spread
from ._teaching import gradient_mass, mean_pulls, teaching

__all__ = [
    "LEVELS",
    "Bootstrap",
    "Detection",
    "Reader",
    "Readings",
    "Reliability",
    "Unlabelled",
    "accuracy",
    "bleu_of_counts",
    "class_accuracy",
    "class_margin",
    "conditional_energy",
    "correct",
    "detection",
    "ece",
    "energy_profile",
    "excess_risk",
    "fit_temperature",
    "free_energy",
    "gradient_mass",
    "margin",
    "mean_pulls",
    "mean_spread",
    "minimum_energy",
    "openood_row",
    "paired_bootstrap",
    "posterior_logits",
    "read",
    "read_unlabelled",
    "reliability",
    "rival_energy",
    "scores",
    "shares",
    "shot_accuracy",
    "shot_groups",
    "spread",
    "summary",
    "teaching",
]
