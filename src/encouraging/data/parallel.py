"""Sentences in two languages, line by line: Multi30k, the official files of IWSLT, and your own text files.

Multi30k has one gzipped file per part and language. IWSLT's training files hold talks with tags on lines of their own
(``<url>``, ``<title>``), and its test sets are XML, one ``<seg>`` per sentence.
"""

from __future__ import annotations

import gzip
import html
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError
from ..plugins import is_reference, load_function
from ._load import checked_files
from ._once import read_once
from .images import folder_path
from .registry import data_dir, dataset

PARTS = ("train", "validation", "test")
_NAMES = {"train": ("train",), "validation": ("val", "valid", "dev"), "test": ("test",)}
# Lines of IWSLT's training files that are about a talk; those of the second kind are sentences inside a tag.
_ABOUT = re.compile(r"\s*</?(url|talkid|keywords|speaker|reviewer|translator|doc)\b")
_AROUND = re.compile(r"</?(title|description)>")
_SEGMENT = re.compile(r'<seg id="[^"]*">(.*?)</seg>')
KEEP_EVERY = 23  # of IWSLT14's sentences, every 23rd is for validation


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations, line by line."""

    source: Sequence[str] = field(default_factory=tuple)
    target: Sequence[str] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for column in (self.source, self.target):
            other = {type(line).__name__ for line in column if not isinstance(line, str)}
            if isinstance(column, str) or other:
                raise DataError(f"sentences are {f'of the type {min(other)}' if other else 'one string'}: expected "
                                "lists of strings, one of sentences and one of their translations.")
        if len(self.source) != len(self.target):
            raise DataError(f"{len(self.source)} sentences and {len(self.target)} translations: expected one "
                            "translation per sentence.")

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Corpus:
    """The three parts of a dataset for translation."""

    train: Pairs
    validation: Pairs
    test: Pairs

    def __post_init__(self) -> None:
        for part in PARTS:
            pairs = getattr(self, part)
            if not len(pairs):
                raise DataError(f"the {part} part has no sentences: expected at least one.")
            if not any(line.strip() for line in pairs.target):
                raise DataError(f"the {len(pairs)} translations of the {part} part are empty: expected text in one of "
                                "them at least.")


@dataclass(frozen=True)
class TextOptions:
    """How text is read: whether it is lower-cased, and which training pairs are left out because one sentence has more
    than ``longest`` words, or more than ``ratio`` times as many words as the other."""

    lowercase: bool = False
    longest: int | None = None
    ratio: float | None = None


def read_corpus(name: str, root: str | Path | None = None, folder: str | None = None, *,
                languages: tuple[str, str] = ("", ""), options: TextOptions | None = None) -> Corpus:
    """The sentences that ``name`` names: of a known dataset, ``folder:PATH`` with files such as ``train.de`` and
    ``train.en`` (also ``val`` and ``test``, also gzipped), or what ``module:function`` returns (:class:`Corpus`, or a
    dict of its parts with a source and a target list each).

    Args:
        name: as above.
        root: the data directory; by default ``ENCOURAGING_DATA``, or else the user's cache.
        folder: the folder of the recipe's file, for your own paths and modules.
        languages: the endings of the two files, for ``folder:``.
        options: how the text is prepared.

    Raises:
        DataError: files are missing or damaged, or do not belong together.
    """
    options = options or TextOptions()
    if is_reference(name):
        return prepared(_as_corpus(name, load_function(name, folder, "data")()), options)
    if name.startswith("folder:"):
        return _from_folder(folder_path(name, root, folder), languages, options)
    facts = dataset(name)
    if facts.reader not in ("multi30k", "iwslt"):
        raise DataError(f"{name} holds no sentences: expected data for translation, such as multi30k-de-en.")
    data = data_dir(root)
    paths = tuple(checked_files(name, "train", data)), tuple(checked_files(name, "test", data))
    return _read_published(facts.reader, *paths, options)


def _candidates(folder: Path, part: str, language: str) -> list[Path]:
    return [folder / f"{stem}.{language}{end}" for stem in _NAMES[part] for end in ("", ".gz")]


@read_once(lambda path, languages, options: (file for part in PARTS for language in languages
                                             for file in _candidates(path, part, language)))
def _from_folder(path: Path, languages: tuple[str, str], options: TextOptions) -> Corpus:
    return prepared(Corpus(*(_plain(path, part, languages) for part in PARTS)), options)


def _plain(folder: Path, part: str, languages: tuple[str, str]) -> Pairs:
    columns = []
    for language in languages:
        candidates = _candidates(folder, part, language)
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            raise DataError(f"{folder} has no {part} sentences in {language!r}: expected one of "
                            f"{', '.join(path.name for path in candidates)}. options.source and options.target are the "
                            "endings of the two files.")
        columns.append(lines_of(path))
    return _paired(columns[0], columns[1], str(folder / part))


@read_once(lambda reader, train, test, options: (*train, *test))
def _read_published(reader: str, train: tuple[Path, ...], test: tuple[Path, ...], options: TextOptions) -> Corpus:
    if reader == "multi30k":
        return prepared(Corpus(*(_both(two, lines_of) for two in (train[:2], train[2:], test))), options)
    first = cleaned(normalised(_both(train[:2], talk_lines), options), options)
    tests = _joined(_segments(test))
    if len(train) > 2:
        return Corpus(first, normalised(_joined(_segments(train[2:])), options), normalised(tests, options))
    validation = [index for index in range(len(first)) if (index + 1) % KEEP_EVERY == 0]
    training = [index for index in range(len(first)) if (index + 1) % KEEP_EVERY != 0]
    return Corpus(_some(first, training), _some(first, validation), normalised(tests, options))


def _segments(paths: Sequence[Path]) -> list[Pairs]:
    """Test sets of IWSLT, as pairs of files: both languages of one set, then those of the next."""
    return [_both(two, segments_of) for two in zip(paths[::2], paths[1::2], strict=True)]


def _both(paths: Sequence[Path], read: Callable[[Path], list[str]]) -> Pairs:
    """The file of the source language and that of the target language."""
    return _paired(read(paths[0]), read(paths[1]), str(paths[0]))


def lines_of(path: Path) -> list[str]:
    """The lines of a text file in UTF-8, unzipped where its name ends in .gz. Only a line feed ends a line, so that
    files in two languages stay aligned whatever else they contain."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = content.decode("utf-8-sig").split("\n")  # some editors begin a file with a byte-order mark
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(f"{path}: expected text in UTF-8{', gzipped' * (path.suffix == '.gz')} ({error}).") from error
    return lines[:-1] if lines[-1] == "" else lines


def talk_lines(path: Path) -> list[str]:
    """The sentences of a training file of IWSLT: lines about a talk are left out, tags around titles and descriptions
    removed."""
    return [_AROUND.sub("", line) for line in lines_of(path) if not _ABOUT.match(line)]


def segments_of(path: Path) -> list[str]:
    """The sentences of an XML test set of IWSLT."""
    segments = [_SEGMENT.search(line) for line in lines_of(path) if "<seg id" in line]
    if not segments or None in segments:
        raise DataError(f'{path}: expected lines such as <seg id="1">A sentence.</seg>.')
    return [html.unescape(match[1]).replace("’", "'") for match in segments if match]


def prepared(corpus: Corpus, options: TextOptions) -> Corpus:
    """The corpus with normalised sentences, and without long training pairs."""
    train, validation, test = (normalised(getattr(corpus, part), options) for part in PARTS)
    return Corpus(cleaned(train, options), validation, test)


def normalise(line: str, lowercase: bool) -> str:
    """A sentence with single spaces, in lower case if ``lowercase``: the form for training and comparisons.

    >>> normalise("  Ein\\tMann ", lowercase=True)
    'ein mann'
    """
    words = " ".join(line.split())
    return words.lower() if lowercase else words


def normalised(pairs: Pairs, options: TextOptions) -> Pairs:
    return Pairs(*([normalise(line, options.lowercase) for line in column] for column in (pairs.source, pairs.target)))


def cleaned(pairs: Pairs, options: TextOptions) -> Pairs:
    """The pairs without those in which one sentence is empty, too long, or too long compared with the other."""
    indices = []
    for index, (source, target) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        short, long = sorted((len(source.split()), len(target.split())))
        if short and long <= (options.longest or long) and long <= (options.ratio or long) * short:
            indices.append(index)
    if len(pairs) and not indices:
        raise DataError(f"none of {len(pairs)} training pairs is left with longest = {options.longest} and ratio = "
                        f"{options.ratio}: all have an empty sentence, one with more words than longest, or one with "
                        "more than ratio times as many words as the other. Raise them, or look at the files.")
    return _some(pairs, indices)


def _some(pairs: Pairs, indices: Sequence[int]) -> Pairs:
    return Pairs([pairs.source[index] for index in indices], [pairs.target[index] for index in indices])


def _joined(several: Sequence[Pairs]) -> Pairs:
    return Pairs([line for pairs in several for line in pairs.source],
                 [line for pairs in several for line in pairs.target])


def _paired(source: Sequence[str], target: Sequence[str], where: str) -> Pairs:
    if len(source) != len(target):
        raise DataError(f"{where}: {len(source)} sentences, and its translation has {len(target)}: the files do not "
                        "belong together.")
    return Pairs(source, target)


def _as_corpus(name: str, returned: object) -> Corpus:
    """The corpus that your own function has returned."""
    if isinstance(returned, Corpus):
        return returned
    if not isinstance(returned, Mapping) or set(returned) != set(PARTS):
        raise DataError(f"{name} returned a {type(returned).__name__}: expected encouraging.data.Corpus, or a dict of "
                        f"{', '.join(PARTS)}, each two lists of sentences.")
    try:
        return Corpus(*(pairs if isinstance(pairs := returned[part], Pairs) else Pairs(*pairs) for part in PARTS))
    except TypeError as error:
        raise DataError(f"{name}: expected two lists of sentences per part ({error}).") from error
