"""Load the models of finished runs: a run's task is rebuilt from the recipe that it has stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from ..data import absent, data_dir, missing
from ..engine import RunDir
from ..engine.weights import load_run_weights
from ..errors import DataError, RecipeError, RunError
from ..models.normalised import Normalised
from ..tasks import TaskSpec, build_task, check_task
from ..tasks.image import ImageTask
from .schema import Recipe

Vocabulary = TypeVar("Vocabulary")


@dataclass(frozen=True)
class TrainedImages:
    """A finished run of image classification: its recipe, its task with the data, and its model.

    ``model`` takes normalised images (the task's ``normalise``); ``unit_model`` takes images in [0, 1] of the model's
    size; ``attacked_model`` takes images in [0, 1] of the data's size.
    """

    folder: Path
    recipe: Recipe
    arm: str
    seed: int
    task: ImageTask
    model: nn.Module

    @property
    def name(self) -> str:
        return f"{self.recipe.name} {self.arm} seed {self.seed}"

    @property
    def unit_model(self) -> Normalised:
        return self.task.unit_model(self.model).eval()

    @property
    def attacked_model(self) -> Normalised:
        return self.task.attacked_model(self.model).eval()


def run_folders(paths: Iterable[str | Path]) -> list[Path]:
    """The finished runs at or below these paths, each once, in order.

    Raises:
        RunError: a path is not a directory, or there is no finished run below it.
    """
    folders: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise RunError(f"{path}: expected a run directory, or a folder of them.")
        runs = _finished_below(path)
        if not runs:
            raise RunError(f"{path}: no finished run is below it: none has a final.json. Train one with `encouraging "
                           "run`.")
        folders |= dict.fromkeys(runs)
    return list(folders)


def _finished_below(path: Path) -> list[Path]:
    return sorted(final.parent for final in path.rglob("final.json") if (final.parent / "config.json").is_file())


def load_trained(folder: str | Path, device: torch.device, data: str | None = None, *,
                 option: str = "--data") -> TrainedImages:
    """Rebuild the task and the model of a finished run of image classification.

    Args:
        folder: the run directory.
        device: where the data and the model go.
        data: the data directory; by default that of the environment.
        option: the command-line option that names this directory, for the message if data is missing.

    Raises:
        RunError: it is not a finished run, has no weights or no recipe, or is not a run of image classification.
        DataError: the data is missing.
    """
    folder = Path(folder)
    recipe, arm, seed, spec = finished_run(folder, device, data)
    spec = _without_ood(spec)
    if message := _missing_data(folder, recipe, spec, data, option):
        raise DataError(message)
    try:
        task = build_task(recipe.task, spec)
    except (RecipeError, DataError) as error:
        raise type(error)(f"{folder}: {error} {_folder_advice(recipe)}".rstrip()) from error
    if not isinstance(task, ImageTask):
        raise RunError(f"{folder}: its task is {recipe.task!r}; expected one of image classification.")
    model = task.build()
    model.load_state_dict(load_run_weights(folder, model))
    return TrainedImages(folder, recipe, arm, seed, task, model.eval())


def check_run_data(folders: Iterable[Path], device: torch.device, data: str | None = None) -> None:
    """Refuse runs, before the first is used, if none of them has its data.

    Raises:
        DataError: the data of every run is missing; with one message per dataset.
    """
    messages: dict[str, None] = {}
    for folder in folders:
        try:
            recipe, _, _, spec = finished_run(folder, device, data)
            message = _missing_data(folder, recipe, _without_ood(spec), data, "--data")
        except (RunError, RecipeError, DataError):
            return  # reported when the run is used
        if not message:
            return
        messages[message] = None
    if messages:
        raise DataError("\n".join(messages))


def _without_ood(spec: TaskSpec) -> TaskSpec:
    """Using a model needs no out-of-distribution data."""
    return replace(spec, options={key: value for key, value in spec.options.items() if not key.startswith("ood")})


def _missing_data(folder: Path, recipe: Recipe, spec: TaskSpec, data: str | None, option: str) -> str:
    """Which data of a run is missing, and how to get it; an empty string if there is nothing missing."""
    try:
        needs = check_task(recipe.task, spec)
    except RecipeError as error:
        raise RunError(f"{folder}: {error} {_folder_advice(recipe)}".rstrip()) from error
    return "\n".join(absent(name, splits, data_dir(data), fetch="`encouraging run RECIPE --download`", option=option)
                     for name, splits in needs.datasets if missing(name, data_dir(data), splits))


def finished_run(folder: Path, device: torch.device, data: str | None = None) -> tuple[Recipe, str, int, TaskSpec]:
    """The recipe, arm and seed of a finished run, and the spec of its task on a device.

    Raises:
        RunError: it is not a finished run, or has stored no recipe.
    """
    run = RunDir(folder)
    if not run.done:
        below = _finished_below(folder)
        advice = (f"Finished runs are below it, such as {below[0]}." if below else
                  "Continue or train it with `encouraging run`." if folder.is_dir() else
                  "It is a file. Logits from elsewhere are read by `encouraging diagnose`, out-of-distribution ones "
                  "beside them under the name ood_logits." if folder.is_file() else "There is no such folder.")
        raise RunError(f"{folder}: expected the directory of a finished run, and it has no final.json. {advice}")
    config = run.read_config()
    try:
        arm, seed = str(config["asked"]["arm"]), int(config["asked"]["seed"])
        recipe = Recipe(**config["recipe"])
        spec = recipe.task_spec(arm, seed, device, data)
    except RecipeError as error:
        raise RunError(f"{folder}: {error} {_folder_advice(recipe)}".rstrip()) from error
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder}: its config.json has no recipe from which the model could be rebuilt "
                       f"({type(error).__name__}: {error}). Train it again with `encouraging run`.") from error
    return recipe, arm, seed, spec


def read_vocabulary(folder: Path, recipe: Recipe, task: str, subject: str, name: str,
                    read: Callable[[bytes], Vocabulary]) -> Vocabulary:
    """The vocabulary of a run that needs no data to be used; ``name`` is that of its file, ``subject`` what it does.

    Raises:
        RunError: it is not a run of this task, or its vocabulary is missing or damaged.
    """
    path = folder / "files" / name
    if recipe.task != task or not path.is_file():
        raise RunError(f"{folder}: its task is {recipe.task!r}; expected a finished run of {subject}, with its "
                       f"vocabulary in {path}.")
    try:
        return read(path.read_bytes())
    except DataError as error:
        raise RunError(f"{path}: {error} Train the run again with `encouraging run`.") from error


def rebuilt(folder: Path, spec: TaskSpec, device: torch.device, build: Callable[[], nn.Module]) -> nn.Module:
    """The model of a run with its final weights, for evaluation on a device.

    Raises:
        RunError: its weights are missing or damaged.
        RecipeError: it is your own function, which cannot be found.
    """
    try:
        model = build()
    except RecipeError as error:
        raise RecipeError(f"{folder}: {error} {_found_words([spec.model])}".rstrip()) from error
    model.load_state_dict(load_run_weights(folder, model))
    return model.to(device).eval()


def _folder_advice(recipe: Recipe) -> str:
    return _found_words([recipe.task, recipe.data, recipe.model])


def _found_words(names: Iterable[str]) -> str:
    """Runs do not store the folder of their recipe, in which your own modules and images are found."""
    own = [name for name in names if ":" in name]
    return f"Start this command in a folder from which {' and '.join(own)} can be found." if own else ""
