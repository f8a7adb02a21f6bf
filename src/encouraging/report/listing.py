"""``encouraging list`` and ``encouraging doctor``: what there is, and what this machine has."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .. import __version__, curves
from ..data import DATASETS, VARIABLE, data_dir, missing
from ..engine.environment import has
from ..models import MODELS
from ..recipes import names, read_recipe

# What an extra is for, and the modules that tell whether it is there.
EXTRAS = {
    "vision": (("torchvision", "timm"), "ResNet-50, EfficientNet, ImageNet"),
    "graph": (("torch_geometric",), "PROTEINS and NCI1"),
    "translation": (("tokenizers", "sacrebleu"), "IWSLT"),
    "attacks": (("pyautoattack",), "AutoAttack"),
    "detection": (("torchvision", "pycocotools"), "COCO"),
    "sweep": (("ray",), "--ray"),
    "tracking": (("tensorboard",), "--track tensorboard"),
}


def print_list(console: Console, data: str | None = None) -> None:
    """Recipes with the table they come from, losses, datasets and where they are, models."""
    recipes = _table("recipes", "name", "paper", "data", "model", "arms", "seeds")
    for name in names():
        recipe = read_recipe(name)
        recipes.add_row(name, recipe.paper or "-", recipe.data, recipe.model, ", ".join(recipe.arms),
                        str(len(recipe.seeds)))
    console.print(recipes)
    losses = _table("losses", "curve", "parameters")
    for name in curves.names():
        losses.add_row(name, _parameters(name))
    losses.add_row("mse (loss = \"mse\")", "link, bonus")
    console.print(losses)
    console.print(_datasets(data)[0])
    models = _table("models", "name", "what it is")
    for name, build in MODELS.items():
        models.add_row(name, (build.__doc__ or "").splitlines()[0])
    console.print(models)


def print_doctor(console: Console, data: str | None = None) -> None:
    """Versions, GPU, Triton, threads, extras and datasets; for what is missing, what to install."""
    import torch

    machine, advice = _table("this machine", "what", "found"), []
    machine.add_row("encouraging", __version__)
    machine.add_row("torch", torch.__version__)
    if not _recent(torch.__version__):
        advice.append(("pip install 'torch>=2.11'", "everything here"))
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(index).total_memory / 2**30
            machine.add_row(f"GPU {index}", f"{torch.cuda.get_device_name(index)}, {memory:.0f} GiB")
    else:
        machine.add_row("GPU", "none: everything runs on the CPU")
    machine.add_row("Triton", _triton() or "none: it comes with torch's CUDA builds")
    machine.add_row("threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores, "
                    f"{torch.backends.cpu.get_cpu_capability()}")
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    machine.add_row("C++ compiler", compiler or "none")
    if compiler is None:
        advice.append(("apt install g++", "torch.compile on a CPU"))
    for extra, (modules, purpose) in EXTRAS.items():
        absent = [module for module in modules if not has(module)]
        machine.add_row(f"extra: {extra}", "present" if not absent else f"no {', '.join(absent)}")
        if absent:
            advice.append((f"pip install 'encouraging-loss[{extra}]'", purpose))
    console.print(machine)
    datasets, missing_some = _datasets(data)
    console.print(datasets)
    if missing_some:
        advice.append(("encouraging run RECIPE --download", f"a recipe's data (or point --data or {VARIABLE} at it)"))
    if advice:
        console.print("to have what is missing:", style="bold")
        width = max(len(command) for command, _ in advice)
        for command, purpose in advice:  # outside the table, where no column can break a command
            console.print(f"  {command:{width}}  # {purpose}", markup=False, highlight=False, soft_wrap=True)


def _datasets(data: str | None) -> tuple[Table, bool]:
    """What there is, and whether anything is missing."""
    folder, some = data_dir(data), False
    table = _table(f"datasets in {folder}", "name", "training part", "test part")
    for name, known in DATASETS.items():
        absent = {split: missing(name, folder, (split,)) for split in ("train", "test")}
        where = "in scikit-learn" if not known.test else str(Path(known.test[0].path).parent)
        cells = ["missing" if absent[split] else where for split in ("train", "test")]
        table.add_row(name, *cells)
        some = some or any(absent.values())
    return table, some


def _parameters(name: str) -> str:
    import inspect

    signature = inspect.signature(getattr(curves, name))
    return ", ".join(str(parameter).replace(": 'float'", "").replace(": 'bool'", "")
                     for parameter in signature.parameters.values()) or "-"


def _triton() -> str | None:
    if not has("triton"):
        return None
    return str(getattr(importlib.import_module("triton"), "__version__", "present"))


def _recent(version: str) -> bool:
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (2, 11)


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
