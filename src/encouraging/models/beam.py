"""Beam search over a batch of sentences, with cached keys and values of the decoder.

The algorithm is fairseq's. Every step takes the best ``2 * beam`` continuations. Those that end, among the first
``beam``, are finished, with their log-probability divided by ``length ** length_penalty`` (the length includes the
end); the best others continue. A sentence is done when ``beam`` hypotheses have finished, or at its longest length; the
best finished one is its translation. The translation of a sentence does not depend on the others in its batch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..errors import ArgumentError

PAD, START, END = 0, 1, 2
LENGTH_RATIO, MORE_PIECES = 1.2, 10  # the largest length of a translation, for a source of n pieces: 1.2 n + 10
CHECK_EVERY = 4  # steps between two checks whether all sentences are done, each of which waits for a GPU


class Searched(Protocol):
    """A model that beam search can use: :class:`~encouraging.models.transformer.Transformer`, or your own."""

    def begin(self, source: Tensor, copies: int = 1) -> Any:
        """The state before the first piece, ``copies`` times per sentence; it has ``rows(index)``."""
        ...

    def advance(self, pieces: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits of the next piece after the given one of every row, and the next state."""
        ...


class Translations(NamedTuple):
    """Translations (sentences, positions), padded after their end, and their scores."""

    pieces: Tensor
    scores: Tensor

    def lists(self) -> list[list[int]]:
        """The pieces of every sentence, without the end."""
        return [row[: row.index(END)] if END in row else row for row in self.pieces.tolist()]


def longest(source: Tensor) -> Tensor:
    """The largest number of pieces of each sentence's translation, including its end."""
    return ((source != PAD).sum(1) * LENGTH_RATIO + MORE_PIECES).long()


@torch.no_grad()
def beam_search(model: Searched, source: Tensor, beam: int = 5, length_penalty: float = 1.0,
                limit: Tensor | None = None) -> Translations:
    """Translate sentences.

    Args:
        model: the model, in evaluation mode.
        source: (sentences, positions), each sentence with its end, padded after it.
        beam: number of hypotheses that continue at each step; 1 is greedy search.
        length_penalty: 0 prefers short translations, 1 compares means per piece.
        limit: the largest number of pieces of each translation, including the end; by default :func:`longest`.
    """
    if isinstance(beam, bool) or not isinstance(beam, int) or beam < 1:
        raise ArgumentError(f"beam={beam!r}: expected a whole number, 1 or more.")
    if not 0 <= length_penalty < math.inf:  # also refuses NaN
        raise ArgumentError(f"length_penalty={length_penalty}: expected a number from 0 on.")
    if source.ndim != 2 or not len(source):
        raise ArgumentError(f"source of the shape {tuple(source.shape)}: expected (sentences, positions), with one "
                            "sentence at least.")
    limit = longest(source) if limit is None else limit
    most, count, device = int(limit.max()), len(source), source.device
    state = model.begin(source, beam)
    rows = torch.arange(count, device=device)[:, None]
    tokens = torch.full((count, beam, most), PAD, device=device)
    scores = torch.full((count, beam), -torch.inf, device=device)
    scores[:, 0] = 0.0  # all hypotheses are equal at first: only one of them may continue
    best = Translations(torch.full((count, most), PAD, device=device), torch.full((count,), -torch.inf, device=device))
    finished = torch.zeros(count, dtype=torch.long, device=device)
    pieces = torch.full((count, beam), START, device=device)
    for step in range(most):
        logits, state = model.advance(pieces.flatten(), state)
        values, parent, piece = _continuations(logits.float().log_softmax(-1).view(count, beam, -1), scores,
                                               step + 1 >= limit)
        ends = (piece == END) & values.isfinite()
        # Only ends among the first ``beam`` continuations count: better hypotheses are still open before the others.
        ending = ends.clone()
        ending[:, beam:] = False
        ending &= (finished < beam)[:, None]
        final_scores = (values / (step + 1) ** length_penalty).masked_fill(~ending, -torch.inf)
        score, which = final_scores.max(1)
        better = score > best.scores
        sentence = tokens[rows[:, 0], parent.gather(1, which[:, None])[:, 0]]
        sentence[:, step] = END
        best = Translations(torch.where(better[:, None], sentence, best.pieces),
                            torch.where(better, score, best.scores))
        finished = finished + ending.sum(1)
        # The best hypotheses that do not end continue, in the order of their scores.
        open_ones = torch.where(ends, 1, 0).argsort(dim=1, stable=True)[:, :beam]
        parent, pieces = parent.gather(1, open_ones), piece.gather(1, open_ones)
        scores = values.gather(1, open_ones).masked_fill(ends.gather(1, open_ones), -torch.inf)
        tokens = tokens[rows, parent]
        tokens[:, :, step] = pieces
        done = (finished >= beam) | (step + 1 >= limit)
        if (step + 1) % CHECK_EVERY == 0 and bool(done.all()):
            break
        if beam > 1:  # greedy search does not reorder hypotheses
            state = state.rows((rows * beam + parent).flatten())
    return best


def _continuations(log_probs: Tensor, scores: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best ``2 * beam`` continuations of every sentence: their scores, the hypotheses that they continue, and their
    pieces. A sentence at its ``last`` piece can only end. Overwrites ``log_probs``."""
    beam, size = log_probs.shape[1:]
    log_probs[..., PAD] = -torch.inf
    log_probs[..., START] = -torch.inf
    # The best continuations of a sentence are among the best of each hypothesis, so these are enough.
    number = min(2 * beam, size)
    values, pieces = log_probs.topk(number, -1)
    first = torch.arange(number, device=log_probs.device) == 0
    only_end = log_probs[..., END, None].masked_fill(~first, -torch.inf)
    values = torch.where(last[:, None, None], only_end, values) + scores[:, :, None]
    pieces = torch.where(last[:, None, None], END, pieces)
    best, index = values.flatten(1).topk(min(2 * beam, beam * number), 1)
    return best, index // number, pieces.flatten(1).gather(1, index)
