"""The settings of an arm's loss, and how it changes during training."""

from __future__ import annotations

import inspect
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator

from .. import curves
from ..curves import Curve
from ..data import Clock
from ..engine.settings import Frozen, Settings
from ..errors import CurveError, did_you_mean
from ..metrics._teaching import usual
from ..plugins import is_reference
from .objective import DIVISORS, Objective
from .own_curve import own_curve


class Change(Frozen):
    """New parameters of the curve or a new label smoothing, starting at an epoch or update; momentum is kept."""

    model_config = ConfigDict(extra="allow")

    from_epoch: int | None = Field(default=None, ge=1)
    from_update: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if (self.from_epoch is None) == (self.from_update is None):
            raise ValueError("a change needs either from_epoch (counted from 1) or from_update (counted from 0)")
        return self

    def reached(self, clock: Clock) -> bool:
        if self.from_epoch is not None:
            return clock.epoch >= self.from_epoch
        return clock.update >= (self.from_update or 0)


class ObjectiveConfig(Settings):
    """The settings of an arm's loss. Other keys are parameters of its curve.

    >>> ObjectiveConfig(curve="focal", gamma=1.0).at(Clock()).curve
    focal(gamma=1.0)
    """

    model_config = ConfigDict(extra="allow")

    loss: Literal["curve", "mse"] = "curve"
    curve: str = "cross_entropy"
    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    match_norm: bool = False
    link: Literal["softmax", "sigmoid"] = "softmax"
    bonus: bool = False
    bonus_from_epoch: int = Field(default=1, ge=1)
    reweight_from_epoch: int | None = Field(default=None, ge=1)
    reweight_beta: float = Field(default=0.9999, ge=0, lt=1)
    margin: int | None = Field(default=None, ge=1, le=4)
    ignore_index: int | None = None
    divisor: str | float = "weights"
    changes: tuple[Change, ...] = ()
    bonus_divisor: Literal["examples"] | None = None
    balanced_softmax: bool = False
    ldam_margin: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    logit_scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    logit_norm: float | None = Field(default=None, gt=0, allow_inf_nan=False)  # LogitNorm's temperature
    alpha: float | None = Field(default=None, ge=0, le=1)  # on the sigmoid link: the weight of present classes
    halt_on: Literal["likelihood", "logit"] = "likelihood"
    _folder: str | None = PrivateAttr(default=None)  # of the recipe's file, where your own curve is found

    LATER: ClassVar[frozenset[str]] = frozenset({"ignore_index", "divisor", "changes", "bonus_divisor",
                                                 "balanced_softmax", "ldam_margin", "logit_scale", "logit_norm",
                                                 "alpha", "halt_on"})

    def config(self) -> dict[str, Any]:
        """Everything that a run's numbers may depend on, as JSON holds it; without the fields of subclasses."""
        return self._config(exclude=set(type(self).model_fields) - set(ObjectiveConfig.model_fields))

    @field_validator("divisor", mode="before")
    @classmethod
    def _check_divisor(cls, value: object) -> object:
        if value in DIVISORS or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf):
            return value
        raise ValueError(f"{value!r}: expected {', '.join(DIVISORS)}, or a positive number." +
                         did_you_mean(value, DIVISORS))

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.loss == "mse":
            curve_only = self.model_fields_set & {"curve", "label_smoothing", "match_norm", "reweight_from_epoch",
                                                  "ignore_index", "divisor", "changes", "bonus_divisor",
                                                  "balanced_softmax", "ldam_margin", "alpha", "halt_on"}
            if curve_only or self.params:
                raise ValueError(f"loss = 'mse' with {', '.join(sorted({*curve_only, *self.params}))}: that belongs to "
                                 "loss = 'curve'; mse takes link and bonus")
            return self
        if "bonus" in self.model_fields_set:
            raise ValueError("bonus belongs to loss = 'mse'; a curve's bonus is part of the curve")
        if self.link == "sigmoid" and (self.label_smoothing or self.match_norm or self.margin
                                       or self.ignore_index is not None or self.divisor == "tokens"):
            raise ValueError("link = 'sigmoid', where classes are independent, takes no label_smoothing, match_norm, "
                             "margin, ignore_index or divisor = 'tokens'")
        if self.link == "sigmoid" and (self.balanced_softmax or self.ldam_margin):
            raise ValueError("link = 'sigmoid' takes no balanced_softmax or ldam_margin: both belong to a softmax")
        if self.bonus_divisor and (self.reweight_from_epoch is None or self.match_norm or self.divisor != "weights"
                                   or self.link == "sigmoid" or self.ignore_index is not None):
            raise ValueError("bonus_divisor = 'examples' is for class weights (reweight_from_epoch), by which "
                             "cross-entropy is divided; it takes no match_norm, divisor, ignore_index or link")
        if self.reweight_from_epoch is None and self.reweight_beta != type(self).model_fields["reweight_beta"].default:
            raise ValueError(f"reweight_beta = {self.reweight_beta} without reweight_from_epoch: say from which epoch "
                             "on the classes are weighted")
        if self.link != "sigmoid" and (self.alpha is not None or self.halt_on != "likelihood"):
            raise ValueError("alpha and halt_on treat present and absent classes differently: they need link = "
                             "'sigmoid'")
        if self.halt_on == "logit" and self.curve != "halted_focal":
            raise ValueError(f"halt_on = 'logit' with curve = {self.curve!r}: it belongs to 'halted_focal'")
        if is_reference(self.curve):  # read when the run begins: a report of finished runs needs no code of its user
            return self
        self._check_curve_keys(self.params)
        self._curve(self.params)
        for change in self.changes:
            self._changed((change,))
        return self

    def _check_curve_keys(self, params: dict[str, Any]) -> None:
        """Refuse keys that the curve does not take. They may be misspelt keys of the arm as well as of the curve."""
        if self.curve not in curves.names():
            return
        takes = list(inspect.signature(getattr(curves, self.curve)).parameters)
        for key in params:
            if key not in takes:
                raise ValueError(f"unknown key {key!r}; the curve {self.curve!r} takes {', '.join(takes) or 'none'}."
                                 + did_you_mean(key, [*takes, *type(self).model_fields]))

    def found_in(self, folder: str | None) -> Self:
        """The same settings; a curve of the user's own is searched in this folder first."""
        self._folder = folder
        return self

    def _curve(self, params: dict[str, Any]) -> Curve:
        if is_reference(self.curve):
            return own_curve(self.curve, params, self._folder)
        try:
            return curves.by_name(self.curve, **params)
        except CurveError as error:
            raise ValueError(str(error)) from error

    def _changed(self, reached: tuple[Change, ...]) -> tuple[Curve, float]:
        """The curve and label smoothing after these changes."""
        params, smoothing = self.params, self.label_smoothing
        for change in reached:
            new = dict(change.model_extra or {})
            smoothing = float(new.pop("label_smoothing", smoothing))
            self._check_curve_keys(new)
            params |= new
        if not 0 <= smoothing <= 1:
            raise ValueError(f"label_smoothing = {smoothing} in a change: expected a number from 0 to 1")
        return self._curve(params), smoothing

    def at(self, clock: Clock) -> Objective:
        """The current loss: cross-entropy until the bonus begins, then the curve with the changes so far."""
        reached = tuple(change.reached(clock) for change in self.changes) if self.changes else ()
        started = clock.epoch >= self.bonus_from_epoch
        weighted = self.reweight_from_epoch is not None and clock.epoch >= self.reweight_from_epoch
        key = (started, weighted, *reached)
        phases = self._phases
        if key not in phases:
            phases[key] = self._objective(started, weighted, reached)
        return phases[key]

    def at_its_end(self) -> Objective:
        """The loss after all of its changes."""
        return self.at(Clock(1, 1_000_000, 1_000_000_000))

    def check_own_curve(self) -> None:
        """Refuse a curve of the user's own that cannot be loaded, or does not take its parameters."""
        if self.loss == "curve" and is_reference(self.curve):
            self.at_its_end()

    @cached_property
    def _phases(self) -> dict[tuple[bool, ...], Objective]:
        """The cache of :meth:`at`; a private attribute of pydantic would be slow to read in every update."""
        return {}

    def __getstate__(self) -> dict[Any, Any]:
        """Without the cache: a curve of the user's own may hold functions that cannot be pickled."""
        state = super().__getstate__()
        return state | {"__dict__": {name: value for name, value in state["__dict__"].items() if name != "_phases"}}

    def _objective(self, started: bool, weighted: bool, reached: tuple[bool, ...]) -> Objective:
        if self.loss == "mse":
            return Objective(None, link=self.link, bonus=self.bonus and started, logit_norm=self.logit_norm)
        changes = tuple(change for change, is_on in zip(self.changes, reached, strict=True) if is_on)
        curve, smoothing = self._changed(changes)
        return Objective(curve if started else curves.cross_entropy(), label_smoothing=smoothing,
                         match_norm=self.match_norm and started, weighted=weighted, link=self.link,
                         ignore_index=self.ignore_index, divisor=self.divisor, bonus_divisor=self.bonus_divisor,
                         logit_norm=self.logit_norm, alpha=self.alpha, halt_on=self.halt_on)


def compared_curves(config: ObjectiveConfig) -> dict[str, Curve]:
    """The usual curves and the arm's own, after all of its changes, for the diagnosis of a run."""
    own = config.at_its_end().curve
    return usual() | ({repr(own): own} if own is not None and own not in usual().values() else {})
