"""``encouraging diagnose``: margins, energies, calibration and detection of any classifier, from a file of its logits.
"""

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
from torch import Tensor

from ..curves import Curve
from ..data.arrays import shown
from ..data.logits import Logits, open_logits
from ..data.logits_advice import probability_words
from ..engine.outputs import check_outputs, write_output
from ..errors import ArgumentError, DataError, TargetError, did_you_mean
from ..metrics import Reader, posterior_logits
from ..metrics._profiles import Profiles
from ..report.numbers import plural
from ..report.sections.out_of_distribution import UNNAMED
from .diagnosis_table import overview
from .label_notes import label_doubts, label_notes

ROUGH = 30  # examples or images below which the numbers are called rough


def diagnose(path: Path, *, out: Path | None = None, json_out: Path | None = None, profile: int | str | None = None,
             names: Path | None = None, curve: str | None = None, console: Console | None = None) -> list[Path]:
    """Read the file, print a summary, and write the page and the numbers; the paths of what was written.

    With ``curve``, the loss that the model was trained with, its logits are read through that loss.
    """
    console = console or Console()
    trained_with = None
    if curve is not None:
        from .curves import parse_curve  # which can also draw them

        trained_with = parse_curve(curve)
    check_outputs(out, json_out, [path, *([names] if names else [])])  # before minutes of reading, not after
    source = open_logits(path)
    class_names = None if names is None else read_names(names, source.classes)
    label = profile if profile is None or isinstance(profile, int) else class_of(profile, class_names, source.classes)
    warnings = list(warnings_about(source))
    for warning in warnings:  # before the numbers that it makes doubtful
        console.print(escape(warning), style="yellow", highlight=False, soft_wrap=True)
    diagnosis = read_through(source, label, console, trained_with)
    if class_names:
        diagnosis["class_names"] = class_names
    if not source.probabilities:
        for warning in label_doubts(diagnosis, source.labels):
            console.print(escape(warning), style="yellow", highlight=False)
            warnings.append(warning)
    # A run directory is named after its seed: recipe and arm are the folders above it.
    title = "/".join(path.resolve().parts[-3:]) if (path / "config.json").is_file() else \
        shown(path.name or path.resolve().name)  # "." has no name
    console.print(overview(diagnosis, title))
    notes = list(notes_about(diagnosis, source))
    if trained_with is not None:
        notes.insert(0, f"All numbers are those of the logits that {trained_with!r} stands for "
                        "(metrics.posterior_logits), and not of the logits in the file.")
    for note in notes:
        console.print(escape(note), highlight=False)
    written = []
    if json_out is not None:
        write_output(json_out, (json.dumps(_plain(diagnosis), indent=1, allow_nan=False) + "\n").encode())
        written.append(json_out)
    if out is not None:
        from ..report.diagnosis_page import diagnosis_page

        write_output(out, diagnosis_page(diagnosis, title, notes, warnings).encode())
        written.append(out)
    return written


def read_through(source: Logits, profile: int | None = None, console: Console | None = None,
                 curve: Curve | None = None) -> dict[str, Any]:
    """The diagnosis of everything in the file, with a progress bar where there is a terminal.

    One pass; where there are too many classes to keep the energy profiles of all, and none was chosen, a second look at
    the weakest class, which is known only then.
    """
    def posterior(logits: Tensor) -> Tensor:
        return logits if curve is None else posterior_logits(logits, curve)

    if profile is not None and not 0 <= profile < source.classes:
        raise ArgumentError(f"--profile {profile}: expected a class of these logits, 0 to {source.classes - 1}.")
    reader = Reader(source.classes, profile=profile)
    bar = Progress(TextColumn("reading {task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"),
                   TimeRemainingColumn(), console=console, transient=True,
                   disable=console is None or not console.is_terminal)
    with bar:
        task = bar.add_task("logits", total=source.examples)
        for first, logits, labels in source.blocks():
            with _located(source.logits.where):
                reader.update(posterior(logits), labels, first=first)
            bar.advance(task, len(labels))
        for name, array in source.outside.items():
            first, task = 0, bar.add_task(escape(name), total=array.shape[0])
            for logits in array.blocks():
                with _located(array.where):
                    reader.update_outside(posterior(logits), name, first=first)
                first += len(logits)
                bar.advance(task, len(logits))
        diagnosis = reader.diagnosis(counts=source.counts)
        weakest = _weakest_class(diagnosis)
        if profile is not None:
            diagnosis["profiled"] = [profile]
        elif weakest is not None and str(weakest) not in diagnosis["energy"]["profiles"]:
            profiles, task = Profiles(source.classes, weakest), bar.add_task("the weakest class", total=source.examples)
            for _, logits, labels in source.blocks():
                rows = labels == weakest
                if bool(rows.any()):
                    profiles.update(posterior(logits[rows]), labels[rows])
                bar.advance(task, len(labels))
            diagnosis["energy"]["profiles"] = profiles.table()
    return diagnosis | ({"probabilities": True} if source.probabilities else {})


def _weakest_class(diagnosis: Mapping[str, Any]) -> int | None:
    """The class of the lowest accuracy among those that have examples; None with very many classes."""
    accuracies = {label: value for label, value in enumerate(diagnosis.get("class_accuracy", ())) if value is not None}
    return min(accuracies, key=accuracies.__getitem__, default=None)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Errors about the numbers in an array name the file and the array."""
    try:
        yield
    except TargetError as error:
        raise DataError(f"{where}: {str(error).removeprefix('logits: ')}") from error


def read_names(path: Path, classes: int) -> list[str]:
    """Class names, one per line."""
    try:
        names = path.read_text(encoding="utf-8-sig").rstrip().splitlines()  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected a text file with one class name per line ({error}).") from error
    if len(names) != classes:
        raise DataError(f"{path}: expected {classes} lines, one per class, got {len(names)}.")
    return names


def class_of(word: str, names: Sequence[str] | None, classes: int) -> int:
    """The class of a number or a name.

    >>> class_of("1", None, 3), class_of("dog", ["cat", "dog"], 2)
    (1, 1)
    """
    if word.isdecimal() and int(word) < classes:
        return int(word)
    if names is not None and word in names:
        return names.index(word)
    named = "or one of the names that --names gives" if names is None else f"or one of its {classes} names"
    raise ArgumentError(f"--profile {word}: expected a class of these logits, 0 to {classes - 1}, {named}."
                        f"{did_you_mean(word, names or ())}")


def warnings_about(source: Logits) -> Iterator[str]:
    """Reasons to doubt all numbers of the diagnosis."""
    if not source.probabilities:
        return
    signs, wrong, how = ("every number is between 0 and 1", "The numbers below are wrong: they describe a sigmoid",
                         "their log-odds, np.log(p / (1 - p)), with 0 and 1 replaced") if source.binary_column else \
        ("no number is below 0, and rows sum to 1 (or 100)",
         "The numbers below, except the accuracy, are wrong: they describe a softmax",
         "their logarithms, np.log(p), with 0 replaced")
    yield (f"These are probabilities, not logits: {signs}. {wrong} of probabilities. Give the logits or, if you no "
           f"longer have them, {how}:")
    yield probability_words(source.path, source.binary_column)


def notes_about(diagnosis: Mapping[str, Any], source: Logits) -> Iterator[str]:
    """What a reader of the numbers should know about them."""
    if source.binary_column:
        yield "The single column is read as the logit of class 1 against class 0."
    scaled = diagnosis["calibration"].get("temperature", {})
    if bound := scaled.get("bound"):
        yield (f"The temperature ended at its bound, {scaled['value']:g}: on the examples it was fitted on, the model "
               f"is {'right without exception' if bound == 'lowest' else 'no better than chance'}.")
    yield from label_notes(diagnosis, source.labels)
    if diagnosis["examples"] < ROUGH:
        yield f"With {plural(diagnosis['examples'], 'example')} these numbers are rough."
    for name, array in source.outside.items():
        if array.shape[0] < ROUGH:
            yield (f"With {plural(array.shape[0], 'out-of-distribution example')}"
                   f"{'' if name == UNNAMED else f' of {name}'} the detection rates are rough.")
    if source.unused:
        yield f"Not used: {', '.join(source.unused)}."


def _plain(value: Any) -> Any:
    """NaN and infinity become null: JSON has neither."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
