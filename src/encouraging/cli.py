"""The command line. Whatever is slow to import is imported inside the command that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from . import __version__

if TYPE_CHECKING:
    from .curves import Curve

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
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


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
    from .report import figures

    try:
        chosen = [parse_curve(spec) for spec in curve or ()]
        figures.save(figures.chosen_curves(chosen) if chosen else figures.paper_curves(), out)
    except (ValueError, OSError) as error:
        _refuse(str(error))
    typer.echo(f"wrote {out}")


@app.command()
def bench(
    out: Annotated[Path | None, typer.Option(help="Also write the measurements here, as JSON.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROWSxCLASSES",
            help="Measure this instead of the usual shapes; may be repeated. ROWSxWIDTHxCLASSES is an output layer and "
                 "its loss. Examples: 4096x50257, 8192x4096x128256",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16, float16 or float64, for every shape. Else the type of the usual shapes; "
                          "for --shape, bfloat16 on a GPU and float32 on a CPU."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to measure every loss at a shape.")] = 1.0,
) -> None:
    """Measure the price of the losses on this machine, beside torch's cross-entropy."""
    from .bench import run_words

    try:
        run_words(shape or (), dtype, out, device, seconds)
    except (ValueError, OSError) as error:
        _refuse(str(error))


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `encouraging list`) or a .toml file.")],
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; may be repeated.")] = None,
    seeds: Annotated[str | None, typer.Option(help="How many seeds (3), or which (0,2,4).")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    out: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    data: Annotated[str | None, typer.Option(help="The data directory; else ENCOURAGING_DATA.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override anything: train.epochs=2")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side in processes of this machine.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of every run.")] = None,
    ray: Annotated[str | None, typer.Option(help="Hand the runs to a Ray cluster: its address, or local.")] = None,
    track: Annotated[str | None, typer.Option(help="Also write the numbers for: tensorboard.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch missing data from its publisher.")] = False,
) -> None:
    """Train every arm and seed of a recipe, continue what is unfinished, and print the judged comparison."""
    from .report.launch import run_recipe

    try:
        code = run_recipe(recipe, arms=arm or (), seeds=seeds, device=device, out=out, data=data,
                          overrides=set_ or (), jobs=jobs, threads=threads, ray=ray, track=track, fetch=download)
    except ValueError as error:
        _refuse(str(error))
    raise typer.Exit(code)


@app.command("list")
def list_(data: Annotated[str | None, typer.Option(help="The data directory; else ENCOURAGING_DATA.")] = None) -> None:
    """Show recipes, losses, datasets (present or not, and where) and models."""
    from rich.console import Console

    from .report.listing import print_list

    print_list(Console(), data)


@app.command()
def doctor(data: Annotated[str | None, typer.Option(help="The data directory; else ENCOURAGING_DATA.")] = None) -> None:
    """Say what this machine has, and what to install for what is missing."""
    from rich.console import Console

    from .report.listing import print_doctor

    print_doctor(Console(), data)


@app.command()
def collect(
    runs: Annotated[Path, typer.Argument(help="A directory of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the records go.")] = Path("results"),
) -> None:
    """Write one small record a finished run: numbers, settings, cost and machine, without tensors."""
    from .engine.records import collect as write_records

    try:
        written = write_records(runs, out)
    except ValueError as error:
        _refuse(str(error))
    typer.echo(f"wrote {len(written)} records below {out}")


@app.command()
def results(
    records: Annotated[Path, typer.Argument(help="A directory of records or runs.")] = Path("results"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The Markdown page to write.")] = Path("docs/results.md"),
) -> None:
    """Write the page of results: our measurements beside the paper's, made from the records alone."""
    from .report.results import results_page

    try:
        out.write_text(results_page(records))
    except (ValueError, OSError) as error:
        _refuse(str(error))
    typer.echo(f"wrote {out}")


@app.command()
def diagnose(
    logits: Annotated[
        Path,
        typer.Argument(help="A .safetensors or .npz file, a folder of .npy files (logits, labels, and if there are any "
                            "ood_logits and class_counts), or a run directory."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("diagnosis.html"),
    json: Annotated[Path | None, typer.Option(help="Also write every number here, as JSON.")] = None,
    profile: Annotated[
        int | None, typer.Option(metavar="CLASS", help="Whose energy profile to take; with 32 classes or fewer, all.")
    ] = None,
    names: Annotated[Path | None, typer.Option(help="Class names: a text file, one a line.")] = None,
) -> None:
    """Say what any classifier knows, from its logits: margins, energies, calibration, strangers, rare classes."""
    from rich.console import Console

    from .report.diagnose import diagnose as write_diagnosis

    try:
        written = write_diagnosis(logits, out=out, json_out=json, profile=profile, names=names, console=Console())
    except (ValueError, OSError) as error:
        _refuse(str(error))
    for path in written:
        typer.echo(f"wrote {path}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs or records.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure alone, as .svg and .png.")
    ] = None,
) -> None:
    """Write one HTML page about these runs: verdicts, tables with intervals, figures, and how to make them again."""
    from .engine.records import read_records
    from .report.page import write_report

    try:
        written = write_report(read_records(*runs), out, figures=figures)
    except ValueError as error:
        _refuse(str(error))
    typer.echo(f"wrote {out}" + (f" and {len(written) - 1} figures below {figures}" if figures else ""))


def parse_curve(spec: str) -> Curve:
    """The curve that a word on the command line names.

    >>> parse_curve("halted_focal:gamma=1,halt=0.6")
    halted_focal(gamma=1.0, halt=0.6)
    """
    from .curves import by_name
    from .errors import CurveError

    name, _, inside = spec.partition(":")
    params: dict[str, float | bool] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise CurveError(f"--curve {spec}: expected PARAM=VALUE after the colon, got {part!r}.")
        if text.lower() in {"true", "false"}:
            params[key] = text.lower() == "true"
            continue
        try:
            params[key] = float(text)
        except ValueError:
            raise CurveError(f"--curve {spec}: {key} must be a number, got {text!r}.") from None
    return by_name(name.strip(), **params)


def _refuse(message: str) -> NoReturn:
    """One line on the error stream and exit code 2, as for any wrong argument."""
    typer.echo(f"encouraging: {message}", err=True)
    raise typer.Exit(2)
