"""The words and flags of the command line; what the commands do is in :mod:`encouraging.commands`.

A command's module is imported when the command runs, so that ``--help`` and ``--version`` answer without importing
torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from . import __version__

app = typer.Typer(
    name="encouraging",
    help="Losses that keep teaching a classifier after it gets an example right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """The entry point of the ``encouraging`` command."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"encouraging {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Bad input ends with one line on the error stream and exit code 2, as any wrong argument does."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"encouraging: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def curves(
    out: Annotated[Path, typer.Option(help="Where to write the picture: .svg, .png or .pdf.")] = Path("curves.svg"),
    curve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PARAM=VALUE,...]",
            help="Draw this curve instead of the paper's; may be repeated. Example: conservative:log_end=0.5",
        ),
    ] = None,
) -> None:
    """Draw losses and their pulls: the paper's Figures 2 and 3, or curves of your choice."""
    from .commands.curves import draw_curves

    with _errors_in_one_line():
        draw_curves(curve or (), out)
    typer.echo(f"wrote {out}")


@app.command()
def bench(
    out: Annotated[Path | None, typer.Option(help="Also write the measurements here, as JSON.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROWSxCLASSES",
            help="Measure this instead of the default shapes; may be repeated. ROWSxWIDTHxCLASSES is an output layer "
                 "and its loss. Examples: 4096x50257, 8192x4096x128256",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16, float16 or float64, for every shape. By default the type of the default "
                          "shapes; for --shape, bfloat16 on a GPU and float32 on a CPU."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to measure each loss per shape.")] = 1.0,
) -> None:
    """Measure time and memory of the losses on this machine, beside torch's cross-entropy."""
    from .commands.bench import run_arguments

    with _errors_in_one_line():
        run_arguments(shape or (), dtype, out, device, seconds)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `encouraging list`) or a .toml file.")],
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; may be repeated.")] = None,
    seeds: Annotated[str | None, typer.Option(help="How many seeds (3), or which (0,2,4).")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    out: Annotated[Path, typer.Option(help="The folder for run directories.")] = Path("runs"),
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override any setting: train.epochs=2")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many runs to train at once on this machine.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads per run.")] = None,
    ray: Annotated[str | None, typer.Option(help="Train on a Ray cluster: its address, or local.")] = None,
    track: Annotated[str | None, typer.Option(help="Also log the numbers to: tensorboard.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download missing data from its publisher.")] = False,
) -> None:
    """Train every arm and seed of a recipe, resume what is unfinished, and print the comparison with its verdicts."""
    from .commands.run import run_recipe

    with _errors_in_one_line():
        code = run_recipe(recipe, arms=arm or (), seeds=seeds, device=device, out=out, data=data,
                          overrides=set_ or (), jobs=jobs, threads=threads, ray=ray, track=track, fetch=download)
    raise typer.Exit(code)


@app.command("list")
def list_(
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
) -> None:
    """List recipes, losses, datasets (present or missing, and where) and models."""
    from .commands.list import print_list

    with _errors_in_one_line():
        print_list(data)


@app.command()
def doctor(
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
) -> None:
    """Show what this machine has, and what to install for what is missing."""
    from .commands.doctor import print_doctor

    with _errors_in_one_line():
        print_doctor(data)


@app.command()
def collect(
    runs: Annotated[Path, typer.Argument(help="A directory of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the records.")] = Path("results"),
    by_arm: Annotated[bool, typer.Option("--by-arm", help="One file per arm with all its seeds, rounded.")] = False,
) -> None:
    """Write one small record per finished run: numbers, settings, cost and machine, without tensors."""
    from .commands.collect import collect_records

    with _errors_in_one_line():
        written = collect_records(runs, out, by_arm)
    typer.echo(f"wrote {len(written)} records below {out}")


@app.command()
def results(
    records: Annotated[Path, typer.Argument(help="A directory of records or runs.")] = Path("results"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The Markdown page to write.")] = Path("docs/results.md"),
) -> None:
    """Write the page of results: our measurements beside the paper's, made from the records alone."""
    from .commands.results import write_results

    with _errors_in_one_line():
        write_results(records, out)
    typer.echo(f"wrote {out}")


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
        int | None,
        typer.Option(metavar="CLASS", help="The class whose energy profile is taken; with 32 classes or fewer, all."),
    ] = None,
    names: Annotated[Path | None, typer.Option(help="Class names: a text file, one per line.")] = None,
) -> None:
    """Diagnose any classifier from its logits: margins, energies, calibration, out-of-distribution, rare classes."""
    from .commands.diagnose import diagnose as write_diagnosis

    with _errors_in_one_line():
        written = write_diagnosis(logits, out=out, json_out=json, profile=profile, names=names)
    for path in written:
        typer.echo(f"wrote {path}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs or records.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as .svg and .png into this folder.")
    ] = None,
) -> None:
    """Write one HTML page about these runs: verdicts, tables with intervals, figures, and how to reproduce them."""
    from .commands.report import report_on

    with _errors_in_one_line():
        written = report_on(runs, out, figures)
    typer.echo(f"wrote {out}" + (f" and {len(written) - 1} figures below {figures}" if figures else ""))
