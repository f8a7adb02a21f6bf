"""What the engine asks of a task. It never looks inside a batch: that may be tensors, graphs or lists of boxes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol

from torch import Tensor, nn


class Conclusion(Protocol):
    """What is measured once, on the last epoch's model: more numbers, tensors to keep (the test logits), and a
    diagnosis, plain data from which the report draws."""

    @property
    def numbers(self) -> Mapping[str, Any]: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    @property
    def diagnosis(self) -> Mapping[str, Any] | None: ...


class Task(Protocol):
    """Data, model, loss and metric of one arm and one seed.

    Everything random in :meth:`batches` must follow from the seed, the stage and the epoch alone: that is what makes a
    run resume at any batch. A batch made only of tensors (in tuples, lists or dicts) can go into a CUDA graph.
    """

    def build(self) -> nn.Module:
        """The model, freshly initialised from torch's random state, on the task's device."""
        ...

    def lesson(self, stage: int, epoch: int) -> Hashable:
        """What is taught in this epoch (a curve, class weights); a new value makes the engine record a new graph."""
        ...

    def length(self, stage: int, epoch: int) -> int:
        """How many batches this epoch has."""
        ...

    def batches(self, stage: int, epoch: int, start: int, rank: int, world: int) -> Iterable[Any]:
        """This rank's share of the epoch's batches from number ``start`` on; the shares of a batch make it whole."""
        ...

    def loss(self, model: nn.Module, batch: Any, lesson: Any) -> tuple[Tensor, int | Tensor]:
        """The mean loss of a batch and what it is the mean over (examples, tokens, boxes)."""
        ...

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """The numbers of the whole evaluation sets, after an epoch; the model is in evaluation mode."""
        ...

    def conclude(self, model: nn.Module) -> Conclusion:
        """What is measured once, on the last epoch's model."""
        ...

    def head(self, model: nn.Module) -> nn.Module:
        """The output layer, which two-stage training makes anew; it has ``reset_parameters``."""
        ...
