"""The options and the metrics of an image recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from ..engine import Metric
from ..engine.metric import HIDDEN, PERCENT
from ..engine.settings import Frozen
from .adversarial import Adversarial, attacked_metrics
from .classification import POSTERIOR
from .image_augment import AugmentOptions
from .image_tail import Shots, TailOptions, tail_metrics


class Options(AugmentOptions, TailOptions):
    """The ``options`` table of an image recipe.

    ``train_images`` and ``test_images`` are for rehearsals: they limit the number of training images, and of test,
    validation and out-of-distribution images.
    """

    ood: tuple[str, ...] = ()
    ood_near: tuple[str, ...] = ()
    ood_far: tuple[str, ...] = ()
    validation: int = Field(default=0, ge=0)
    train_images: int | None = Field(default=None, gt=0)
    test_images: int | None = Field(default=None, gt=0)
    normalise: bool = True
    size: int | None = Field(default=None, gt=0)
    profiles: tuple[str, ...] = ()
    adversarial: Adversarial | None = None

    @property
    def ood_sets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.ood, *self.ood_near, *self.ood_far)))

    @property
    def ood_groups(self) -> dict[str, str]:
        """``near`` or ``far`` by the name of the dataset, as in OpenOOD."""
        return dict.fromkeys(self.ood_near, "near") | dict.fromkeys(self.ood_far, "far")

    @model_validator(mode="after")
    def _check_mixup(self) -> Self:
        if self.adversarial is not None and self.mixup:
            raise ValueError(f"adversarial with mixup = {self.mixup:g}: an attack needs one label per image. Leave one "
                             "of the two out")
        return self


def metrics_of(options: Options) -> list[Metric]:
    """The metrics of an image recipe."""
    metrics = [
        Metric("accuracy", "accuracy", **PERCENT, primary=True, about="Accuracy is that of the last epoch."),
        Metric("best_accuracy", "best accuracy", **PERCENT, about="Best accuracy is that of the best test epoch."),
        Metric("test_loss", "test cross-entropy", "nats", 3, better="lower", log=True, **HIDDEN),
        Metric("excess_risk", "excess risk", "%", better="lower",
               about="Excess risk is training minus test accuracy."),
        Metric("ece", "calibration error", digits=4, better="lower", low=0, high=1,
               about="Margins, energies and calibration are those of the last epoch’s model."),
        Metric("nll", "negative log-likelihood", digits=3, better="lower", low=0, **HIDDEN),
        *POSTERIOR,
        Metric("margin.median", "median margin"),
        Metric("margin.median_zeroed", "median margin, rival at least 0", **HIDDEN),
        Metric("margin.mean", "mean margin", **HIDDEN),
        Metric("energy.label", "energy on the data", better="lower"),
        Metric("energy.rival", "lowest rival energy"),
        Metric("energy.rival_zeroed", "lowest rival energy, zeroed", **HIDDEN),
        Metric("energy.free", "free energy", better="lower", **HIDDEN),
        Metric("train_accuracy", "training accuracy", **PERCENT, **HIDDEN),
        Metric("batch_accuracy", "accuracy on training batches", **PERCENT, **HIDDEN),
        Metric("batch_excess_risk", "excess risk on training batches", "%", better="lower", **HIDDEN),
        Metric("first_updates.grad_norm", "gradient norm of the first updates", digits=3, log=True, **HIDDEN),
        Metric("first_updates.confidence", "confidence in the first updates", **PERCENT, **HIDDEN),
        Metric("gradient_norm_ratio.ce", "gradient norm over cross-entropy's", **HIDDEN),
        *(Metric(f"class_energy.{name}", f"energy on the data, class {name}", better="lower", **HIDDEN)
          for name in options.profiles),
        *tail_metrics(options),
    ]
    if options.adversarial is not None:
        metrics += attacked_metrics()
    if options.validation:
        metrics[1:2] = [Metric("val_accuracy", "validation accuracy", **PERCENT),
                        Metric("chosen.accuracy", "accuracy at the best validation epoch", **PERCENT,
                               about="The best validation epoch is chosen without a look at the test data, the best "
                                     "test epoch with one: the difference is what that look gains."), metrics[1],
                        Metric("chosen.epoch", "best validation epoch", digits=1, better="lower", **HIDDEN),
                        Metric("val_loss", "validation cross-entropy", "nats", 3, better="lower", log=True, **HIDDEN)]
    for name in options.ood_sets:
        alone = len(options.ood_sets) == 1 and not options.ood_groups
        path, words = ("ood", "out-of-distribution data") if alone else (f"ood.{name}", name)
        metrics += [Metric(f"{path}.min_energy.auroc", f"AUROC, {words}", **PERCENT),
                    Metric(f"{path}.min_energy.fpr95", f"FPR95, {words}", **PERCENT, better="lower")]
    return metrics


def monitors_of(options: Options) -> list[str]:
    """The numbers of every epoch that may choose the best one."""
    return ["accuracy", "test_loss", *(("val_accuracy", "val_loss") if options.validation else ()), "batch_accuracy",
            *(metric.path for metric in tail_metrics(options) if metric.path.startswith("shots."))]


def chosen(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Test accuracy and number of the first epoch with the highest validation accuracy.

    >>> chosen([{"epoch": 1, "val_accuracy": 90.0, "accuracy": 91.0},
    ...         {"epoch": 2, "val_accuracy": 90.0, "accuracy": 93.0}])
    {'accuracy': 91.0, 'epoch': 1}
    """
    best = max((line for line in lines if "val_accuracy" in line), key=lambda line: float(line["val_accuracy"]))
    return {"accuracy": best["accuracy"], "epoch": best["epoch"]}


def option_words(parents: tuple[Any, ...]) -> list[str]:
    """The allowed keys of the options, or of a table in them."""
    tables: dict[str, type[Frozen]] = {"adversarial": Adversarial, "shots": Shots}
    return list(next((tables[part] for part in parents if part in tables), Options).model_fields)
