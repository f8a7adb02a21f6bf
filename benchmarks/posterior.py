"""How well the test probabilities of finished runs are calibrated: as they are, read through the loss that each was
trained with (``metrics.posterior_logits``), and after one temperature.

    python benchmarks/posterior.py runs/shakespeare-small runs/digits --data DIR --out results/bench/posterior.json

The temperatures are fitted on a random half of the test examples; all numbers are those of the other half. Runs that
keep their test logits need no data; language models score the test text again. Means over seeds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from encouraging import __version__
from encouraging.data import Clock
from encouraging.data.windows import IGNORED, evaluation_windows
from encouraging.engine.weights import load_run_weights
from encouraging.errors import RunError
from encouraging.metrics import ece, fit_temperature, posterior_logits, read
from encouraging.recipes.trained import finished_run, run_folders
from encouraging.tasks import TaskSpec, build_task

CPU = torch.device("cpu")
FORMS = ("as it is", "read through its loss", "temperature", "both")


def test_logits(folder: Path, spec: TaskSpec, task_name: str) -> tuple[Tensor, Tensor]:
    kept = folder / "logits.safetensors"
    if kept.is_file():
        tensors = load_file(kept)
        return tensors["logits"].float(), tensors["labels"].long()
    if task_name != "language":
        raise RunError(f"{folder}: it keeps no test logits.")
    task: Any = build_task(task_name, spec)
    model = task.build()
    model.load_state_dict(load_run_weights(folder, model))
    rows = []
    with torch.no_grad():
        for inputs, labels in evaluation_windows(task.scored["test"], task.options.context, 256):
            features, weight = model.eval()(inputs)
            counted = labels != IGNORED
            rows.append((F.linear(features[counted], weight), labels[counted]))
    logits, labels = (torch.cat(column) for column in zip(*rows, strict=True))
    return logits, labels


def measured(logits: Tensor, labels: Tensor, curve: Any) -> dict[str, dict[str, float]]:
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    fitted, judged = order.chunk(2)
    posterior = posterior_logits(logits, curve)
    numbers = {}
    for form, values in zip(FORMS, (logits, posterior, logits, posterior), strict=True):
        scale = fit_temperature(values[fitted], labels[fitted]) if form in FORMS[2:] else 1.0
        scaled = values[judged].double() / scale
        numbers[form] = {"ece": ece(scaled, labels[judged]), "temperature": scale,
                         "nll": float(F.cross_entropy(scaled, labels[judged])),
                         "accuracy": float((read(scaled, labels[judged]).correct).double().mean()) * 100}
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--data", help="the data directory, for language models")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    args = parser.parse_args()
    by_arm: dict[tuple[str, str], list[dict[str, dict[str, float]]]] = {}
    curves: dict[tuple[str, str], str] = {}
    for folder in run_folders(args.runs):
        recipe, arm, _, spec = finished_run(folder, CPU, args.data)
        curve = spec.stages[-1].objective.at(Clock(1, 10**6, 10**9)).curve
        if curve is None:
            continue
        logits, labels = test_logits(folder, spec, recipe.task)
        key = (recipe.name, arm)
        curves[key] = repr(curve)
        by_arm.setdefault(key, []).append(measured(logits, labels, curve))
    record: dict[str, Any] = {"date": datetime.date.today().isoformat(), "torch": torch.__version__,
                              "encouraging": __version__, "judged": "a random half of the test examples", "arms": []}
    for (recipe_name, arm), seeds in by_arm.items():
        row: dict[str, Any] = {"recipe": recipe_name, "arm": arm, "curve": curves[recipe_name, arm],
                               "seeds": len(seeds)}
        for form in FORMS:
            row[form] = {name: statistics.fmean(one[form][name] for one in seeds) for name in seeds[0][form]}
        record["arms"].append(row)
        print(f"{recipe_name} {arm} ({len(seeds)}): " + "; ".join(
            f"{form} ECE {row[form]['ece']:.4f} nll {row[form]['nll']:.4f} T {row[form]['temperature']:.2f}"
            for form in FORMS), flush=True)
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
