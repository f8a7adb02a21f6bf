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
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help="How long to measure each loss per shape: 1, or 0.2 with --matrix and --random."),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="NAME", help="Measure only losses whose name begins so: ours, or torch.")
    ] = "",
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="Measure some two hundred calls (class counts, types, arguments, curves) beside "
                                      "the same formula in torch, eager and compiled; the worst ratio first."),
    ] = False,
    random: Annotated[int | None, typer.Option(min=1, help="The same for so many calls drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of --random.")] = 0,
    part: Annotated[
        str | None, typer.Option(metavar="I/N", help="The I-th of N parts of --matrix or --random.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that compile the calls of --matrix or --random beside each other.")
    ] = 1,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the gradients of --matrix or --random instead, at small sizes against "
                                     "float64; without a GPU in Triton's interpreter (TRITON_INTERPRET=1)."),
    ] = False,
    merge: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Put records of parts together; repeat it for each.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="BEFORE AFTER", help="Compare our times in two records; exit code 1 where one is slower "
                                                  "by more than 3%."),
    ] = None,
) -> None:
    """Measure time and memory of the losses on this machine, beside torch's cross-entropy."""
    from .commands.bench_arguments import BenchArguments, run_bench

    with _errors_in_one_line():
        code = run_bench(BenchArguments(
            out=out, device=device, shapes=shape or (), dtype=dtype, seconds=seconds, only=only, matrix=matrix,
            count=random, seed=seed, part=part, jobs=jobs, check=check, merge=merge or (), compare=compare))
    raise typer.Exit(code)


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
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Train an arm once per value, beside its baseline, and draw the "
                     "numbers over the value: log_end=0,0.5,1. Twice for a map of two keys. --arm says which arm."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many runs to train at once on this machine.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads per run.")] = None,
    ray: Annotated[str | None, typer.Option(help="Train on a Ray cluster: its address, or local.")] = None,
    track: Annotated[str | None, typer.Option(help="Also log the numbers to: tensorboard.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download missing data from its publisher.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train nothing: say what would run, on what, for how long (from a minute "
                                             "that is measured) and what it takes on the disk.")
    ] = False,
    until_decided: Annotated[
        bool,
        typer.Option("--until-decided", help="Train 4, 8, 16, at most 32 seeds, until every claim is decided or shows "
                                             "no difference. The claims pay for the looks."),
    ] = False,
) -> None:
    """Train every arm and seed of a recipe, resume what is unfinished, and print the comparison with its verdicts."""
    from .commands.run import run_recipe

    with _errors_in_one_line():
        code = run_recipe(recipe, arms=arm or (), seeds=seeds, device=device, out=out, data=data,
                          overrides=set_ or (), sweeps=sweep or (), jobs=jobs, threads=threads, ray=ray, track=track,
                          fetch=download, until_decided=until_decided, dry_run=dry_run)
    raise typer.Exit(code)


@app.command()
def attack(
    runs: Annotated[list[Path], typer.Argument(help="Finished run directories, or folders of them.")],
    attack: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this attack; may be repeated. By default fgsm, pgd and pgd_l2, each "
                                          "driven by cross-entropy, margin and DLR (pgd, pgd_margin, pgd_dlr), and "
                                          "what the recipe's claims name."),
    ] = None,
    autoattack: Annotated[
        bool, typer.Option("--autoattack", help="Also AutoAttack in both norms; needs the extra attacks.")
    ] = False,
    eps: Annotated[
        str | None, typer.Option(help="Largest changes of a pixel: 0,0.1. Default: the paper's on MNIST, else 8/255.")
    ] = None,
    eps_l2: Annotated[
        str | None, typer.Option(help="Euclidean lengths for the L2 attacks: 0,1,3. Default: as for --eps.")
    ] = None,
    examples: Annotated[int | None, typer.Option(help="Only the first test images; default: all.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random starts.")] = 0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images that are attacked at once. Default: 1000, or fewer large ones.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs to attack at once.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads per run.")] = None,
) -> None:
    """Attack trained models: accuracy by attack and epsilon, into attacks.json of every run, and a warning where an
    attack flatters a model. Continues where it was stopped."""
    from .commands.attack import attack_runs

    with _errors_in_one_line():
        code = attack_runs(runs, attacks=attack or (), autoattack=autoattack, eps=eps, eps_l2=eps_l2,
                           examples=examples, seed=seed, batch_size=batch_size, device=device, data=data, jobs=jobs,
                           threads=threads)
    raise typer.Exit(code)


@app.command()
def ood(
    run: Annotated[Path, typer.Argument(help="A finished run directory.")],
    data: Annotated[
        Path, typer.Option(metavar="FOLDER|FILE.npz", help="Images that the model was not trained on, of any size: a "
                                                          "folder of them, or an .npz file with the array images.")
    ],
    name: Annotated[str | None, typer.Option(help="What to call them; default: the folder's or file's name.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page with figures here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write every number here, as JSON.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    datasets: Annotated[
        str | None, typer.Option(help="The data directory of the run's own dataset; default: ENCOURAGING_DATA.")
    ] = None,
) -> None:
    """How well a trained model recognises images that it was not trained on, by the usual scores."""
    from .commands.ood import score_images

    with _errors_in_one_line():
        written = score_images(run, data, name=name, out=out, json_out=json, device=device, datasets=datasets)
    for path in written:
        typer.echo(f"wrote {path}")


@app.command()
def translate(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run of translation.")],
    beam: Annotated[
        int | None, typer.Option(min=1, help="How many hypotheses are kept; 1 is greedy. Default: the recipe's.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0.0, help="0 prefers short translations. Default: the recipe's.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Sentences that are translated at once. Default: the recipe's.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
) -> None:
    """Translate standard input, one sentence per line, with a trained run. Needs no data."""
    from .commands.translate import translate_lines

    with _errors_in_one_line():
        translate_lines(run, beam=beam, length_penalty=length_penalty, at_once=batch_size, device=device)


@app.command()
def compare(
    numbers: Annotated[Path, typer.Argument(help="Numbers per arm and seed: a .csv, .tsv, .jsonl or .json file.")],
    metric: Annotated[list[str], typer.Option(help="The column with the numbers; may be repeated.")],
    baseline: Annotated[str | None, typer.Option(help="The arm to compare with; by default the first one.")] = None,
    lower: Annotated[bool, typer.Option("--lower", help="Smaller numbers are better.")] = False,
    expected: Annotated[
        float | None, typer.Option(help="The difference that would matter, for \"no difference\" and for power.")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="Test over training examples, for random splits of one dataset.")
    ] = None,
    title: Annotated[str, typer.Option(help="The title of the page.")] = "",
    arm: Annotated[str, typer.Option(metavar="COLUMN", help="The column that names the arm.")] = "arm",
    seed: Annotated[str, typer.Option(metavar="COLUMN", help="The column that names the seed.")] = "seed",
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("comparison.html"),
) -> None:
    """Compare arms of any script over seeds: paired differences, verdicts, power, and a page."""
    from .commands.compare import compare_file

    with _errors_in_one_line():
        written = compare_file(numbers, metric, out, baseline=baseline, better="lower" if lower else "higher",
                               expected=expected, overlap=overlap, title=title, arm=arm, seed=seed)
    for path in written:
        typer.echo(f"wrote {path}")


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
    update: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Also write anew what this Markdown page has between <!-- scoreboard: short "
                     "--> and <!-- end of scoreboard -->; may be repeated."),
    ] = None,
) -> None:
    """Write the page of results: our measurements beside the paper's, made from the records alone."""
    from .commands.results import write_results

    with _errors_in_one_line():
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
