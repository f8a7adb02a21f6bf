"""Explain torch's error about a batch of one example, which batch norm cannot be trained on, in terms of the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import RunError
from .settings import Train

_TORCH_MESSAGE = "Expected more than 1 value per channel when training"


@contextmanager
def explain_single_example_batches(train: Train) -> Iterator[None]:
    """Say what to change when torch refuses to train a batch norm on one value per channel.

    This cannot be checked before training: batch norm accepts a single image that is still larger than one pixel, and
    frozen features accept any batch.
    """
    try:
        yield
    except ValueError as error:
        if not str(error).startswith(_TORCH_MESSAGE):
            raise
        raise RunError(
            "a batch of one example reached a batch norm, which then has one value per channel and cannot normalise it "
            f"({str(error).removeprefix(_TORCH_MESSAGE).strip(' ,')}). Expected at least two examples in every batch, "
            f"including the smaller last batch of an epoch: change train.batch_size (here {train.batch_size}), or the "
            "number of training examples.") from error
