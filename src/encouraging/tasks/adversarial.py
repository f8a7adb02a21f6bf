"""Adversarial training: every update learns from images that are perturbed to raise the loss of the current model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..attacks import TRAINING_ATTACKS, Attack, adversarial_batch
from ..engine import Metric, Predictions
from ..engine.settings import Frozen
from ..metrics import Readings, accuracy
from ..metrics._margin import margins
from ..models.normalised import Normalised


class Adversarial(Frozen):
    """``options.adversarial`` of an image recipe: the name of an attack, or a table that also has settings.

    >>> Adversarial.model_validate("pgd").training
    (Attack('pgd', loss='ce', step_size=0.1, steps=7), 0.3)
    >>> Adversarial.model_validate({"attack": "fgsm", "eps": 0.1}).training
    (Attack('fgsm', loss='ce'), 0.1)
    """

    attack: Literal["fgsm", "pgd", "pgd_l2"]
    eps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    steps: int | None = Field(default=None, gt=0)
    step_size: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    loss: Literal["ce", "margin", "dlr"] = "ce"
    damping: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, value: object) -> object:
        return {"attack": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_settings_of_attack(self) -> Adversarial:
        if self.attack == "fgsm" and (self.steps is not None or self.step_size is not None):
            raise ValueError("fgsm takes one step of length eps: leave steps and step_size out, or use pgd")
        if self.attack != "pgd_l2" and (self.eps or 0) > 1:
            raise ValueError(f"eps = {self.eps:g}: images are in [0, 1], so that a change above 1 allows any image; "
                             "divide sizes in grey levels by 255")
        if self.attack != "pgd_l2" and self.damping is not None:
            raise ValueError(f"{self.attack} uses only the sign of the gradient, which damping does not change: leave "
                             "damping out, or use pgd_l2")
        return self

    @property
    def training(self) -> tuple[Attack, float]:
        """The attack that perturbs the training images, and its epsilon; the paper's unless the recipe sets others."""
        paper, paper_eps = TRAINING_ATTACKS[self.attack]
        own = {"steps": self.steps, "step_size": self.step_size, "loss": self.loss, "damping": self.damping}
        settings = {**paper.settings, **{name: value for name, value in own.items() if value is not None}}
        return Attack(self.attack, **settings), self.eps or paper_eps

    @property
    def final(self) -> tuple[Attack, float]:
        """The attack of the final evaluation: the paper's number of steps, with the margin as its loss, because the
        margin is measured there and does not depend on the scale of the logits."""
        return Attack(self.attack, loss="margin"), self.training[1]


class Adversary:
    """Perturbs the batches of one task. ``on_unit_images`` wraps its model to take images in [0, 1] that are cropped as
    for training, and ``on_test_images`` to take test images in [0, 1] before they are resized."""

    def __init__(self, options: Adversarial, on_unit_images: Callable[[nn.Module], Normalised],
                 on_test_images: Callable[[nn.Module], Normalised]) -> None:
        self.options, self.on_unit_images, self.on_test_images = options, on_unit_images, on_test_images
        self._wrapped: tuple[nn.Module, Normalised] | None = None

    @staticmethod
    def draw(count: int, generator: torch.Generator) -> Tensor:
        """One number per example and epoch, which seeds its random start."""
        return torch.randint(1 << 62, (count,), generator=generator)

    def train(self, model: nn.Module, images: Tensor, target: Tensor, noise: Tensor) -> Tensor:
        """The perturbed batch, in [0, 1]; does not synchronise with the device."""
        attack, eps = self.options.training
        return adversarial_batch(self._unit(model), images, target, attack, eps, index=noise)

    def predict(self, model: nn.Module, unit: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, piece: int,
                rank: int, world: int) -> Iterator[Predictions]:
        """Logits of the test images under the final attack, in pieces; ``unit`` converts images to [0, 1]."""
        attack, eps = self.options.final
        classifier = self.on_test_images(_bare(model))
        for number in range(rank, -(-len(images) // piece), world):
            rows = slice(number * piece, (number + 1) * piece)
            x, y = unit(images[rows]), labels[rows]
            index: dict[str, Any] = {} if attack.method == "fgsm" else {
                "index": torch.arange(rows.start, rows.start + len(x), device=x.device)}
            perturbed = attack(classifier, x, y, eps, **index)
            with torch.no_grad():
                logits = classifier(perturbed)
            yield {"set": "attacked", "number": number, "logits": logits}

    def _unit(self, model: nn.Module) -> Normalised:
        """The model on images in [0, 1], kept from step to step."""
        model = _bare(model)
        if self._wrapped is None or self._wrapped[0] is not model:
            self._wrapped = model, self.on_unit_images(model)
        return self._wrapped[1]

    def measure(self, readings: Readings) -> tuple[dict[str, Any], dict[str, Any]]:
        """Accuracy and margins under attack: numbers for ``final.json``, and a diagnosis for the report."""
        attack, eps = self.options.final
        distribution = margins(readings)
        numbers = {"accuracy": accuracy(readings),
                   "margin": {name: distribution[name] for name in ("mean", "median")}}
        return numbers, {"attack": attack.name, "eps": eps, "accuracy": numbers["accuracy"], "margin": distribution}


def _bare(model: nn.Module) -> nn.Module:
    bare: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    return bare


def attacked_metrics() -> list[Metric]:
    """The additional metrics of an adversarially trained model."""
    about = ("Under attack are the test images after the attack that the arm was trained with, with the paper's number "
             "of steps and driven by the margin.")
    return [Metric("attacked.accuracy", "accuracy under attack", "%", low=0, high=100, about=about),
            Metric("attacked.margin.median", "median margin under attack"),
            Metric("attacked.margin.mean", "mean margin under attack", shown=False)]
