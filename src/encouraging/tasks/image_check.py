"""Check the settings of an image recipe that depend on each other, before any data is read."""

from __future__ import annotations

from ..data import DATASETS
from ..errors import RecipeError, did_you_mean
from ..plugins import is_reference
from .image_augment import AugmentOptions
from .image_tail import TailOptions
from .spec import TaskSpec


def check_together(spec: TaskSpec, options: AugmentOptions) -> None:
    """Refuse options that do not fit the stages of an arm."""
    objectives = [stage.objective for stage in spec.stages]
    if options.mixup:
        for objective in objectives:
            keys = ("margin", "reweight_from_epoch", "balanced_softmax", "ldam_margin")
            wrong = [key for key in keys if getattr(objective, key)]
            wrong += ["loss"] if objective.loss == "mse" else ["link"] if objective.link == "sigmoid" else []
            wrong += ["logit_scale"] if objective.logit_scale != 1 else []
            if wrong:
                raise RecipeError(f"mixup = {options.mixup:g} with {', '.join(wrong)}: a mixed image has two labels, "
                                  "and these need one. Leave one of the two out.", "options")
    if any(objective.ldam_margin for objective in objectives) and not is_reference(spec.model) \
            and not spec.model_options.get("cosine"):
        raise RecipeError(f"ldam_margin needs logits that are cosines, which those of {spec.model} are not. Add "
                          "model_options = { cosine = true } and a logit_scale such as 30, as in LDAM's paper.",
                          "model_options")
    if len({objective.logit_scale for objective in objectives}) > 1:
        raise RecipeError("logit_scale differs between the stages of an arm, but evaluations multiply the logits by "
                          "one scale. Give every stage the same.", "stages")
    for stage in spec.stages:
        if stage.objective.bonus_divisor and stage.train.accumulate > 1:
            raise RecipeError(f"bonus_divisor with accumulate = {stage.train.accumulate}: two divisors cannot be "
                              "accumulated over batches. Use accumulate = 1 and a larger batch_size.", "train")


def check_tail(data: str, options: TailOptions) -> None:
    """Refuse ``imbalance`` for data that is not a named dataset; named ones check it themselves."""
    if options.imbalance is not None and data not in DATASETS:
        raise RecipeError(f"imbalance = {options.imbalance:g} for {data}: expected a long-tailed dataset such as "
                          "cifar100-lt.", "options")


def classes_by_name(chosen: tuple[str, ...], names: tuple[str, ...], data: str) -> dict[str, int]:
    """The labels of the chosen classes; a class that the data does not have is refused."""
    for name in chosen:
        if name not in names:
            first = f"{', '.join(names[:20])}{', ...' if len(names) > 20 else ''}" if names else "data with class names"
            raise RecipeError(f"profiles = {list(chosen)}: {data} has no class called {name!r}; expected {first}."
                              + did_you_mean(name, names), "options")
    return {name: names.index(name) for name in chosen}
