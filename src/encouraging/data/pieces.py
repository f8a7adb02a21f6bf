"""Sentences as pieces of words: byte-pair encoding learnt on both languages together, by the package tokenizers.

A piece that begins a word starts with ``▁``, and punctuation marks are separate pieces. So sentences can be restored
from their pieces, except for characters that the training text does not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ..errors import ArgumentError, DataError, RecipeError

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
SCHEMA = 1


@contextmanager
def translation_extra(package: str) -> Iterator[None]:
    """A context for importing a package of the extra ``translation``; says what to install if it is missing."""
    try:
        yield
    except ImportError as error:
        raise RecipeError(f"translation needs the package {package} ({error}): pip install "
                          "tokenizers sacrebleu.", "task") from error


class Pieces:
    """The vocabulary of two languages, which encodes sentences as indices of pieces.

    The pieces are learnt on both languages together. With ``joint`` both sides use all of them; otherwise each side has
    the pieces that occur in its own training text, with its own indices.

    >>> pieces = learn_pieces(["ein mann", "eine frau"], ["a man", "a woman"], size=40)
    >>> numbers = pieces.encode(["eine frau"], "source")
    >>> pieces.decode(numbers, "source")
    ['eine frau']
    """

    def __init__(self, tokenizer: Any, kept: dict[str, list[int]] | None = None) -> None:
        self.tokenizer, self.kept = tokenizer, kept
        tokenizer.encode_special_tokens = True  # a sentence that contains "</s>" has these characters and no end
        self._index = {side: {piece: index for index, piece in enumerate(pieces)}
                       for side, pieces in (kept or {}).items()}

    @property
    def joint(self) -> bool:
        return self.kept is None

    def size(self, side: str) -> int:
        """The number of pieces of the ``source`` or ``target`` side, including those for padding, start and end."""
        return int(self.tokenizer.get_vocab_size()) if self.kept is None else len(self.kept[side])

    def encode(self, lines: Iterable[str], side: str) -> list[list[int]]:
        """The indices of the pieces of every sentence, without start and end."""
        if isinstance(lines, str):  # otherwise each of its characters would be a sentence
            raise ArgumentError(f"lines={lines[:40]!r}: expected a list of sentences, such as [{lines[:40]!r}].")
        encoded = [encoding.ids for encoding in self.tokenizer.encode_batch(list(lines), add_special_tokens=False)]
        if self.kept is None:
            return encoded
        index = self._index[side]
        return [[index.get(piece, UNKNOWN) for piece in numbers] for numbers in encoded]

    def decode(self, several: Iterable[Sequence[int]], side: str) -> list[str]:
        """The sentences of these indices; special pieces are left out."""
        if self.kept is not None:
            several = [[self.kept[side][number] for number in numbers] for numbers in several]
        lines = self.tokenizer.decode_batch([list(numbers) for numbers in several], skip_special_tokens=True)
        return [" ".join(line.split()) for line in lines]

    def to_json(self) -> bytes:
        """The vocabulary as JSON, for :func:`pieces_from_json`."""
        return json.dumps({"schema": SCHEMA, "kept": self.kept, "tokenizer": json.loads(self.tokenizer.to_str())},
                          ensure_ascii=False).encode()


def pieces_from_json(content: bytes) -> Pieces:
    """Read what :meth:`Pieces.to_json` has written."""
    with translation_extra("tokenizers"):
        import tokenizers
    try:
        tree = json.loads(content)
        if tree["schema"] != SCHEMA:
            raise ValueError(f"schema {tree['schema']}, expected {SCHEMA}")
        return Pieces(tokenizers.Tokenizer.from_str(json.dumps(tree["tokenizer"])), tree["kept"])
    except Exception as error:  # the library raises plain exceptions
        raise DataError(f"the vocabulary cannot be read ({type(error).__name__}: {error}).") from error


def learn_pieces(source: Sequence[str], target: Sequence[str], size: int, joint: bool = True) -> Pieces:
    """Learn at most ``size`` pieces on these sentences; the same ones from the same sentences.

    Args:
        source: training sentences.
        target: their translations.
        size: the size of the vocabulary of both languages together: at least one piece per character, and the special
            pieces.
        joint: whether both sides use the complete vocabulary.

    Raises:
        DataError: ``size`` is smaller than that.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"size={size!r}: expected a whole number of pieces, 1 or more.")
    # The library allocates memory for all pieces at once, and a size of billions would kill the process. There cannot
    # be more pieces than this: every merge removes a character.
    largest = len(SPECIAL) + 2 * sum(len(line) + 1 for lines in (source, target) for line in lines)
    return _learn(tuple(source), tuple(target), min(size, largest), joint)


@lru_cache(maxsize=2)
def _learn(source: tuple[str, ...], target: tuple[str, ...], size: int, joint: bool) -> Pieces:
    """Cached, because a process trains one run after another."""
    with translation_extra("tokenizers"):
        import tokenizers as library
    tokenizer = library.Tokenizer(library.models.BPE(unk_token=SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence([
        library.pre_tokenizers.Metaspace(), library.pre_tokenizers.Punctuation()])
    tokenizer.decoder = library.decoders.Metaspace()
    tokenizer.train_from_iterator([*source, *target], library.trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), show_progress=False))
    if (least := int(tokenizer.get_vocab_size())) > size:  # every character has a piece, whatever the size is
        raise DataError(f"a vocabulary of {size} pieces (options.vocabulary in a recipe): these sentences need at "
                        f"least {least}, one for each of their {least - len(SPECIAL)} different characters (one of "
                        f"them marks the beginning of a word) and {len(SPECIAL)} special ones.")
    pieces = Pieces(tokenizer)
    if joint:
        return pieces
    kept = {}
    for side, lines in (("source", source), ("target", target)):
        seen = {piece for numbers in pieces.encode(lines, side) for piece in numbers}
        kept[side] = [*range(len(SPECIAL)), *sorted(seen - set(range(len(SPECIAL))))]
    return Pieces(tokenizer, kept)
