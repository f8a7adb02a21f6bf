"""Readers that keep what they have read for as long as its files stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def read_once(files: Callable[Arguments, Iterable[Path]], keep: int = 2
              ) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """A decorator for readers, because a process trains one run after another: the same arguments return the same
    object, until one of the files changes.

    Args:
        files: what the reader depends on, from its arguments; a file may be missing. A folder stands for the names in
            it.
        keep: how many results are kept.
    """
    def decorate(read: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @lru_cache(maxsize=keep)
        def cached(identities: Hashable, arguments: Any, named: Any) -> Result:
            return read(*arguments, **dict(named))

        @wraps(read)
        def reader(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            # Taken before the reading: a file that changes meanwhile is read again by the next call.
            identities = tuple(map(_identity, sorted(files(*arguments, **named))))
            return cached(identities, arguments, tuple(named.items()))

        return reader

    return decorate


def _identity(path: Path) -> tuple[str, tuple[int, ...]]:
    """Path, size and times. The time of the last change of the entry is there for tools that set the other one back,
    such as tar and cp -p."""
    try:
        stat = path.stat()
    except OSError:  # the reader says what is missing
        return str(path), ()
    return str(path), (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
