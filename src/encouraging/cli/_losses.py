"""The commands about losses: draw them, measure them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._app import Outputs, app, errors_in_one_line

LOSSES = "The losses themselves"  # a section of --help below the other commands


@app.command(rich_help_panel=LOSSES)
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
    from ..commands.curves import draw_curves

    outputs = Outputs(out)
    with errors_in_one_line():
        draw_curves(curve or (), out)
    outputs.say(out)


@app.command(rich_help_panel=LOSSES)
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
        str, typer.Option(metavar="NAME", help="Measure only losses whose name begins with this: ours, or torch.")
    ] = "",
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="Measure some two hundred calls (class counts, types, arguments, curves) beside "
                                      "the same formula in torch, eager and compiled; the worst ratio first."),
    ] = False,
    random: Annotated[int | None, typer.Option(min=1, help="The same for this many calls drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of --random.")] = 0,
    part: Annotated[
        str | None, typer.Option(metavar="I/N", help="The I-th of N parts of --matrix or --random.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that compile the calls of --matrix or --random in parallel.")
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
    again: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="With --compare: AFTER measured once more; may be repeated. A case counts as "
                                          "in the record that has it fastest."),
    ] = None,
) -> None:
    """Measure time and memory of the losses on this machine, beside torch's cross-entropy."""
    from ..commands.bench_arguments import BenchArguments, run_bench

    with errors_in_one_line():
        code = run_bench(BenchArguments(
            out=out, device=device, shapes=shape or (), dtype=dtype, seconds=seconds, only=only, matrix=matrix,
            count=random, seed=seed, part=part, jobs=jobs, check=check, merge=merge or (), compare=compare,
            again=again or ()))
    raise typer.Exit(code)
