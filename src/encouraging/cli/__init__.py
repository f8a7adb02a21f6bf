"""The words and flags of the command line; what the commands do is in :mod:`encouraging.commands`.

A command's module is imported when the command runs, so that ``--help`` and ``--version`` answer without importing
torch. ``--help`` lists the commands in the order in which they are imported here, those about the losses by themselves
last: most readers come for experiments and diagnoses.
"""

from ._app import app, main
from ._losses import bench, curves
from ._runs import attack, doctor, generate, list_, ood, run, translate
from ._verdicts import collect, compare, diagnose, report, results

__all__ = [
    "app", "attack", "bench", "collect", "compare", "curves", "diagnose", "doctor", "generate", "list_", "main", "ood",
    "report", "results", "run", "translate",
]
