"""Write text with a finished run of a language model. Its directory has everything that is needed but the code of your
own network, so no text is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from ..data import generator
from ..data.tokens import UNKNOWN, Tokens, tokens_from_json
from ..engine.precision import float32_is
from ..errors import ArgumentError
from ..models.continuation import continued
from ..models.language_named import build_language_model
from ..tasks.language import Options
from .trained import finished_run, read_vocabulary, rebuilt


@dataclass(frozen=True)
class Writer:
    """A trained model with its vocabulary."""

    name: str
    model: nn.Module
    tokens: Tokens
    context: int
    device: torch.device

    def write(self, prompt: str, *, length: int = 500, temperature: float = 1.0, seed: int = 0) -> Iterator[str]:
        """The text after ``prompt``, piece by piece; together ``length`` tokens.

        Args:
            prompt: the beginning of the text, at least one character.
            length: the number of tokens to write.
            temperature: divides the logits; 0 takes the most probable token.
            seed: the seed of the random numbers.
        """
        tokens = self.tokens.encode(prompt).to(self.device)
        if not len(tokens):
            raise ArgumentError("prompt is empty: expected at least one character.")
        drawn = continued(self.model, tokens, self.context, generator(seed), temperature)
        yield from self._texts(_in_full_precision(islice(drawn, length)))

    def _texts(self, indices: Iterable[int]) -> Iterator[str]:
        """The text of these tokens, piece by piece. A replacement character at its end may be the first bytes of a
        character whose other bytes follow, so it waits for the next token."""
        pending: list[int] = []
        text, written = "", 0
        for index in indices:
            pending.append(index)
            text = self.tokens.decode(pending)
            end = len(text) - text.endswith(UNKNOWN)
            if end > written:
                yield text[written:end]
            written = end
            if end == len(text):
                pending, text, written = [], "", 0
        if text:
            yield text[written:]


def _in_full_precision(indices: Iterator[int]) -> Iterator[int]:
    """The same tokens. The setting holds while one is computed, and not for what the caller does between two."""
    while True:
        with float32_is("ieee"):
            index = next(indices, None)
        if index is None:
            return
        yield index


def load_writer(folder: str | Path, device: torch.device) -> Writer:
    """The writer of a finished run.

    Args:
        folder: the run directory.
        device: where the model goes.

    Raises:
        RunError: it is not a finished run of a language model, or one of its files is missing or damaged.
        RecipeError: its network is your own function, which cannot be found.
    """
    folder = Path(folder)
    recipe, arm, seed, spec = finished_run(folder, device)
    tokens = read_vocabulary(folder, recipe, "language", "a language model", "tokens.json", tokens_from_json)
    context = Options(**spec.options).context
    model = rebuilt(folder, spec, device, lambda: build_language_model(spec.model, tokens.size, context,
                                                                       spec.model_options, spec.folder))
    return Writer(f"{recipe.name} {arm} seed {seed}", model, tokens, context, device)
