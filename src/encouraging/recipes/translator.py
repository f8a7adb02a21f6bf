"""Translate with a finished run. Its directory has everything that is needed, so no dataset is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from ..data import Pieces, pieces_from_json
from ..data.parallel import normalise
from ..engine.precision import float32_is
from ..errors import ArgumentError
from ..models.translation_named import build_translation_model
from ..tasks.translation import Options, search_batches, translate_pieces
from .trained import finished_run, read_vocabulary, rebuilt

AHEAD = 16  # batches that are read before the first is translated, so that a batch has sentences of similar length


@dataclass(frozen=True)
class Translator:
    """A trained model with its vocabulary; ``options`` are those of its recipe."""

    name: str
    model: nn.Module
    pieces: Pieces
    options: Options
    device: torch.device

    def translate(self, lines: Iterable[str], *, beam: int | None = None, length_penalty: float | None = None,
                  at_once: int | None = None) -> Iterator[str]:
        """One translation per line, in the order of the lines; an empty line stays empty.

        Args:
            lines: sentences. Those of 16 batches are read before the first translation is returned; with ``at_once=1``
                every sentence is translated before the next is read.
            beam: by default that of the recipe.
            length_penalty: by default that of the recipe.
            at_once: sentences per batch; by default that of the recipe.
        """
        beam = self.options.beam if beam is None else beam
        penalty = self.options.length_penalty if length_penalty is None else length_penalty
        if beam < 1 or (at_once is not None and (not isinstance(at_once, int) or at_once < 1)):
            raise ArgumentError(f"beam={beam}, at_once={at_once}: expected 1 or more.")
        if isinstance(lines, str):  # otherwise each of its characters would be a sentence
            raise ArgumentError(f"lines={lines[:40]!r}: expected several sentences, such as [{lines[:40]!r}].")
        at_once = self.options.sentences if at_once is None else at_once
        unread = iter(lines)
        while block := list(islice(unread, at_once * AHEAD if at_once > 1 else 1)):
            yield from self._block(block, beam, penalty, at_once)

    def _block(self, lines: list[str], beam: int, penalty: float, at_once: int) -> list[str]:
        encoded = self.pieces.encode([normalise(line, self.options.lowercase) for line in lines], "source")
        not_empty = [index for index, sentence in enumerate(encoded) if sentence]
        translations = [""] * len(lines)
        for batch in search_batches([encoded[index] for index in not_empty], at_once):
            indices = [not_empty[position] for position in batch]
            with torch.no_grad(), float32_is("ieee"):
                translated = translate_pieces(self.model, [encoded[index] for index in indices], self.device, beam,
                                              penalty, self.options.most_pieces)
            for index, line in zip(indices, self.pieces.decode(translated, "target"), strict=True):
                translations[index] = line
        return translations


def load_translator(folder: str | Path, device: torch.device) -> Translator:
    """The translator of a finished run.

    Args:
        folder: the run directory.
        device: where the model goes.

    Raises:
        RunError: it is not a finished run of translation, or one of its files is missing or damaged.
        RecipeError: its network is your own function, which cannot be found.
    """
    folder = Path(folder)
    recipe, arm, seed, spec = finished_run(folder, device)
    pieces = read_vocabulary(folder, recipe, "translation", "translation", "pieces.json", pieces_from_json)
    model = rebuilt(folder, spec, device, lambda: build_translation_model(
        spec.model, pieces.size("source"), pieces.size("target"), spec.model_options, spec.folder))
    return Translator(f"{recipe.name} {arm} seed {seed}", model, pieces, Options(**spec.options), device)
