"""Tables of numbers in files: CSV with any usual separator, JSON lines, JSON. Messages name the line that is wrong."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
LARGEST = 64 << 20  # bytes of a file: numbers per arm and seed are few


class Row(NamedTuple):
    """One row of a table, and where it is."""

    where: str
    cells: Mapping[str, Any]


def content_of(path: Path) -> Any:
    """What a file holds: rows, or what JSON makes of it."""
    if path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: expected a file that ends with {', '.join(ENDINGS)}.")
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path}: larger than {LARGEST >> 20} MiB; expected one row per arm and seed.")
        text = path.read_bytes().decode("utf-8-sig")
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise DataError(f"{path}, line {line}: has a NUL character, which text does not have. Save it as UTF-8.")
        if path.suffix.lower() == ".json":
            return json.loads(text, object_pairs_hook=_unrepeated)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: cannot be read: it is not text in UTF-8 ({error}). Save it as UTF-8.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise error if isinstance(error, DataError) else DataError(f"{path}: cannot be read ({error}).") from error
    if not text.strip():
        raise DataError(f"{path}: the file is empty.")
    return list(_json_lines(text, path) if path.suffix.lower() in (".jsonl", ".ndjson") else _csv(text, path))


def _json_lines(text: str, path: Path) -> Iterator[Row]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield row_of(f"{path}, line {number}", json.loads(line, object_pairs_hook=_unrepeated))
            except (ValueError, RecursionError) as error:
                raise error if isinstance(error, DataError) else DataError(
                    f"{path}, line {number}: not JSON ({error}).") from error


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; of a key that is there twice Python would keep the last value alone."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} appears twice in one object")
    return content


def _csv(text: str, path: Path) -> Iterator[Row]:
    table_text = re.sub(r"\A(?:[ \t]*\r?\n)+", "", text)
    skipped = text[: len(text) - len(table_text)].count("\n")
    table = csv.DictReader(io.StringIO(table_text, newline=""), delimiter=_delimiter(table_text), skipinitialspace=True,
                           strict=True)
    try:
        headers = [header.strip() for header in table.fieldnames or []]
        if len(set(headers)) < len(headers) or "" in headers:
            raise DataError(f"{path}, line {skipped + 1}: expected the names of the columns, each once, found "
                            f"{joined_names(headers)}.")
        table.fieldnames = headers
        for cells in table:
            where = f"{path}, line {skipped + table.line_num}"
            if None in cells or any(cell is None for cell in cells.values()):
                raise DataError(f"{where}: not as many cells as the {len(headers)} columns {joined_names(headers)}.")
            yield Row(where, {header: cell.strip() for header, cell in cells.items()})
    except csv.Error as error:
        raise DataError(f"{path}, line {skipped + table.line_num}: {error}.") from error


def _delimiter(text: str) -> str:
    """What separates the names of the columns: the mark that is most frequent among them, outside of quotes.

    >>> _delimiter('arm,"acc; top; 1",seed')
    ','
    """
    header = re.match(r'(?:"[^"]*"|[^"\r\n])*', text)
    unquoted = re.sub(r'"[^"]*"', "", header.group() if header else "")
    return max("\t;,", key=unquoted.count)


def row_of(where: str, cells: Any) -> Row:
    if not isinstance(cells, Mapping):
        raise DataError(f"{where}: a {type(cells).__name__}; expected the columns and their values, as a mapping.")
    return Row(where, cells)


def joined_names(names: Iterable[Any]) -> str:
    """Names in a message."""
    return ", ".join(map(str, names)) or "none"
