"""A batch of one example, which a batch norm cannot be trained on, told in the words of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import RunError
from .settings import Train

_TORCH = "Expected more than 1 value per channel when training"


@contextmanager
def told_of_lone_examples(train: Train) -> Iterator[None]:
    """Say what to change where torch refuses a batch norm a single number per channel.

    Images that are still larger than a pixel at the batch norm, and fixed features, are trained on one by one: so it
    cannot be refused beforehand.
    """
    try:
        yield
    except ValueError as error:
        if not str(error).startswith(_TORCH):
            raise
        raise RunError(
            "a batch of one example reached a batch norm, which has one number per channel then and nothing to "
            f"normalise ({str(error).removeprefix(_TORCH).strip(' ,')}). Expected at least two examples in every "
            f"batch, also in the last and smaller one of an epoch: change train.batch_size (here {train.batch_size}), "
            "or how many examples there are to train on.") from error
