"""``encouraging ood``: a trained run against images that it was not trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..curves import catalogue
from ..data.any_images import AnyImages, open_images
from ..data.logits import open_logits
from ..engine.environment import choose_device
from ..engine.outputs import check_outputs, write_output
from ..engine.precision import float32_is
from ..metrics import Reader
from ..recipes.trained import TrainedImages, load_trained
from ..report.detection_words import RECOMMENDED, WITHOUT_BONUS, below_chance, best_words, score_words
from ..report.numbers import PLAIN, plural, show
from ..report.sections.out_of_distribution import SCORES, USUAL
from .diagnose import ROUGH

COLUMNS = ("AUROC", "AUPR_IN", "AUPR_OUT", "FPR@95")  # OpenOOD's
FPRS = {"FPR@95": "OpenOOD's FPR@95", "FPR95": "the paper's FPR95"}  # they differ in which class is positive
MEANINGS = ("All in percent. Higher is better for AUROC, AUPR_IN (test images are the positive class) and AUPR_OUT "
            "(the new ones are), lower for both FPRs:",
            "OpenOOD's FPR@95 is the share of test images that are rejected where 95% of the new ones are detected;",
            "the paper's FPR95 is the share of new images that are accepted where 95% of the test images are.")


def score_images(run: Path, data: str | Path, *, name: str | None = None, out: Path | None = None,
                 json_out: Path | None = None, device: str = "auto", datasets: str | None = None,
                 console: Console | None = None) -> list[Path]:
    """Print how well the run's scores separate its test images from these; the paths of what was written.

    ``data`` is a folder of images, an ``.npz`` or ``.npy`` file, or the name of a dataset in ``datasets``.
    """
    console = console or Console()
    check_outputs(out, json_out, [run, Path(data)])  # before anything is computed
    images = open_images(data, datasets, "--datasets")
    trained = load_trained(run, choose_device(device), datasets, option="--datasets")
    name = name or (Path(data).resolve().stem if Path(data).exists() else str(data))
    channels, side = trained.task.data.channels, trained.task.side
    fitted = images.fitting_words(channels, (side[0], side[1]))
    console.print(f"{name}: {images.words()}; the model takes {side[1]} x {side[0]} pixels, "
                  f"{'grey' if channels == 1 else 'in colour'}" + (f": the first one is {fitted}" if fitted else ""),
                  markup=False, highlight=False)
    diagnosis = _diagnose(trained, images, name, console)
    detection, score = diagnosis["ood"][name], recommended(trained)
    detections = detection["scores"]
    console.print(_table(detections, f"{trained.name}: {plural(diagnosis['examples'], 'test image')} against "
                                     f"{plural(len(images), 'image')} of {name}"))
    if len(images) < ROUGH:
        console.print(f"These numbers are rough: each of the {plural(len(images), 'image')} of {name} is "
                      f"{100 / len(images):.0f}% of all.", markup=False, highlight=False)
    for line in (_answer(detection, score), *below_chance(detection, diagnosis["examples"]), *MEANINGS):
        console.print(line, markup=False, highlight=False)
    written = []
    if json_out is not None:
        numbers = {score: {key: rates[key] for key in ("auroc", "aupr", "fpr95", "openood")}
                   for score, rates in detections.items()}
        content = {"run": trained.name, "name": name, "images": len(images),
                   "test_images": diagnosis["examples"], "scores": numbers}
        write_output(json_out, (json.dumps(content, indent=1) + "\n").encode())
        written.append(json_out)
    if out is not None:
        from ..report.diagnosis_page import diagnosis_page

        write_output(out, diagnosis_page(diagnosis, f"{trained.name} against {name}", first="ood",
                                          score=score).encode())
        written.append(out)
    return written


def _diagnose(trained: TrainedImages, images: AnyImages, name: str, console: Console) -> dict[str, Any]:
    """The diagnosis of the run's stored test logits against the logits of the images."""
    test_logits, task, model = open_logits(trained.folder), trained.task, trained.unit_model
    reader = Reader(test_logits.classes)
    for first, logits, labels in test_logits.blocks():
        reader.update(logits, labels, first=first)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar, torch.no_grad(), \
            float32_is("ieee"):
        done = bar.add_task("images", total=len(images))
        for block in images.blocks(task.data.channels, (task.side[0], task.side[1])):
            reader.update_outside(model(task.unit(block, highest=255)).cpu(), name)
            bar.advance(done, len(block))
    return reader.diagnosis()


def recommended(trained: TrainedImages) -> str:
    """The score to use after training with this run's loss, chosen before looking at the data: after a bonus the
    largest logit, else the log-odds."""
    objective = trained.recipe.stages_of(trained.arm)[-1].objective
    entry = catalogue().get(objective.curve)
    return RECOMMENDED if objective.bonus or (entry is not None and entry.group == "bonus") else WITHOUT_BONUS


def _answer(detection: Mapping[str, Any], score: str) -> str:
    auroc = detection["scores"][score]["auroc"]
    words = f"Recommended after this loss: {score_words(score)}, AUROC {show(auroc, style=PLAIN)}%."
    return f"{words} {best_words(detection, score)}".rstrip()


def _table(detections: Mapping[str, Any], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for head in ("score", *COLUMNS, "FPR95"):
        table.add_column(FPRS.get(head, head), justify="left" if head == "score" else "right")
    for score in USUAL:
        numbers = detections[score]
        cells = [numbers["openood"][column] for column in COLUMNS] + [numbers["fpr95"]]
        table.add_row(SCORES[score], *(show(cell, style=PLAIN) for cell in cells))
    return table
