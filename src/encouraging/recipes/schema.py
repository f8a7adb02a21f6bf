"""What a recipe may say. Frozen once read; an unknown key is an error."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ..engine.settings import Frozen, Train
from ..tasks import Objective


class Arm(Objective):
    """One side of a comparison: what it teaches, and where its training differs from the recipe's."""

    train: dict[str, Any] = Field(default_factory=dict)
    about: str = ""


class Claim(Frozen):
    """What the paper says: one arm beats another on a number of ``final.json``."""

    metric: str
    arm: str
    beats: str
    better: Literal["higher", "lower"] = "higher"
    paper: dict[str, float] = Field(default_factory=dict)


class Stage(Frozen):
    """A second stage: a new output layer on fixed features."""

    train: Train
    objective: Objective = Field(default_factory=Objective)


class Recipe(Frozen):
    """A comparison: task, data, model, training, arms, seeds and claims."""

    name: str = Field(pattern=r"^\w[\w.-]*$")  # it becomes a folder's name
    paper: str = ""
    about: str = ""
    departs: str = ""  # from the paper, and why; shown wherever the results are
    task: str
    data: str
    model: str
    options: dict[str, Any] = Field(default_factory=dict)
    seeds: tuple[int, ...] = Field(min_length=1)
    train: Train
    stage2: Stage | None = None
    arms: dict[str, Arm] = Field(min_length=1)
    claims: tuple[Claim, ...] = ()
    overlap: float | None = Field(default=None, gt=0)
    threads: int | None = Field(default=None, gt=0)

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_seeds(cls, given: object) -> object:
        """A number n means the seeds 0 to n - 1."""
        return tuple(range(given)) if isinstance(given, int) and not isinstance(given, bool) else given

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)}: each only once")
        for claim in self.claims:
            for name in (claim.arm, claim.beats, *claim.paper):
                if name not in self.arms:
                    raise ValueError(f"a claim on {claim.metric} names the arm {name!r}; there are "
                                     f"{', '.join(self.arms)}")
        return self

    def plan(self, arm: str) -> tuple[Train, ...]:
        """The stages of an arm's training."""
        first = Train(**{**self.train.model_dump(exclude_unset=True), **self.arms[arm].train})
        return (first,) if self.stage2 is None else (first, self.stage2.train)

    def objectives(self, arm: str) -> tuple[Objective, ...]:
        """What each stage teaches."""
        return (self.arms[arm],) if self.stage2 is None else (self.arms[arm], self.stage2.objective)

    def asked(self, arm: str, seed: int) -> dict[str, Any]:
        """All that a run's numbers may depend on, as JSON holds it; words about it and what is claimed do not count."""
        return {
            "recipe": self.name, "arm": arm, "seed": seed,
            "task": self.task, "data": self.data, "model": self.model, "options": self.options,
            "objectives": [o.model_dump(mode="json", exclude={"about", "train"}) for o in self.objectives(arm)],
            "train": [t.model_dump(mode="json", exclude=set(Train.INCIDENTAL)) for t in self.plan(arm)],
        }
