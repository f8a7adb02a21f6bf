"""``encouraging doctor``: what this machine has, and what to install for what is missing."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.markup import escape

from .. import __version__
from ..data import VARIABLE
from ..engine.environment import has
from ..errors import matching_builds
from .import_checks import import_failures
from .inventory import dataset_table, new_table

# Packages that are not needed but used where they are installed, and what for.
OPTIONAL = {
    "timm": 'networks: model = "timm/NAME"',
    "torchvision": 'networks: model = "torchvision/NAME"',
    "torch_geometric": 'networks for graphs: model = "torch_geometric/NAME"',
    "tokenizers": 'translation: task = "translation"; language models on pieces of words',
    "sacrebleu": 'translation: task = "translation"',
    "pycocotools": 'average precision: task = "detection"',
    "simplejpeg": 'JPEG files are decoded faster: task = "image_files"',
    "pyautoattack": "attacks: AutoAttack",
    "transformers": "any curve in its models: encouraging.integrations.transformers",
    "keras": "losses for it: encouraging.integrations.keras",
    "jax": "losses for it: encouraging.integrations.jax",
    "ray": "encouraging run --ray",
    "tensorboard": "encouraging run --track tensorboard",
}


def print_doctor(data: str | None = None, console: Console | None = None) -> None:
    """Versions, GPU, Triton, threads, optional packages and datasets; for what is missing, what to install.

    Optional packages are imported, in another process: one that is installed may still not work with this torch.
    """
    console = console or Console()
    machine, advice = new_table("this machine", "what", "found"), []
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
        install = "apt install g++" if shutil.which("apt") else "install g++ or clang++"
        advice.append((install, "torch.compile on a CPU"))
    failures = _try_imports([package for package in OPTIONAL if has(package)], console)
    for package, purpose in OPTIONAL.items():
        failed = failures.get(package)
        machine.add_row(package, "none" if failed is None else
                        f"installed, but does not import: {escape(failed)}" if failed else "present")
        if failed is None:
            advice.append((f"pip install {package}", purpose))
        elif failed:
            advice.append(_repair(package, failed))
    console.print(machine)
    datasets, any_missing = dataset_table(data)
    console.print(datasets)
    if any_missing:
        advice.append(("encouraging run RECIPE --download", f"a recipe's data (or point --data or {VARIABLE} at it)"))
    if advice:
        console.print("to get what is missing:", style="bold")
        width = max(len(command) for command, _ in advice)
        for command, purpose in dict.fromkeys(advice):  # outside the table, where no column can break a command
            console.print(f"  {command:{width}}  # {purpose}", markup=False, highlight=False, soft_wrap=True)


def _try_imports(packages: Sequence[str], console: Console) -> dict[str, str]:
    """What the import of each package ended with: nothing, or the last line of its error."""
    if not packages:
        return {}
    with console.status(f"importing {packages[0]}") as status:  # shows nothing where there is no terminal
        failures: dict[str, str] = {}
        for package, failed in import_failures(packages):
            failures[package] = failed
            if len(failures) < len(packages):
                status.update(f"importing {packages[len(failures)]}")
        return failures


def _repair(package: str, failed: str) -> tuple[str, str]:
    """The command that makes a package work which does not import, and what it does."""
    if package == "torchvision" or "torchvision" in failed:  # timm imports torchvision
        return matching_builds("torchvision"), "torch and torchvision from one index: both CPU or both CUDA builds"
    return f"pip install --force-reinstall {package}", f"{package} does not import: {failed}"


def _triton() -> str | None:
    if not has("triton"):
        return None
    return str(getattr(importlib.import_module("triton"), "__version__", "present"))


def _recent(version: str) -> bool:
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (2, 11)
