"""A text as windows of equally many tokens: the batches of training, and those of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import DataError
from .clock import Clock
from .draw import generator

IGNORED = -100  # the label of a token that does not count

# Tokens (rows, positions), and the token after each of them, IGNORED where it does not count.
WindowBatch = tuple[Tensor, Tensor]


class TextWindows:
    """A source of windows side by side, from a random place on. In an epoch every token is predicted once, but for
    fewer than a window's at either end.

    All batches have one shape; rows without a window have no label that counts.

    Args:
        tokens: the indices of the tokens of the text.
        context: the number of tokens of a window.
        batch_size: the number of windows of a batch.
        seed: the seed of their order.
        device: where the text is stored.
        shuffle: if false, the windows start with the text and come in its order.
    """

    def __init__(self, tokens: Tensor, context: int, batch_size: int, seed: int, device: torch.device, *,
                 shuffle: bool = True) -> None:
        if len(tokens) <= context:
            raise DataError(f"the training text has {len(tokens)} tokens: expected more than context = {context}, the "
                            "tokens of a window. Set a smaller options.context.")
        self.tokens, self.context, self.batch_size = tokens.to(device), context, batch_size
        self.seed, self.shuffle = seed, shuffle
        self.windows = (len(tokens) - 1) // context
        self.offsets = len(tokens) - self.windows * context  # places at which the first window may start
        self.steps = torch.arange(context + 1, device=device)

    def length(self, clock: Clock) -> int:
        return -(-self.windows // self.batch_size)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[WindowBatch]:
        draw = generator(self.seed, clock.stage, clock.epoch)
        first = int(torch.randint(self.offsets, (), generator=draw)) if self.shuffle else 0
        order = torch.randperm(self.windows, generator=draw) if self.shuffle else torch.arange(self.windows)
        window_starts = (first + self.context * order).to(self.tokens.device)
        rows = -(-self.batch_size // world)
        for batch in torch.split(window_starts, self.batch_size)[start:]:
            own = batch[rank::world]
            windows = self.tokens[own[:, None] + self.steps]
            inputs, labels = windows[:, :-1], windows[:, 1:]
            if missing := rows - len(own):
                inputs = torch.cat([inputs, inputs.new_zeros(missing, self.context)])
                labels = torch.cat([labels, labels.new_full((missing, self.context), IGNORED)])
            yield inputs, labels


def evaluation_windows(tokens: Tensor, context: int, rows: int) -> Iterator[WindowBatch]:
    """Windows that overlap by half, so that a token is predicted from at least half a window before it (the first
    tokens of the text from what there is). Every token but the first has a label that counts exactly once.

    >>> [labels.tolist() for _, labels in evaluation_windows(torch.arange(8), 4, 1)]
    [[[1, 2, 3, 4]], [[-100, -100, 5, 6]], [[-100, -100, -100, 7]]]
    """
    context = min(context, len(tokens) - 1)
    last = len(tokens) - 1 - context  # where the last window starts
    starts = [*range(0, last, max(context // 2, 1)), last]
    ends = [0, *(start + context for start in starts[:-1])]  # labels up to here are counted by an earlier window
    steps = torch.arange(context, device=tokens.device)
    for first in range(0, len(starts), rows):
        positions = torch.tensor(starts[first : first + rows], device=tokens.device)[:, None] + steps
        counted = torch.tensor(ends[first : first + rows], device=tokens.device)[:, None]
        yield tokens[positions], tokens[positions + 1].masked_fill(positions + 1 <= counted, IGNORED)
