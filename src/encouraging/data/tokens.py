"""The tokens of a running text: its characters, or pieces of words learnt by byte-pair encoding."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, DataError, RecipeError

SCHEMA = 1
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # what a character becomes that the training text does not have
BYTES = 256  # the smallest vocabulary of pieces: one for each byte


class Tokens(Protocol):
    """A vocabulary: text to the indices of its tokens, and back."""

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> Tensor: ...

    def decode(self, indices: list[int]) -> str: ...

    def to_json(self) -> bytes: ...


class Characters:
    """One token per character of the training text, and one for all others.

    >>> tokens = Characters("to be")
    >>> tokens.encode("tea").tolist(), tokens.decode([5, 3])
    ([5, 3, 0], 'te')
    """

    def __init__(self, text: str) -> None:
        self.letters = UNKNOWN + "".join(sorted(set(text) - {UNKNOWN}))
        self._codes = _codes(self.letters[1:])

    @property
    def size(self) -> int:
        return len(self.letters)

    def encode(self, text: str) -> Tensor:
        codes = _codes(text)
        nearest = np.searchsorted(self._codes, codes).clip(max=max(len(self._codes) - 1, 0))
        has_token = self._codes[nearest] == codes if len(self._codes) else np.zeros(len(codes), bool)
        return torch.from_numpy(np.where(has_token, nearest + 1, 0))

    def decode(self, indices: list[int]) -> str:
        return "".join(self.letters[index] for index in indices)

    def to_json(self) -> bytes:
        return json.dumps({"schema": SCHEMA, "characters": self.letters[1:]}, ensure_ascii=False).encode()


class BytePairs:
    """Pieces of words over the bytes of a text, as in GPT-2; they can write any text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @property
    def size(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def encode(self, text: str) -> Tensor:
        return torch.tensor(self.tokenizer.encode(text).ids, dtype=torch.int64)

    def decode(self, indices: list[int]) -> str:
        return str(self.tokenizer.decode(indices))

    def to_json(self) -> bytes:
        return json.dumps({"schema": SCHEMA, "tokenizer": json.loads(self.tokenizer.to_str())},
                          ensure_ascii=False).encode()


def learn_tokens(text: str, vocabulary: int | None = None) -> Tokens:
    """The tokens of a text: its characters, or at most ``vocabulary`` pieces that are learnt on it, 256 or more.

    The same text gives the same tokens.
    """
    if vocabulary is None:
        return Characters(text)
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < BYTES:
        raise ArgumentError(f"vocabulary={vocabulary!r}: expected a whole number of pieces, {BYTES} or more, or None "
                            "for characters.")
    return _learn_pairs(text, min(vocabulary, BYTES + len(text.encode())))  # a merge needs a byte


def tokens_from_json(content: bytes) -> Tokens:
    """Read what :meth:`Tokens.to_json` has written."""
    try:
        tree = json.loads(content)
        if tree["schema"] != SCHEMA:
            raise ValueError(f"schema {tree['schema']}, expected {SCHEMA}")
        if "characters" in tree:
            return Characters(tree["characters"])
        return BytePairs(_library().Tokenizer.from_str(json.dumps(tree["tokenizer"])))
    except RecipeError:
        raise
    except Exception as error:  # the library raises plain exceptions
        raise DataError(f"the vocabulary cannot be read ({type(error).__name__}: {error}).") from error


@lru_cache(maxsize=2)
def _learn_pairs(text: str, vocabulary: int) -> BytePairs:
    """Cached, because a process trains one run after another."""
    library = _library()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.train_from_iterator([text], library.trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False,
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet())))
    return BytePairs(tokenizer)


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise RecipeError(f"a vocabulary of pieces needs the package tokenizers ({error}): pip install tokenizers. "
                          "Characters need no package: leave options.vocabulary out.", "options") from error
    return tokenizers


def _codes(text: str) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
