"""What an arm teaches, and from which epoch on."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from .. import curves
from ..curves import Curve
from ..errors import CurveError
from ..losses import curve_loss, mirror_mse_loss


@dataclass(frozen=True)
class Lesson:
    """A loss that is in force for an epoch; hashable, so that the engine knows when it changes."""

    curve: Curve | None
    label_smoothing: float = 0.0
    match_norm: bool = False
    weighted: bool = False
    link: str = "softmax"
    bonus: bool = False

    def loss(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        if self.curve is None:
            return mirror_mse_loss(logits, target, bonus=self.bonus, link=self.link)
        return curve_loss(logits, target, self.curve, weight if self.weighted else None,
                          label_smoothing=self.label_smoothing, match_norm=self.match_norm)


class Objective(BaseModel):
    """The part of an arm that is about the loss. Keys it does not know are parameters of its curve.

    >>> Objective(curve="focal", gamma=1.0).lesson(1)
    Lesson(curve=focal(gamma=1.0), label_smoothing=0.0, match_norm=False, weighted=False, link='softmax', bonus=False)
    """

    model_config = ConfigDict(frozen=True, extra="allow")

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

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.loss == "mse":
            curve_only = self.model_fields_set & {"curve", "label_smoothing", "match_norm", "reweight_from_epoch"}
            if curve_only or self.params:
                raise ValueError(f"loss = 'mse' with {', '.join(sorted({*curve_only, *self.params}))}: that belongs to "
                                 "loss = 'curve'; mse takes link and bonus")
        else:
            if self.model_fields_set & {"link", "bonus"}:
                raise ValueError("link and bonus belong to loss = 'mse'; a curve's bonus is part of the curve")
            self._check_words()
            self._curve()
        return self

    def _check_words(self) -> None:
        """An unknown key may be a misspelt key of the arm as well as of the curve."""
        known = {"encouraging": ["log_end", "eps"]}.get(self.curve) or (
            list(inspect.signature(getattr(curves, self.curve)).parameters) if self.curve in curves.names() else [])
        for word in self.params:
            if word not in known and self.curve in curves.names():
                near = difflib.get_close_matches(word, [*known, *type(self).model_fields], n=1)
                raise ValueError(f"unknown key {word!r}; the curve {self.curve!r} takes {', '.join(known) or 'none'}."
                                 + (f" Did you mean {near[0]!r}?" if near else ""))

    def _curve(self) -> Curve:
        try:
            return curves.by_name(self.curve, **self.params)
        except CurveError as error:
            raise ValueError(str(error)) from error

    def lesson(self, epoch: int) -> Lesson:
        """What is taught in this epoch, counted from 1: cross-entropy until the bonus begins."""
        started = epoch >= self.bonus_from_epoch
        if self.loss == "mse":
            return Lesson(None, link=self.link, bonus=self.bonus and started)
        weighted = self.reweight_from_epoch is not None and epoch >= self.reweight_from_epoch
        curve = self._curve() if started else curves.cross_entropy()
        return Lesson(curve, self.label_smoothing, self.match_norm and started, weighted)
