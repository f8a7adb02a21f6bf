"""The learning rate as a function of epoch and step, so that resuming needs no scheduler state."""

from __future__ import annotations

import math

from .settings import Train


def learning_rate(train: Train, epoch: int, step: int, steps_per_epoch: int) -> float:
    """The rate of the update that follows ``step`` finished ones, in ``epoch`` counted from 1.

    >>> train = Train(epochs=100, lr=0.1, milestones=(51, 65))
    >>> [round(learning_rate(train, epoch, 0, 10), 6) for epoch in (50, 51, 64, 65)]
    [0.1, 0.01, 0.01, 0.001]
    """
    warmup = train.warmup_steps or train.warmup_epochs * steps_per_epoch
    if step < warmup:
        return train.warmup_from + (train.lr - train.warmup_from) * min(1.0, (step + 1) / warmup)
    if train.schedule == "multistep":
        passed = sum(epoch >= first for first in train.milestones) + sum(step >= m for m in train.milestone_steps)
        return train.lr * train.gamma**passed
    if train.schedule == "step":
        assert train.every is not None
        return train.lr * train.gamma ** math.floor((epoch - 1) / train.every)
    if train.schedule == "cosine":
        steps = train.max_steps or train.epochs * steps_per_epoch
        return train.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
    if train.schedule == "inverse_sqrt":
        return train.lr * math.sqrt(warmup / max(step + 1, warmup))
    return train.lr
