"""How a model is trained: the ``train`` table of a recipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator


class Settings(BaseModel):
    """Settings that do not change once they are read. Unlike in pydantic, neither true nor "1" is the number 1."""

    model_config = ConfigDict(frozen=True)
    # A run's config has these only if they differ from the default, because the first records do not have them.
    LATER: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def defaults(cls, names: Iterable[str]) -> dict[str, Any]:
        return {name: cls.model_fields[name].default for name in names}

    def _config(self, exclude: Iterable[str]) -> dict[str, Any]:
        """The settings as JSON holds them, those of :attr:`LATER` only if they are used."""
        values, defaults = self.model_dump(mode="json", exclude=set(exclude)), self.defaults(self.LATER)
        return {name: value for name, value in values.items()
                if name not in defaults or (tuple(value) if isinstance(value, list) else value) != defaults[name]}

    @field_validator("*", mode="before")
    @classmethod
    def _reject_what_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, int) and not -2**63 <= value < 2**63:  # nor can torch or a file hold it
            raise ValueError(f"{value}: expected a number of 64 bits")
        entries = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(entry, bool | str) for entry in entries):
            types = _types_in(cls.model_fields[info.field_name or ""].annotation)
            if types & {int, float}:
                if bool not in types and any(isinstance(entry, bool) for entry in entries):
                    raise ValueError(f"{str(value).lower()}: expected a number")
                if str not in types and any(isinstance(entry, str) and _is_number(entry) for entry in entries):
                    raise ValueError(f"{value!r}: expected a number, without quotes")
        return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _types_in(annotation: Any) -> set[Any]:
    """The types that an annotation is made of."""
    return {annotation}.union(*(_types_in(part) for part in get_args(annotation)))


class Frozen(Settings):
    """Settings of which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid")


Beta = Annotated[float, Field(ge=0, lt=1)]


class Train(Frozen):
    """Optimiser, schedule, length and precision of one stage of training.

    >>> Train(epochs=100, lr=0.1, milestones=(51, 65)).schedule
    'multistep'
    """

    epochs: int = Field(default=1_000_000, ge=0)  # 0: only evaluate the initial weights
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

    monitor: str | None = None  # None: the task's primary metric
    better: Literal["higher", "lower"] = "higher"
    patience: int | None = Field(default=None, ge=0)
    evaluate_every: int = Field(default=1, gt=0)
    evaluate_all_from: int | None = Field(default=None, gt=0)  # every epoch is evaluated from this one on
    diverge_above: float = Field(default=1e4, gt=0)
    freeze_norm: bool = True
    sync_norm: bool = False

    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    channels_last: bool = True
    compile: bool | Literal["cuda"] = False  # "cuda": only on a GPU, where it gains more and needs no C++ compiler
    cuda_graph: bool = True
    checkpoint_seconds: float = Field(default=30.0, ge=0)

    conclude_on: Literal["last", "best", "average"] = "last"
    average_last: int = Field(default=10, gt=0)
    probe_every: int = Field(default=0, ge=0)
    trace: int = Field(default=0, ge=0)
    workers: int = Field(default=0, ge=0)

    # How a run is carried out, not what it computes: a run may be resumed with another value.
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"checkpoint_seconds", "cuda_graph", "workers"})
    LATER: ClassVar[frozenset[str]] = frozenset({"conclude_on", "average_last", "probe_every", "trace", "sync_norm",
                                                 "milestone_steps", "evaluate_all_from"})

    def config(self) -> dict[str, Any]:
        """Everything that a run's numbers may depend on, as JSON holds it."""
        return self._config(exclude=self.INCIDENTAL)

    def compiles(self, device: str) -> bool:
        """Whether the model is compiled on this type of device.

        >>> [Train(epochs=1, lr=0.1, compile=setting).compiles("cpu") for setting in (True, "cuda", False)]
        [True, False, False]
        """
        return self.compile is True or self.compile == device

    def evaluates(self, epoch: int) -> bool:
        """Whether the model is evaluated at the end of an epoch.

        >>> train = Train(epochs=10, lr=0.1, batch_size=8, evaluate_every=4, evaluate_all_from=9)
        >>> [epoch for epoch in range(1, 11) if train.evaluates(epoch)]
        [4, 8, 9, 10]
        """
        in_last_part = self.evaluate_all_from is not None and epoch >= self.evaluate_all_from
        return epoch % self.evaluate_every == 0 or in_last_part or epoch >= self.epochs

    def evaluations(self, first: int, last: int) -> int:
        """The number of evaluations in the epochs from ``first`` to ``last``, if the training ends with that one.

        >>> Train(max_steps=100, lr=0.1, evaluate_every=4).evaluations(1, 6)
        2
        """
        # Counted and not listed: this is asked in every epoch, and there may be a million of them.
        all_from = min(self.epochs, last, self.evaluate_all_from or last)
        regular = max(0, (all_from - 1) // self.evaluate_every - (first - 1) // self.evaluate_every)
        return 1 + regular + max(0, last - max(first, all_from))  # there is always one at the end

    @field_validator("compile", mode="before")
    @classmethod
    def _check_compile(cls, value: object) -> object:
        if not isinstance(value, bool) and value != "cuda":
            raise ValueError(f'{value!r}: expected true, false, or "cuda" to compile only on a GPU')
        return value

    @model_validator(mode="before")
    @classmethod
    def _infer_schedule(cls, values: object) -> object:
        """Milestones mean the schedule 'multistep', and a period means 'step'."""
        if isinstance(values, dict) and "schedule" not in values:
            if values.get("milestones") or values.get("milestone_steps"):
                return {**values, "schedule": "multistep"}
            if values.get("every"):
                return {**values, "schedule": "step"}
        return values

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if "epochs" not in self.model_fields_set and self.max_steps is None:
            raise ValueError("neither epochs nor max_steps is given: say how long to train")
        if (self.schedule == "multistep") != bool(self.milestones or self.milestone_steps):
            raise ValueError(f"schedule {self.schedule!r} with milestones {list(self.milestones)}: 'multistep' needs "
                             "milestones, and no other schedule takes them")
        if self.milestones and self.milestone_steps:
            raise ValueError("both milestones (epochs) and milestone_steps (updates) are given: keep one")
        if list(self.milestone_steps) != sorted(set(self.milestone_steps)) or any(m < 1 for m in self.milestone_steps):
            raise ValueError(f"milestone_steps {list(self.milestone_steps)}: expected increasing numbers of updates, "
                             "counted from 1")
        if list(self.milestones) != sorted(set(self.milestones)) or any(m < 1 for m in self.milestones):
            raise ValueError(f"milestones {list(self.milestones)}: expected increasing epochs, counted from 1")
        if (self.schedule == "step") != (self.every is not None):
            raise ValueError(f"schedule {self.schedule!r} with every = {self.every}: 'step' needs every (a number of "
                             "epochs), and no other schedule takes it")
        if self.schedule == "inverse_sqrt" and not self.warmup_steps:
            raise ValueError("schedule 'inverse_sqrt' without warmup_steps: set them, as lr is the rate at the end of "
                             "the warm-up")
        if self.warmup_steps and self.warmup_epochs:
            raise ValueError("both warmup_steps and warmup_epochs are given: keep one")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs optimizer = 'sgd' and a momentum above 0")
        if self.momentum and self.optimizer in ("adam", "adamw"):
            raise ValueError(f"optimizer {self.optimizer!r} has no momentum: set the first of betas instead")
        return self


@dataclass(frozen=True)
class StagePlan:
    """One stage of training: its settings, and the parts of the model that are reset before it or frozen during it."""

    train: Train
    reset: Sequence[str] = ()
    freeze: Sequence[str] = ()
