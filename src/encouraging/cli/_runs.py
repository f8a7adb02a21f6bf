"""The commands that train models and use them, and those that say what there is to train with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._app import Outputs, app, errors_in_one_line


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `encouraging list`) or a .toml file.")],
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; may be repeated.")] = None,
    seeds: Annotated[str | None, typer.Option(help="How many seeds (3), or which ones (0,2,4).")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    out: Annotated[Path, typer.Option(help="The folder for run directories.")] = Path("runs"),
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE",
                     help="Override any setting of the recipe, such as train.epochs=2; may be repeated."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Train an arm once per value, beside its baseline, and draw the "
                     "numbers over the value: log_end=0,0.5,1. Twice for a map of two keys. --arm says which arm."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many runs to train at once on this machine.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads per run. Default: all cores, at "
                                                                      "most OMP_NUM_THREADS.")] = None,
    ray: Annotated[str | None, typer.Option(help="Train on a Ray cluster: its address, or local.")] = None,
    track: Annotated[str | None, typer.Option(help="Also log the numbers to: tensorboard.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download missing data from its publisher.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, on what, for how long and how much disk space it "
                                             "takes, and keep nothing. It reads the data and trains for up to a "
                                             "minute (longer if a single update takes longer) to measure the speed.")
    ] = False,
    until_decided: Annotated[
        bool,
        typer.Option("--until-decided", help="Train 4, 8, 16, at most 32 seeds, until every claim is decided or shows "
                                             "no difference. Every further look makes the intervals wider."),
    ] = False,
) -> None:
    """Train every arm and seed of a recipe, resume what is unfinished, and print the comparison with its verdicts."""
    with errors_in_one_line("The same command starts again; it continues runs that have a checkpoint."):
        from ..commands.run import run_recipe

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
        bool, typer.Option("--autoattack", help="Also AutoAttack in both norms; needs the package pyautoattack.")
    ] = False,
    eps: Annotated[
        str | None,
        typer.Option(help="Largest changes of a pixel, for all attacks but those in L2: 0,0.1. Default: 0 to 0.3, the "
                          "paper's, on MNIST, Fashion-MNIST and digits, else 0 to 8/255."),
    ] = None,
    eps_l2: Annotated[
        str | None,
        typer.Option(help="Euclidean lengths of the change, for the attacks in L2: 0,1,3. Default: 0 to 100, the "
                          "paper's, on MNIST and Fashion-MNIST, 0 to 3 on digits, else 0 to 0.5."),
    ] = None,
    examples: Annotated[int | None, typer.Option(help="Only the first N test images; default: all.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random starts.")] = 0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images that are attacked at once. Default: 1000, or fewer large ones.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs to attack at once.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads per run. Default: all cores, at "
                                                                      "most OMP_NUM_THREADS.")] = None,
) -> None:
    """Attack trained models: accuracy by attack and epsilon, into attacks.json of every run, and a warning where an
    attack overestimates a model. Continues where it was stopped."""
    with errors_in_one_line("The same command continues."):
        from ..commands.attack import attack_runs

        code = attack_runs(runs, attacks=attack or (), autoattack=autoattack, eps=eps, eps_l2=eps_l2,
                           examples=examples, seed=seed, batch_size=batch_size, device=device, data=data, jobs=jobs,
                           threads=threads)
    raise typer.Exit(code)


@app.command()
def ood(
    run: Annotated[Path, typer.Argument(help="A finished run directory.")],
    data: Annotated[
        str, typer.Option(metavar="FOLDER|FILE|NAME", help="Images that the model was not trained on, of any size: a "
                          "folder of them, an .npz file with the array images or x, an .npy file, or a dataset by its "
                          "name, such as fashion_mnist, whose test images are taken.")
    ],
    name: Annotated[str | None, typer.Option(help="What to call them; default: the name of --data.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page with figures here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write every number here, as JSON.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    datasets: Annotated[
        str | None, typer.Option(help="The data directory of the run's own dataset, and of one named by --data; "
                                      "default: ENCOURAGING_DATA.")
    ] = None,
) -> None:
    """How well a trained model recognises images that it was not trained on, by the usual scores."""
    from ..commands.ood import score_images

    outputs = Outputs(out, json)
    with errors_in_one_line():
        written = score_images(run, data, name=name, out=out, json_out=json, device=device, datasets=datasets)
    for path in written:
        outputs.say(path)


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
    from ..commands.translate import translate_lines

    with errors_in_one_line():
        translate_lines(run, beam=beam, length_penalty=length_penalty, at_once=batch_size, device=device)


@app.command()
def generate(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run of a language model.")],
    prompt: Annotated[str, typer.Option(help="The beginning of the text; \\n is the end of a line.")] = "\\n",
    length: Annotated[int, typer.Option(min=1, help="How many tokens to write.")] = 500,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Divides the logits. 0 always takes the most probable token.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
) -> None:
    """Write text with a trained language model. Needs no data."""
    from ..commands.generate import write_text

    with errors_in_one_line():
        write_text(run, prompt.replace("\\n", "\n"), length=length, temperature=temperature, seed=seed, device=device)


@app.command("list")
def list_(
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
) -> None:
    """List recipes, losses, datasets (present or missing, and where) and models."""
    from ..commands.list import print_list

    with errors_in_one_line():
        print_list(data)


@app.command()
def doctor(
    data: Annotated[str | None, typer.Option(help="The data directory; default: ENCOURAGING_DATA.")] = None,
) -> None:
    """Show what this machine has, and what to install for what is missing."""
    from ..commands.doctor import print_doctor

    with errors_in_one_line():
        print_doctor(data)
