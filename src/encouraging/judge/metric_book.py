"""What the numbers of ``final.json`` are called and how they are shown, as the task that measured them declares."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import Metric
from ..errors import RunError
from .metric_words import measured_for_all, undeclared

if TYPE_CHECKING:
    from ..engine.records import Record
    from ..recipes import Recipe


_STAGE = re.compile(r"stage(\d+)\.(.+)")


class MetricBook:
    """The declared metrics of a task, by their paths.

    >>> book = MetricBook([Metric("bleu", "BLEU", primary=True)])
    >>> book["bleu"].words, book["best_bleu"].words, book["my_number"].words, book.primary.path
    ('BLEU', 'best BLEU', 'my number', 'bleu')
    >>> book["stage1.best_bleu"].words
    'best BLEU of stage 1'

    ``on_best``: the runs conclude on their best epoch, and arms are compared by its number.
    """

    def __init__(self, metrics: Iterable[Metric], on_best: bool = False) -> None:
        self.metrics = {metric.path: metric for metric in metrics}
        self.on_best = on_best

    @property
    def primary(self) -> Metric:
        """The metric that is shown first and chooses the best epoch."""
        metrics = list(self.metrics.values())
        return next((metric for metric in metrics if metric.primary), metrics[0] if metrics else Metric("loss", "loss"))

    @property
    def compared(self) -> Metric:
        """The metric that arms are compared by where no claim names one: the primary one, of the best epoch where runs
        conclude on that.

        >>> MetricBook([Metric("ap", "AP", primary=True)], on_best=True).compared.path
        'best_ap'
        """
        return self[f"best_{self.primary.path}"] if self.on_best else self.primary

    def __getitem__(self, path: str) -> Metric:
        """A declared metric; the best epoch's value of one; either of an earlier stage; or the path as its own name."""
        if path in self.metrics:
            return self.metrics[path]
        base = path.removeprefix("best_")
        if path != base and base in self.metrics:
            metric = self.metrics[base]
            return metric._replace(path=path, words=f"best {metric.words}", primary=False, about="")
        if stage := _STAGE.fullmatch(path):
            metric = self[stage[2]]
            return metric._replace(path=path, words=f"{metric.words} of stage {stage[1]}", primary=False, about="")
        return undeclared(path)

    def direction(self, path: str) -> str | None:
        """``"higher"`` or ``"lower"``, whichever is better; None for a number of which nothing says it.

        >>> book = MetricBook([Metric("loss", "loss", better="lower")])
        >>> book.direction("stage1.best_loss"), book.direction("attacks.fgsm.0.3"), book.direction("my_number")
        ('lower', 'higher', None)
        """
        if stage := _STAGE.fullmatch(path):
            return self.direction(stage[2])
        declared = path in self.metrics or path.removeprefix("best_") in self.metrics
        return self[path].better if declared or measured_for_all(path) or path.endswith("accuracy") else None

    def shown(self, exists: Callable[[str], bool]) -> list[Metric]:
        """The metrics of a table of arms, where there are numbers for them; the best epoch's stands beside the last."""
        metrics = []
        for metric in self.metrics.values():
            best = f"best_{metric.path}"
            if metric.primary and best not in self.metrics:
                metrics += [metric, self[best]]
            elif metric.shown:
                metrics.append(metric)
        return [metric for metric in metrics if exists(metric.path)]

    def is_named_alone(self, metric: Metric) -> bool:
        """Whether a sentence needs no article before it: "beats on accuracy", but "on the median margin"."""
        return metric.path.removeprefix("best_") == self.primary.path


def book_of(records: Iterable[Record]) -> MetricBook:
    """The metrics of these runs: all that any of them declares. Old records declare none: they were all made by the
    image task."""
    records = list(records)
    different: list[list[dict[str, Any]]] = []
    for record in records:
        if record.metrics and record.metrics not in different:
            different.append(record.metrics)
    if different:
        book = MetricBook(_joined([metric_from(entry) for entry in declared] for declared in different))
        best = f"best_{book.primary.path}"
        book.on_best = all(best in record.final and _concludes_on(record) == "best" for record in records)
        return book
    from ..tasks.image import Options, metrics_of  # torch comes with it

    return MetricBook(metrics_of(Options(ood=tuple(_detection_sets(record.final for record in records)))))


def book_for(recipe: Recipe) -> MetricBook:
    """The metrics of a recipe that may not have been trained yet: those of all its arms. Some are measured only once,
    at the end: then there is no best epoch's number beside the last one's."""
    needs = [recipe.needs(arm) for arm in recipe.arms]
    book = MetricBook(_joined(own.metrics for own in needs))
    book.on_best = all(recipe.stages_of(arm)[-1].train.conclude_on == "best" for arm in recipe.arms) and \
        all(own.primary is not None and own.primary.path in own.monitored for own in needs)
    return book


def _joined(declared: Iterable[Sequence[Metric]]) -> list[Metric]:
    """Every metric once. The longest list is the first, and of equally long ones the first by its names, so that the
    order does not depend on that of the arms."""
    metrics: dict[str, Metric] = {}
    for own in sorted(declared, key=lambda own: (-len(own), [metric.path for metric in own])):
        for metric in own:
            metrics.setdefault(metric.path, metric)
    return list(metrics.values())


def _concludes_on(record: Record) -> str:
    train = record.config.get("train")
    return str(train[-1].get("conclude_on", "last")) if isinstance(train, list) and train else "last"


def metric_from(entry: Mapping[str, Any]) -> Metric:
    """A metric as a record holds it."""
    try:
        ends = {end: sign * math.inf if entry.get(end) is None else float(entry[end])
                for end, sign in (("low", -1), ("high", 1))}
        fields = {name: entry[name] for name in Metric._fields if name in entry}
        metric = Metric(**{**fields, **ends})
        if not isinstance(metric.path, str) or not isinstance(metric.words, str) or not isinstance(metric.digits, int):
            raise TypeError(f"{metric.path!r}, {metric.words!r}, {metric.digits!r}")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise RunError(f"a record declares a metric that cannot be read ({type(error).__name__}: {error}).") from error
    return metric


def _detection_sets(finals: Iterable[Mapping[str, Any]]) -> list[str]:
    """The out-of-distribution sets by their names in ``final.json``, where a single set has no name."""
    names: dict[str, None] = {}
    for final in finals:
        for name, value in (final.get("ood") or {}).items():
            names["data" if "auroc" in value else name] = None
    return list(names)
