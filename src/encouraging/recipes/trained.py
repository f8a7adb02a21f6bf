"""Finished runs as models again: the recipe that a run has kept rebuilds its task, and its weights are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from ..data import absent, data_dir, missing
from ..engine import RunDir
from ..errors import DataError, RecipeError, RunError
from ..models.normalised import Normalised
from ..tasks import TaskSpec, build_task, check_task
from ..tasks.image import ImageTask
from .schema import Recipe


@dataclass(frozen=True)
class TrainedImages:
    """A finished run of image classification: its recipe, its task with the data, and its model.

    ``model`` takes what the task's ``normalise`` gives; ``unit_model`` takes images in [0, 1], cut to the model's size;
    ``attacked_model`` takes them as the data has them.
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
        RunError: a path is no directory, or there is no finished run below it.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise RunError(f"{path}: expected a run directory, or a folder of them.")
        runs = sorted(final.parent for final in path.rglob("final.json") if (final.parent / "config.json").is_file())
        if not runs:
            raise RunError(f"{path}: no finished run is below it: none has a final.json. Train one with `encouraging "
                           "run`.")
        found |= dict.fromkeys(runs)
    return list(found)


def load_trained(folder: str | Path, device: torch.device, data: str | None = None, *,
                 option: str = "--data") -> TrainedImages:
    """Rebuild the task and the model of a finished run of image classification.

    Args:
        folder: the run directory.
        device: where the data and the model go.
        data: the data directory; by default that of the environment.
        option: the option of the command that names that directory, for the message where it lacks the data.

    Raises:
        RunError: it is no finished run, has kept no weights or no recipe, or is not about images.
        DataError: the data is not where it is looked for.
    """
    folder = Path(folder)
    recipe, arm, seed, spec = finished_run(folder, device, data)
    spec = _own_data(spec)
    if lost := _absent_data(folder, recipe, spec, data, option):
        raise DataError(lost)
    try:
        task = build_task(recipe.task, spec)
    except (RecipeError, DataError) as error:
        raise type(error)(f"{folder}: {error} {_where(recipe)}".rstrip()) from error
    if not isinstance(task, ImageTask):
        raise RunError(f"{folder}: its task is {recipe.task!r}; expected one of image classification.")
    model = task.build()
    model.load_state_dict(load_run_weights(folder, model))
    return TrainedImages(folder, recipe, arm, seed, task, model.eval())


def check_run_data(folders: Iterable[Path], device: torch.device, data: str | None = None, *,
                   option: str = "--data") -> None:
    """Refuse runs before the first is used where none of them has its data.

    Raises:
        DataError: the data of every run is missing; with one message for each dataset.
    """
    messages: dict[str, None] = {}
    for folder in folders:
        try:
            recipe, _, _, spec = finished_run(folder, device, data)
            lost = _absent_data(folder, recipe, _own_data(spec), data, option)
        except (RunError, RecipeError, DataError):
            return  # told by the run itself, where it is used
        if not lost:
            return
        messages[lost] = None
    if messages:
        raise DataError("\n".join(messages))


def _own_data(spec: TaskSpec) -> TaskSpec:
    """Other data than its own is not needed to use a model."""
    return replace(spec, options={key: value for key, value in spec.options.items() if not key.startswith("ood")})


def _absent_data(folder: Path, recipe: Recipe, spec: TaskSpec, data: str | None, option: str) -> str:
    """What is missing of a run's data, and how to get it; nothing where it is there."""
    try:
        needs = check_task(recipe.task, spec)
    except RecipeError as error:
        raise RunError(f"{folder}: {error} {_where(recipe)}".rstrip()) from error
    return "\n".join(absent(name, splits, data_dir(data), fetch="`encouraging run RECIPE --download`", option=option)
                     for name, splits in needs.datasets if missing(name, data_dir(data), splits))


def finished_run(folder: Path, device: torch.device, data: str | None = None) -> tuple[Recipe, str, int, TaskSpec]:
    """The recipe, the arm and the seed of a finished run, and its task as it is rebuilt on a device.

    Raises:
        RunError: it is no finished run, or has kept no recipe.
    """
    run = RunDir(folder)
    if not run.done:
        below = sorted(final.parent for final in folder.rglob("final.json") if (final.parent / "config.json").is_file())
        todo = (f"Finished runs are below it, such as {below[0]}." if below else
                "Continue or train it with `encouraging run`." if folder.is_dir() else "There is no such folder.")
        raise RunError(f"{folder}: expected the directory of a finished run, and it has no final.json. {todo}")
    config = run.read_config()
    try:
        arm, seed = str(config["asked"]["arm"]), int(config["asked"]["seed"])
        recipe = Recipe(**config["recipe"])
        spec = recipe.task_spec(arm, seed, device, data)
    except RecipeError as error:
        raise RunError(f"{folder}: {error} {_where(recipe)}".rstrip()) from error
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder}: its config.json has no recipe from which the model could be rebuilt "
                       f"({type(error).__name__}: {error}). Train it again with `encouraging run`.") from error
    return recipe, arm, seed, spec


def _where(recipe: Recipe) -> str:
    """Runs do not keep the folder of their recipe, beside which modules and images of one's own are looked for."""
    own = [name for name in (recipe.task, recipe.data, recipe.model) if ":" in name]
    return f"Start this command in a folder from which {' and '.join(own)} can be found." if own else ""


def load_run_weights(folder: Path, model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights that a run has kept, refused where they are not those of this model."""
    path = folder / "weights.safetensors"
    try:
        weights = safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: the weights cannot be read ({error}). Train the run again with `encouraging run`."
                       ) from error
    own = {name: tensor.shape for name, tensor in model.state_dict().items()}
    other = {name: tensor.shape for name, tensor in weights.items()}
    if own != other:
        names = sorted(name for name in {*own, *other} if own.get(name) != other.get(name))
        raise RunError(f"{path}: the weights are not those of the model that the recipe describes; {names[0]} differs. "
                       "Train the run again with `encouraging run`.")
    return weights
