"""``encouraging diagnose``: what any classifier knows, from a file of its logits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from ..data.logits import Logits, open_logits
from ..engine.files import write_whole
from ..errors import ArgumentError, DataError, TargetError
from ..metrics import Reader
from .arms import weakest
from .outside import SCORES


def diagnose(path: Path, *, out: Path | None = None, json_out: Path | None = None, profile: int | None = None,
             names: Path | None = None, console: Console | None = None) -> list[Path]:
    """Read the file once, print what it says, and write the page and the numbers; the paths of what was written."""
    console = console or Console()
    for target in filter(None, (out, json_out)):  # before minutes of reading, not after
        if not target.parent.is_dir():
            raise ArgumentError(f"{target}: there is no folder {target.parent}.")
        if target.is_dir():
            raise ArgumentError(f"{target}: expected the name of a file to write, and this is a folder.")
        if target.exists() and path.exists() and target.samefile(path):
            raise ArgumentError(f"{target}: these are the logits themselves; choose another name.")
    if out is not None and json_out is not None and out.resolve() == json_out.resolve():
        raise ArgumentError(f"{out}: the page and the numbers cannot be one file.")
    source = open_logits(path)
    called = None if names is None else read_names(names, source.classes)
    found = read_through(source, profile, console)
    if called:
        found["class_names"] = called
    # A run directory is called after its seed: recipe and arm are the folders above it.
    title = "/".join(path.resolve().parts[-3:]) if (path / "config.json").is_file() else path.name
    console.print(overview(found, title))
    notes = list(remarks(found, source))
    for note in notes:
        console.print(escape(note), highlight=False)
    written = []
    if json_out is not None:
        write_whole(json_out, (json.dumps(_plain(found), indent=1, allow_nan=False) + "\n").encode())
        written.append(json_out)
    if out is not None:
        from .page import diagnosis_page

        write_whole(out, diagnosis_page(found, title, notes).encode())
        written.append(out)
    return written


def read_through(source: Logits, profile: int | None = None, console: Console | None = None) -> dict[str, Any]:
    """One pass over everything in the file, with a bar where a person watches."""
    if profile is not None and not 0 <= profile < source.classes:
        raise ArgumentError(f"--profile {profile}: expected a class of these logits, 0 to {source.classes - 1}.")
    reader = Reader(source.classes, profile=profile)
    bar = Progress(TextColumn("reading {task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"),
                   TimeRemainingColumn(), console=console, transient=True,
                   disable=console is None or not console.is_terminal)
    with bar:
        task = bar.add_task("logits", total=source.examples)
        probabilities = True
        for first, logits, labels in source.blocks():
            probabilities = probabilities and _are_probabilities(logits)
            with _in(source.logits.where):
                reader.update(logits, labels, first=first)
            bar.advance(task, len(labels))
        for name, array in source.outside.items():
            first, task = 0, bar.add_task(escape(name), total=array.shape[0])
            for logits in array.blocks():
                with _in(array.where):
                    reader.update_outside(logits, name, first=first)
                first += len(logits)
                bar.advance(task, len(logits))
    found = reader.diagnosis(counts=source.counts)
    return found | ({"probabilities": True} if probabilities else {})


def _are_probabilities(logits: Tensor) -> bool:
    """The likeliest mistake, seen on a few rows of every block."""
    few = logits[:100].double()
    return bool((few >= 0).all() and ((few.sum(1) - 1).abs() < 0.02).all())


@contextmanager
def _in(where: str) -> Iterator[None]:
    try:
        yield
    except TargetError as error:
        raise DataError(f"{where}: {error}") from error


def read_names(path: Path, classes: int) -> list[str]:
    """Class names, one a line."""
    try:
        names = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected a text file with a class name a line ({error}).") from error
    if len(names) != classes:
        raise DataError(f"{path}: expected {classes} lines, one a class, got {len(names)}.")
    return names


def overview(found: Mapping[str, Any], title: str) -> Table:
    """What the model knows, in about ten lines."""
    table = Table.grid(padding=(0, 2))
    table.title = f"{escape(title)}: {found['examples']:,} examples, {found['classes']:,} classes"
    table.title_justify = "left"
    for subject, words in lines(found):
        table.add_row(f"[bold]{subject}[/]", escape(words))
    return table


def lines(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A subject and what is to be said about it."""
    yield "accuracy", f"{found['accuracy']:.2f}%, negative log-likelihood {found['nll']:.4g}" + (
        f"; weakest classes: {low}" if (low := weakest(found)) else "")
    yield "calibration", _calibration(found)
    margin, energy = found["margin"], found["energy"]
    yield "margin", (f"median {margin['median']:.4g}, mean {margin['mean']:.4g}; {100 * margin['wrong']:.2f}% are "
                     "misclassified and have none")
    yield "energy", (f"{energy['label']['mean']:.4g} on the label, {energy['rival']['mean']:.4g} on its best rival, "
                     f"free {energy['free']['mean']:.4g} (means; lower is surer)")
    for name, outside in found.get("ood", {}).items():
        yield f"{escape(name)}", f"{outside['examples']:,} examples from outside, told apart by"
        for score, numbers in outside["scores"].items():
            yield "", (f"  {SCORES.get(score, score)}: AUROC {numbers['auroc']:.2f}, AUPR {numbers['aupr']:.2f}, "
                       f"FPR95 {numbers['fpr95']:.2f}")
    if "shots" in found:
        yield "shots", ", ".join(f"{group} {right:.2f}%" for group, right in found["shots"].items())
    yield from (("teaching" if number == 0 else "", words) for number, words in enumerate(_teaching(found)))


def _calibration(found: Mapping[str, Any]) -> str:
    calibration = found["calibration"]
    bins = [row for row in calibration["bins"] if row["count"]]
    excess = sum(row["count"] * (row["confidence"] - row["accuracy"]) for row in bins) / found["examples"]
    too = "over" if excess > 0 else "under"
    words = f"ECE {calibration['ece']:.4f}, {too}confident by {100 * abs(excess):.2f} points"
    if scaled := calibration.get("temperature"):
        words += (f"; divided by the temperature {scaled['value']:.3g}, fitted on {scaled['fitted_on']:,} of the "
                  f"examples, ECE goes from {scaled['ece_before']:.4f} to {scaled['ece_after']:.4f} on "
                  f"{scaled['judged_on']:,} others")
    return words


def _teaching(found: Mapping[str, Any]) -> Iterator[str]:
    shares = dict(found["teaching"]["shares"])
    few = 1 - shares.pop("examples")["0.9"]
    pulls = found["teaching"].get("pulls", {})
    if pulls and not any(pulls.values()):
        yield "no loss has any gradient left on these examples"
        return
    below = [(name, _percent(1 - share["0.9"])) for name, share in shares.items()]
    name, part = below[0]
    yield f"{name} learns {part} from examples below p = 0.9, which are {_percent(few)} of all"
    if below[1:]:
        yield "the same of " + "; ".join(f"{name}: {part}" for name, part in below[1:])


def _percent(share: float) -> str:
    """Whole percents, but never all or nothing where a little is left."""
    if 0 < share < 0.01 or 0.99 < share < 1:
        return f"{100 * share:.2g}%" if share < 0.5 else f"{100 - 100 * (1 - share):.4g}%"
    return f"{100 * share:.0f}%"


def remarks(found: Mapping[str, Any], source: Logits) -> Iterator[str]:
    """What a reader of the numbers should know about them."""
    if found.get("probabilities"):
        yield ("These are probabilities, not logits: no number is below 0, and rows sum to 1. Give the logits, or the "
               "logarithms of the probabilities; what is said here is about a softmax of probabilities.")
    scaled = found["calibration"].get("temperature", {})
    if bound := scaled.get("bound"):
        yield (f"The temperature ended at its bound, {scaled['value']:g}: on the examples it was fitted on, the model "
               f"is {'right without exception' if bound == 'lowest' else 'no better than chance'}.")
    if source.unused:
        yield f"Not used: {', '.join(source.unused)}."


def _plain(value: Any) -> Any:
    """NaN and infinity have no JSON."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
