"""The keys of a recipe. Recipes are frozen once read; an unknown key is an error."""

from __future__ import annotations

import re
from typing import Any, Self

import torch
from pydantic import Field, PrivateAttr, field_validator, model_validator

from ..engine import Needs
from ..engine.settings import Frozen, Train
from ..errors import did_you_mean
from ..tasks import ObjectiveConfig, Sampling, StageSpec, TaskSpec, check_task
from .claim import Claim

NAME = r"^\w[\w.-]{0,99}$"  # also the name of a folder
NAME_RULE = ("expected letters, digits, '_', '-' and '.', with a letter or digit first, and 100 characters at most, "
             "because a folder gets this name")
ARM_OF_OTHER_RECIPE = r"\w[\w.-]{0,99}/\w[\w.-]{0,99}"
MOST_SEEDS = 10_000


class Stage(Frozen):
    """One of several stages of training; the defaults of ``train`` and ``objective`` are those of the recipe and arm.

    ``reset`` names parts of the model that are initialised again ("head"), ``freeze`` parts that do not learn ("body").
    """

    train: Train | None = None
    objective: ObjectiveConfig | None = None
    sampling: Sampling = Sampling()
    reset: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()

    @field_validator("sampling", mode="before")
    @classmethod
    def _accept_name(cls, value: object) -> object:
        return {"kind": value} if isinstance(value, str) else value


class Swept(Frozen):
    """The origin of an arm of a sweep: the arm of which it is a copy, and the keys that have other values."""

    arm: str
    values: dict[str, Any]


class Arm(ObjectiveConfig):
    """One arm of a comparison: its loss, and its differences from the recipe.

    ``after`` names another arm, or ``RECIPE/ARM`` of another recipe: this arm starts from its final weights of the same
    seed. ``swept`` is written by ``encouraging run --sweep``.
    """

    train: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    model_options: dict[str, Any] = Field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    after: str | None = None
    swept: Swept | None = None
    about: str = ""


class Overrides(Frozen):
    """What ``encouraging run FILE --set`` changed in a recipe that does not come with the package: the name of the
    file, the overrides as given, and per arm the settings that differ from the file: key, value, and value of the file.
    A recipe of the package with another ``name`` is such a recipe too."""

    file: str
    given: tuple[str, ...]
    settings: dict[str, tuple[tuple[str, Any, Any], ...]]


class Recipe(Frozen):
    """A comparison: task, data, model, training, arms, seeds and claims."""

    name: str
    paper: str = ""
    about: str = ""
    departs: str = ""  # differences from the paper and their reasons; shown with the results
    stands_in: bool = False  # a substitute for an experiment of the paper: its claims hold or fail in this setting
    formerly: str | None = None  # an earlier name, under which runs with these settings may be recorded
    task: str
    data: str = ""
    model: str = ""
    model_options: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    seeds: tuple[int, ...]
    train: Train
    stages: tuple[Stage, ...] = ()
    arms: dict[str, Arm]
    claims: tuple[Claim, ...] = ()
    attack_images: int | None = Field(default=None, gt=0)  # the number of test images for claims under attack
    looks: tuple[int, ...] = ()  # the numbers of seeds at which the claims are judged, planned before the first
    overlap: float | None = None  # test examples over training examples, if seeds are random splits of one dataset
    threads: int | None = Field(default=None, gt=0, le=1024)  # of 16384 OpenMP dies
    overrides: Overrides | None = None  # written by ``encouraging run --set``

    _folder: str | None = PrivateAttr(default=None)  # the folder of its file, where your own modules are found

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not re.fullmatch(NAME, name):
            raise ValueError(f"the recipe {name!r}: {NAME_RULE}. Rename its file, or add name = \"...\" to it")
        return name

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_seeds(cls, value: object) -> object:
        """A number n means the seeds 0 to n - 1."""
        if isinstance(value, int) and not isinstance(value, bool) and value > MOST_SEEDS:
            raise ValueError(f"{value} seeds: expected {MOST_SEEDS} at most; give a single larger seed as a list, as "
                             f"in [{MOST_SEEDS}]")
        seeds = tuple(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value
        if seeds in ((), []):
            raise ValueError(f"{value}: expected a number of seeds, 1 or more, or a list of seeds, as in [0, 2]")
        return seeds

    @field_validator("overlap")
    @classmethod
    def _check_overlap(cls, overlap: float | None) -> float | None:
        if overlap is not None and not 0 < overlap <= 1:
            raise ValueError(f"{overlap:g}: expected the number of test examples over that of training examples, above "
                             "0 and at most 1, such as 0.125 for 10% and 80%")
        return overlap

    @field_validator("arms")
    @classmethod
    def _check_arm_names(cls, arms: dict[str, Arm]) -> dict[str, Arm]:
        if not arms:
            raise ValueError("expected at least one arm, as in arms.ce = { curve = \"cross_entropy\" }")
        for name in arms:
            if not re.fullmatch(NAME, name):
                raise ValueError(f"the arm {name!r}: {NAME_RULE}")
        return arms

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)}: expected each only once")
        if outside := [seed for seed in self.seeds if not 0 <= seed < 2**63]:
            raise ValueError(f"the seed {outside[0]}: expected a number from 0 to 2**63 - 1")
        for claim in self.claims:
            for name in (*claim.arms, *(claim.paper if claim.beats is not None else ())):
                if name not in self.arms:
                    raise ValueError(f"a claim on {claim.metric} names the arm {name!r}; there are "
                                     f"{', '.join(self.arms)}.{did_you_mean(name, self.arms)}")
        if self.looks and (list(self.looks) != sorted(set(self.looks)) or self.looks[0] < 3):
            raise ValueError(f"looks {list(self.looks)}: expected increasing numbers of seeds, 3 or more")
        for name, arm in self.arms.items():
            if arm.after is not None and arm.after not in self.arms \
                    and not re.fullmatch(ARM_OF_OTHER_RECIPE, arm.after):
                raise ValueError(f"arm {name} starts after {arm.after!r}; there are {', '.join(self.arms)}, or "
                                 f"RECIPE/ARM of another recipe.{did_you_mean(arm.after, self.arms)}")
            self._check_chain(name)
            first = (arm.stages or self.stages or (Stage(),))[0].train
            if arm.after is None and not (first.epochs if first else arm.train.get("epochs", self.train.epochs)):
                raise ValueError("train.epochs = 0: expected a number greater than 0; only an arm that starts after "
                                 "another one can be evaluated without training")
        return self

    def _check_chain(self, arm: str) -> None:
        """Refuse arms that start after each other in a cycle."""
        chain = [arm]
        while (earlier := self.arms[chain[-1]].after) is not None and earlier in self.arms:
            if earlier in chain:
                raise ValueError(f"the arms {', '.join(chain)} start after each other: none could be the first. Remove "
                                 "one after")
            chain.append(earlier)

    def stages_of(self, arm: str) -> tuple[StageSpec, ...]:
        """An arm's training, stage by stage."""
        own = self.arms[arm]
        base = Train(**{**self.train.model_dump(exclude_unset=True), **own.train})
        return tuple(StageSpec(stage.train or base, stage.reset, stage.freeze,
                               (stage.objective or own).found_in(self._folder), stage.sampling)
                     for stage in own.stages or self.stages or (Stage(),))

    def task_spec(self, arm: str, seed: int = 0, device: torch.device | None = None,
                  root: str | None = None) -> TaskSpec:
        """The spec of the task of this arm and seed."""
        return TaskSpec(self.data, self.model, self.stages_of(arm), seed, device or torch.device("cpu"), root,
                        {**self.options, **self.arms[arm].options},
                        {**self.model_options, **self.arms[arm].model_options}, self._folder)

    def needs(self, arm: str | None = None) -> Needs:
        """What the task needs and measures, for the given arm or else the first one."""
        return check_task(self.task, self.task_spec(arm or next(iter(self.arms))))

    def config(self, arm: str, seed: int) -> dict[str, Any]:
        """Everything that a run's numbers may depend on, as JSON holds it; without descriptions and claims.

        Keys that the first records did not have are included only if they are used: see :meth:`_later_keys`.
        """
        stages, needs = self.stages_of(arm), self.needs(arm)
        primary, options = needs.primary, {**self.options, **self.arms[arm].options}
        config: dict[str, Any] = {
            "recipe": self.name, "arm": arm, "seed": seed,
            "task": self.task, "data": self.data, "model": self.model,
            "options": {key: value for key, value in options.items() if key not in needs.incidental},
            "objectives": [stage.objective.config() for stage in stages],
            "train": [stage.train.config() for stage in stages],
        }
        for train in config["train"]:
            if train["monitor"] is None and primary is not None:
                train["monitor"], train["better"] = primary.path, primary.better
        return config | self._later_keys(arm, stages)

    def _later_keys(self, arm: str, stages: tuple[StageSpec, ...]) -> dict[str, Any]:
        """Options of the model, the arm whose weights it starts from, and sampling, resets and freezes of stages."""
        options = {**self.model_options, **self.arms[arm].model_options}
        keys: dict[str, Any] = {"model_options": options} if options else {}
        if self.arms[arm].after is not None:
            keys["after"] = self.arms[arm].after
        stage_configs = [{"sampling": stage.sampling.model_dump(), "reset": list(stage.reset),
                          "freeze": list(stage.freeze)} for stage in stages]
        default = {"sampling": Sampling().model_dump(), "reset": [], "freeze": []}
        if any(config != default for config in stage_configs):
            keys["stages"] = stage_configs
        return keys

    def about_runs(self, arm: str) -> dict[str, Any]:
        """What a run directory stores for reports in addition to its config: the metrics, and the recipe with its
        claims."""
        metrics = [metric._asdict() for metric in self.needs(arm).metrics]
        for metric in metrics:
            metric["low"], metric["high"] = (None if abs(end) == float("inf") else end
                                             for end in (metric["low"], metric["high"]))
        return {"metrics": metrics, "recipe": self.model_dump(mode="json", exclude_unset=True) | {"name": self.name}}
