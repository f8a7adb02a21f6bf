"""The commands that make tables, verdicts and pages of numbers that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._app import Outputs, app, errors_in_one_line


@app.command()
def compare(
    numbers: Annotated[Path, typer.Argument(help="Numbers per arm and seed: a .csv, .tsv, .jsonl or .json "
                                             "file, or a folder of runs or records of one recipe.")],
    metric: Annotated[
        list[str],
        typer.Option(metavar="COLUMN[:lower[:NUMBER]]", help="The column with the numbers; may be repeated. loss:lower "
                     "if smaller is better, loss:lower:0.02 also with the smallest difference that matters."),
    ],
    baseline: Annotated[str | None, typer.Option(help="The arm to compare with; by default the first one.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ARM", help="Compare only this arm with the baseline; may be repeated."),
    ] = None,
    lower: Annotated[bool, typer.Option("--lower", help="Smaller numbers are better; for one metric.")] = False,
    expected: Annotated[
        list[str] | None,
        typer.Option(metavar="[COLUMN=]NUMBER", help="The smallest difference that matters: needed for \"no "
                     "difference\" and for the number of seeds that would decide. With several metrics loss=0.02."),
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="The ratio of test to training examples, for random splits of one dataset.")
    ] = None,
    title: Annotated[str, typer.Option(help="The title of the page.")] = "",
    arm: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column that names the arm, or one column per arm: ce,el.")
    ] = "arm",
    seed: Annotated[str, typer.Option(metavar="COLUMN", help="The column that names the seed.")] = "seed",
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("comparison.html"),
) -> None:
    """Compare arms over seeds, with the numbers of any script or of runs: paired differences, verdicts and a page."""
    from ..commands.compare import compare_file, metric_words

    outputs = Outputs(out)
    with errors_in_one_line():
        words = metric_words(metric, lower, expected or ())
        written = compare_file(numbers, words.metrics, out, baseline=baseline, better=words.better,
                               expected=words.expected, overlap=overlap, title=title, arm=arm, seed=seed,
                               only=only or ())
    for path in written:
        outputs.say(path)


@app.command()
def collect(
    runs: Annotated[Path, typer.Argument(help="A directory of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the records.")] = Path("results"),
    by_arm: Annotated[bool, typer.Option("--by-arm", help="One file per arm with all its seeds, rounded.")] = False,
) -> None:
    """Write one small record per finished run: numbers, settings, cost and machine, without tensors."""
    from ..commands.collect import collect_records

    with errors_in_one_line():
        written = collect_records(runs, out, by_arm)
    typer.echo(f"wrote {len(written)} records below {out}")


@app.command()
def results(
    records: Annotated[Path, typer.Argument(help="A directory of records or runs.")] = Path("results"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The Markdown page to write.")] = Path("docs/results.md"),
    update: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Also update the blocks of this Markdown page, such as the one between "
                     "<!-- scoreboard: short --> and <!-- end of scoreboard -->; may be repeated."),
    ] = None,
) -> None:
    """Write the page of results: our measurements beside the paper's, made from the records alone."""
    from ..commands.results import write_results

    with errors_in_one_line():
        written = write_results(records, out, update or ())
    for path in written:
        typer.echo(f"wrote {path}")


@app.command()
def diagnose(
    logits: Annotated[
        Path,
        typer.Argument(help="A .safetensors or .npz file, a folder of .npy files (logits, labels, and optionally "
                            "ood_logits and class_counts), or a run directory."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("diagnosis.html"),
    json: Annotated[Path | None, typer.Option(help="Also write every number here, as JSON.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="The class whose energy profile is drawn, by its number or, with --names, "
                     "by its name; by default the one with the lowest accuracy."),
    ] = None,
    names: Annotated[Path | None, typer.Option(help="Class names: a text file, one per line.")] = None,
    curve: Annotated[
        str | None,
        typer.Option(metavar="NAME:PARAM=VALUE", help="The loss that the model was trained with, such as "
                     "encouraging:log_end=0.5: its probabilities are read through it."),
    ] = None,
) -> None:
    """Diagnose any classifier from its logits: margins, energies, calibration, out-of-distribution, rare classes."""
    from ..commands.diagnose import diagnose as write_diagnosis

    outputs = Outputs(out, json)
    with errors_in_one_line():
        written = write_diagnosis(logits, out=out, json_out=json, profile=profile, names=names, curve=curve)
    for path in written:
        outputs.say(path)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs or records.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as .svg and .png into this folder.")
    ] = None,
) -> None:
    """Write one HTML page about these runs: verdicts, tables with intervals, figures, and how to reproduce them."""
    from ..commands.report import report_on

    outputs = Outputs(out)
    with errors_in_one_line():
        written = report_on(runs, out, figures)
    outputs.say(out, f" and {len(written) - 1} figures below {figures}" if figures else "")
