"""How a model is trained: the ``train`` table of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator


class Settings(BaseModel):
    """Settings never change after they were read, and true is not the number 1, which pydantic would make of it."""

    model_config = ConfigDict(frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, given: object, info: ValidationInfo) -> object:
        entries = given if isinstance(given, list | tuple) else [given]
        if any(isinstance(entry, bool) for entry in entries):
            kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
            if kinds & {int, float} and bool not in kinds:
                raise ValueError(f"{str(given).lower()}: expected a number")
        return given


def _kinds(annotation: Any) -> set[Any]:
    """The types that an annotation is made of."""
    return {annotation}.union(*(_kinds(part) for part in get_args(annotation)))


class Frozen(Settings):
    """Settings of which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid")


Beta = Annotated[float, Field(ge=0, lt=1)]


class Train(Frozen):
    """Optimiser, schedule, length and precision of one stage of training.

    >>> Train(epochs=100, lr=0.1, milestones=(51, 65)).schedule
    'multistep'
    """

    epochs: int = Field(default=1_000_000, ge=0)  # 0: the weights it starts with are only evaluated
    max_steps: int | None = Field(default=None, gt=0)
    batch_size: int = Field(default=128, gt=0)
    accumulate: int = Field(default=1, gt=0)
    shuffle: bool = True

    optimizer: Literal["sgd", "adam", "adamw", "rmsprop", "rmsprop_tf"] = "sgd"
    lr: float = Field(gt=0, le=1e6, allow_inf_nan=False)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    nesterov: bool = False
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    alpha: float = Field(default=0.9, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    clip_norm: float | None = Field(default=None, gt=0)
    ema: float | None = Field(default=None, gt=0, lt=1)

    schedule: Literal["constant", "multistep", "step", "cosine", "inverse_sqrt"] = "constant"
    milestones: tuple[int, ...] = ()
    milestone_steps: tuple[int, ...] = ()  # in updates instead of epochs
    every: float | None = Field(default=None, gt=0)
    gamma: float = Field(default=0.1, gt=0, le=1)
    warmup_epochs: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    warmup_steps: int = Field(default=0, ge=0)
    warmup_from: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    monitor: str | None = None  # the task's primary metric
    better: Literal["higher", "lower"] = "higher"
    patience: int | None = Field(default=None, ge=0)
    evaluate_every: int = Field(default=1, gt=0)
    evaluate_all_from: int | None = Field(default=None, gt=0)  # every epoch is evaluated from this one on
    diverge_above: float = Field(default=1e4, gt=0)
    freeze_norm: bool = True
    sync_norm: bool = False

    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    channels_last: bool = True
    compile: bool | Literal["cuda"] = False  # "cuda": on a GPU alone, where it gains more and needs no C++ compiler
    cuda_graph: bool = True
    checkpoint_seconds: float = Field(default=30.0, ge=0)

    conclude_on: Literal["last", "best", "average"] = "last"
    average_last: int = Field(default=10, gt=0)
    probe_every: int = Field(default=0, ge=0)
    trace: int = Field(default=0, ge=0)
    workers: int = Field(default=0, ge=0)

    # How a run is carried out, not what it computes: a run may be resumed with another value.
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"checkpoint_seconds", "cuda_graph", "workers"})
    # A run's config names these only where they differ from the default: they came later than the first records.
    LATER: ClassVar[frozenset[str]] = frozenset({"conclude_on", "average_last", "probe_every", "trace", "sync_norm",
                                                 "milestone_steps", "evaluate_all_from"})

    def config(self) -> dict[str, Any]:
        """All that a run's numbers may depend on, as JSON holds it."""
        whole = self.model_dump(mode="json", exclude=set(self.INCIDENTAL))
        defaults = {name: type(self).model_fields[name].default for name in self.LATER}
        return {name: value for name, value in whole.items()
                if name not in defaults or (tuple(value) if isinstance(value, list) else value) != defaults[name]}

    def compiles(self, device: str) -> bool:
        """Whether the model is compiled on this type of device.

        >>> [Train(epochs=1, lr=0.1, compile=asked).compiles("cpu") for asked in (True, "cuda", False)]
        [True, False, False]
        """
        return self.compile is True or self.compile == device

    def evaluates(self, epoch: int) -> bool:
        """Whether the model is evaluated at the end of an epoch.

        >>> train = Train(epochs=10, lr=0.1, batch_size=8, evaluate_every=4, evaluate_all_from=9)
        >>> [epoch for epoch in range(1, 11) if train.evaluates(epoch)]
        [4, 8, 9, 10]
        """
        from_here = self.evaluate_all_from is not None and epoch >= self.evaluate_all_from
        return epoch % self.evaluate_every == 0 or from_here or epoch >= self.epochs

    @field_validator("compile", mode="before")
    @classmethod
    def _compile_is_known(cls, given: object) -> object:
        if not isinstance(given, bool) and given != "cuda":
            raise ValueError(f'{given!r}: expected true, false, or "cuda" for a GPU alone')
        return given

    @model_validator(mode="before")
    @classmethod
    def _infer_schedule(cls, given: object) -> object:
        """Milestones or a period say which schedule is meant."""
        if isinstance(given, dict) and "schedule" not in given:
            if given.get("milestones") or given.get("milestone_steps"):
                return {**given, "schedule": "multistep"}
            if given.get("every"):
                return {**given, "schedule": "step"}
        return given

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "epochs" not in self.model_fields_set and self.max_steps is None:
            raise ValueError("neither epochs nor max_steps is given: say how long to train")
        if (self.schedule == "multistep") != bool(self.milestones or self.milestone_steps):
            raise ValueError(f"schedule {self.schedule!r} with milestones {list(self.milestones)}: milestones belong "
                             "to 'multistep', and it needs them")
        if self.milestones and self.milestone_steps:
            raise ValueError("both milestones (epochs) and milestone_steps (updates) are given: keep one")
        if list(self.milestone_steps) != sorted(set(self.milestone_steps)) or any(m < 1 for m in self.milestone_steps):
            raise ValueError(f"milestone_steps {list(self.milestone_steps)}: expected rising numbers of updates")
        if list(self.milestones) != sorted(set(self.milestones)) or any(m < 1 for m in self.milestones):
            raise ValueError(f"milestones {list(self.milestones)}: expected rising epochs, counted from 1")
        if (self.schedule == "step") != (self.every is not None):
            raise ValueError(f"schedule {self.schedule!r} with every = {self.every}: every (epochs) belongs to 'step', "
                             "and it needs it")
        if self.schedule == "inverse_sqrt" and not self.warmup_steps:
            raise ValueError("schedule 'inverse_sqrt' without warmup_steps: the rate is lr at the end of the warm-up")
        if self.warmup_steps and self.warmup_epochs:
            raise ValueError("both warmup_steps and warmup_epochs are given: keep one")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs optimizer = 'sgd' and a momentum above 0")
        if self.momentum and self.optimizer in ("adam", "adamw"):
            raise ValueError(f"optimizer {self.optimizer!r} has no momentum: its first beta plays that part")
        return self


@dataclass(frozen=True)
class StagePlan:
    """One stage as the engine sees it: how to train, and which parts of the model start anew or stay as they are."""

    train: Train
    reset: Sequence[str] = ()
    freeze: Sequence[str] = ()
