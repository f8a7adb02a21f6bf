"""Beam search over a batch of sentences, with the decoder's keys and values kept from step to step.

As fairseq searches: of every step's best continuations, twice as many as the beam is wide, those among the first
``beam`` that end are finished, with their log-probability divided by ``length ** length_penalty`` (the end counts), and
the best others go on. A sentence is done when ``beam`` hypotheses have finished, or at its longest length; the best
finished one is its translation. Sentences do not influence each other, whatever they are batched with.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..errors import ArgumentError

PAD, START, END = 0, 1, 2
ASK_EVERY = 4  # steps between two questions whether all are done: on a GPU the answer must be waited for


class Searched(Protocol):
    """A model that beam search can use: :class:`~encouraging.models.transformer.Transformer`, or one's own."""

    def begin(self, source: Tensor, copies: int = 1) -> Any:
        """The state before the first piece, ``copies`` times per sentence; it has ``rows(index)``."""
        ...

    def advance(self, pieces: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits of the next piece after these, one per row, and the next state."""
        ...


class Found(NamedTuple):
    """Translations (sentences, positions), padded behind their end, and their scores."""

    pieces: Tensor
    scores: Tensor

    def lists(self) -> list[list[int]]:
        """The pieces of every sentence, without the end."""
        return [row[: row.index(END)] if END in row else row for row in self.pieces.tolist()]


def longest(source: Tensor, ratio: float = 1.2, more: int = 10) -> Tensor:
    """How many pieces a translation may have, its end included: a number per sentence."""
    return ((source != PAD).sum(1) * ratio + more).long()


@torch.no_grad()
def beam_search(model: Searched, source: Tensor, beam: int = 5, length_penalty: float = 1.0,
                limit: Tensor | None = None) -> Found:
    """The translations of these sentences.

    Args:
        model: In evaluation mode.
        source: (sentences, positions), each sentence with its end, padded behind it.
        beam: How many hypotheses go on at each step; 1 is greedy search.
        length_penalty: 0 prefers short translations, 1 compares means per piece.
        limit: The most pieces of each translation, the end included; by default :func:`longest`.
    """
    if isinstance(beam, bool) or not isinstance(beam, int) or beam < 1:
        raise ArgumentError(f"beam={beam!r}: expected 1 or more, a whole number.")
    if not 0 <= length_penalty < math.inf:  # below 0 short and long change places, and no number compares with nan
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
    scores[:, 0] = 0.0  # all hypotheses are equal at first: only one of them may go on
    best = Found(torch.full((count, most), PAD, device=device), torch.full((count,), -torch.inf, device=device))
    finished = torch.zeros(count, dtype=torch.long, device=device)
    pieces = torch.full((count, beam), START, device=device)
    for step in range(most):
        logits, state = model.advance(pieces.flatten(), state)
        values, parent, piece = _continuations(logits.float().log_softmax(-1).view(count, beam, -1), scores,
                                               step + 1 >= limit)
        ends = (piece == END) & values.isfinite()
        # Only ends among the first hypotheses count: an end that others have overtaken is no better than they are.
        ending = ends.clone()
        ending[:, beam:] = False
        ending &= (finished < beam)[:, None]
        fresh = (values / (step + 1) ** length_penalty).masked_fill(~ending, -torch.inf)
        score, place = fresh.max(1)
        better = score > best.scores
        said = tokens[rows[:, 0], parent.gather(1, place[:, None])[:, 0]]
        said[:, step] = END
        best = Found(torch.where(better[:, None], said, best.pieces), torch.where(better, score, best.scores))
        finished = finished + ending.sum(1)
        # The best hypotheses that do not end go on, in the order of their scores.
        going = torch.where(ends, 1, 0).argsort(dim=1, stable=True)[:, :beam]
        parent, pieces = parent.gather(1, going), piece.gather(1, going)
        scores = values.gather(1, going).masked_fill(ends.gather(1, going), -torch.inf)
        tokens = tokens[rows, parent]
        tokens[:, :, step] = pieces
        done = (finished >= beam) | (step + 1 >= limit)
        if (step + 1) % ASK_EVERY == 0 and bool(done.all()):
            break
        if beam > 1:  # else every hypothesis goes on in its own place
            state = state.rows((rows * beam + parent).flatten())
    return best


def _continuations(chances: Tensor, scores: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of every sentence's hypotheses, twice as many as these: their scores, the hypotheses that
    they continue, and their pieces. A sentence at its ``last`` piece can only end. Overwrites ``chances``."""
    beam, size = chances.shape[1:]
    chances[..., PAD] = -torch.inf
    chances[..., START] = -torch.inf
    # The best of a sentence are among the best of each hypothesis: its scores of all pieces are not needed.
    number = min(2 * beam, size)
    values, pieces = chances.topk(number, -1)
    first = torch.arange(number, device=chances.device) == 0
    only_end = chances[..., END, None].masked_fill(~first, -torch.inf)
    values = torch.where(last[:, None, None], only_end, values) + scores[:, :, None]
    pieces = torch.where(last[:, None, None], END, pieces)
    best, at = values.flatten(1).topk(min(2 * beam, beam * number), 1)
    return best, at // number, pieces.flatten(1).gather(1, at)
