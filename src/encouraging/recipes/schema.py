"""What a recipe may say. Frozen once read; an unknown key is an error."""

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

NAME = r"^\w[\w.-]{0,99}$"  # a name becomes a folder's
NAME_WORDS = ("a name becomes a folder's, so it is made of letters, digits, '_', '-' and '.', starts with a letter or "
              "digit, and has 100 characters at most")
OTHER = r"\w[\w.-]{0,99}/\w[\w.-]{0,99}"  # an arm of another recipe
MOST_SEEDS = 10_000


class Stage(Frozen):
    """One stage of a training in several; what it leaves out is the recipe's and the arm's own.

    ``reset`` names parts of the model that start anew ("head"), ``freeze`` those that do not learn ("body").
    """

    train: Train | None = None
    objective: ObjectiveConfig | None = None
    sampling: Sampling = Sampling()
    reset: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()

    @field_validator("sampling", mode="before")
    @classmethod
    def _by_name(cls, given: object) -> object:
        return {"kind": given} if isinstance(given, str) else given


class Swept(Frozen):
    """Where an arm of a sweep comes from: the arm it is a copy of, and the keys that were given other values."""

    arm: str
    values: dict[str, Any]


class Arm(ObjectiveConfig):
    """One side of a comparison: what it teaches, and where it differs from the recipe.

    ``after`` names another arm, or ``RECIPE/ARM`` of another recipe: this one starts from its finished weights of the
    same seed. ``swept`` is written by ``encouraging run --sweep``.
    """

    train: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    model_options: dict[str, Any] = Field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    after: str | None = None
    swept: Swept | None = None
    about: str = ""


class Overrides(Frozen):
    """What ``encouraging run FILE --set`` changed of a recipe that does not come with the package: the file's name, the
    overrides as they were given, and per arm the settings that differ from the file's: key, value, and the file's
    value. A recipe of the package that was given another ``name`` is such a recipe too."""

    file: str
    given: tuple[str, ...]
    settings: dict[str, tuple[tuple[str, Any, Any], ...]]


class Recipe(Frozen):
    """A comparison: task, data, model, training, arms, seeds and claims."""

    name: str
    paper: str = ""
    about: str = ""
    departs: str = ""  # from the paper, and why; shown wherever the results are
    stands_in: bool = False  # for an experiment of the paper in another setting: its claims hold or fail here
    formerly: str | None = None  # the name under which runs with these settings were recorded before
    task: str
    data: str = ""
    model: str = ""
    model_options: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    seeds: tuple[int, ...]
    train: Train
    stages: tuple[Stage, ...] = ()
    arms: dict[str, Arm] = Field(min_length=1)
    claims: tuple[Claim, ...] = ()
    attack_images: int | None = Field(default=None, gt=0)  # the first test images that claims under attack are about
    looks: tuple[int, ...] = ()  # the numbers of seeds at which the claims are judged, planned before the first
    overlap: float | None = None  # test over training examples, where seeds are random splits of one dataset
    threads: int | None = Field(default=None, gt=0)
    overrides: Overrides | None = None  # written by ``encouraging run --set``

    _folder: str | None = PrivateAttr(default=None)  # of its file, where modules of one's own are looked for

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, given: str) -> str:
        if not re.fullmatch(NAME, given):
            raise ValueError(f"the recipe {given!r}: {NAME_WORDS}. Rename its file, or say in it name = \"...\"")
        return given

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_seeds(cls, given: object) -> object:
        """A number n means the seeds 0 to n - 1."""
        if isinstance(given, int) and not isinstance(given, bool) and given > MOST_SEEDS:
            raise ValueError(f"{given} seeds: expected {MOST_SEEDS} at most; single ones can be named, as in "
                             f"[{MOST_SEEDS}]")
        seeds = tuple(range(given)) if isinstance(given, int) and not isinstance(given, bool) else given
        if seeds in ((), []):
            raise ValueError(f"{given}: expected how many seeds to train, 1 or more, or a list of them, as in [0, 2]")
        return seeds

    @field_validator("overlap")
    @classmethod
    def _is_fraction(cls, given: float | None) -> float | None:
        if given is not None and not 0 < given <= 1:
            raise ValueError(f"{given:g}: expected the number of test examples over that of training examples, above 0 "
                             "and at most 1, such as 0.125 for 10% and 80%")
        return given

    @field_validator("arms")
    @classmethod
    def _arm_names(cls, given: dict[str, Arm]) -> dict[str, Arm]:
        for name in given:
            if not re.fullmatch(NAME, name):
                raise ValueError(f"the arm {name!r}: {NAME_WORDS}")
        return given

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)}: each only once")
        if outside := [seed for seed in self.seeds if not 0 <= seed < 2**63]:
            raise ValueError(f"the seed {outside[0]}: expected a number from 0 to 2**63 - 1")
        for claim in self.claims:
            for name in (*claim.arms, *(claim.paper if claim.beats is not None else ())):
                if name not in self.arms:
                    raise ValueError(f"a claim on {claim.metric} names the arm {name!r}; there are "
                                     f"{', '.join(self.arms)}.{did_you_mean(name, self.arms)}")
        if self.looks and (list(self.looks) != sorted(set(self.looks)) or self.looks[0] < 3):
            raise ValueError(f"looks {list(self.looks)}: expected rising numbers of seeds, 3 or more")
        for name, arm in self.arms.items():
            if arm.after is not None and arm.after not in self.arms and not re.fullmatch(OTHER, arm.after):
                raise ValueError(f"arm {name} starts after {arm.after!r}; there are {', '.join(self.arms)}, or "
                                 f"RECIPE/ARM of another recipe.{did_you_mean(arm.after, self.arms)}")
            self._check_chain(name)
            if arm.after is None and not arm.train.get("epochs", self.train.epochs):
                raise ValueError("train.epochs = 0: expected a number greater than 0; only an arm that starts after "
                                 "another one can be evaluated without training")
        return self

    def _check_chain(self, arm: str) -> None:
        """Arms that start after each other must have a first one."""
        chain = [arm]
        while (before := self.arms[chain[-1]].after) is not None and before in self.arms:
            if before in chain:
                raise ValueError(f"the arms {', '.join(chain)} start after each other: none could be the first")
            chain.append(before)

    def stages_of(self, arm: str) -> tuple[StageSpec, ...]:
        """An arm's training, stage by stage."""
        own = self.arms[arm]
        base = Train(**{**self.train.model_dump(exclude_unset=True), **own.train})
        return tuple(StageSpec(stage.train or base, stage.reset, stage.freeze, stage.objective or own, stage.sampling)
                     for stage in own.stages or self.stages or (Stage(),))

    def task_spec(self, arm: str, seed: int = 0, device: torch.device | None = None,
                  root: str | None = None) -> TaskSpec:
        """What the task of this arm and seed is made from."""
        return TaskSpec(self.data, self.model, self.stages_of(arm), seed, device or torch.device("cpu"), root,
                        {**self.options, **self.arms[arm].options},
                        {**self.model_options, **self.arms[arm].model_options}, self._folder)

    def needs(self, arm: str | None = None) -> Needs:
        """What the task needs and measures; the first arm speaks for all unless one is named."""
        return check_task(self.task, self.task_spec(arm or next(iter(self.arms))))

    def config(self, arm: str, seed: int) -> dict[str, Any]:
        """All that a run's numbers may depend on, as JSON holds it; words about it and what is claimed do not count.

        Keys that came later than the first records stand in it only where they are used: see :meth:`_later`.
        """
        stages, needs = self.stages_of(arm), self.needs(arm)
        primary, options = needs.primary, {**self.options, **self.arms[arm].options}
        config: dict[str, Any] = {
            "recipe": self.name, "arm": arm, "seed": seed,
            "task": self.task, "data": self.data, "model": self.model,
            "options": {key: value for key, value in options.items() if key not in needs.incidental},
            "objectives": [_objective(stage.objective) for stage in stages],
            "train": [stage.train.config() for stage in stages],
        }
        for train in config["train"]:
            if train["monitor"] is None and primary is not None:
                train["monitor"], train["better"] = primary.path, primary.better
        return config | self._later(arm, stages)

    def _later(self, arm: str, stages: tuple[StageSpec, ...]) -> dict[str, Any]:
        """Options of the model, and what stages do beside training."""
        options = {**self.model_options, **self.arms[arm].model_options}
        more: dict[str, Any] = {"model_options": options} if options else {}
        if self.arms[arm].after is not None:
            more["after"] = self.arms[arm].after
        doing = [{"sampling": stage.sampling.model_dump(), "reset": list(stage.reset), "freeze": list(stage.freeze)}
                 for stage in stages]
        if any(stage != {"sampling": Sampling().model_dump(), "reset": [], "freeze": []} for stage in doing):
            more["stages"] = doing
        return more

    def about_runs(self, arm: str) -> dict[str, Any]:
        """What a run directory keeps for reports beside its config: the metrics, and the recipe with its claims."""
        metrics = [metric._asdict() for metric in self.needs(arm).metrics]
        for metric in metrics:
            metric["low"], metric["high"] = (None if abs(end) == float("inf") else end
                                             for end in (metric["low"], metric["high"]))
        return {"metrics": metrics, "recipe": self.model_dump(mode="json", exclude_unset=True) | {"name": self.name}}


LATER_KEYS: dict[str, Any] = {"ignore_index": None, "divisor": "weights", "changes": [], "bonus_divisor": None,
                              "balanced_softmax": False, "ldam_margin": None, "logit_scale": 1.0,
                              "logit_norm": None, "alpha": None, "halt_on": "likelihood"}


def _objective(objective: ObjectiveConfig) -> dict[str, Any]:
    other = {"about", "train", "options", "model_options", "stages", "after", "swept"}
    whole = objective.model_dump(mode="json", exclude=other)
    return {key: value for key, value in whole.items() if key not in LATER_KEYS or value != LATER_KEYS[key]}
