"""``encouraging translate``: translate lines with a trained run."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ..engine.environment import choose_device
from ..errors import DataError
from ..recipes.translator import load_translator


def translate_lines(run: Path, *, beam: int | None = None, length_penalty: float | None = None,
                    at_once: int | None = None, device: str = "auto", lines: TextIO | None = None,
                    out: TextIO | None = None) -> int:
    """Write one translation per line of ``lines`` (standard input) to ``out`` (standard output); how many there were.

    At a terminal every line is answered at once; else lines are translated in batches. Text is UTF-8 whatever the
    locale says, and only a line feed ends a line, so that there are as many translations as lines.
    """
    lines, out = lines or _utf8(sys.stdin), out or _utf8(sys.stdout)
    if lines is None or out is None:  # Python sets a stream to None that was closed at the start
        raise DataError("standard input or output is closed: expected sentences from a pipe, a file or a terminal, and "
                        "a place for their translations.")
    translator = load_translator(run, choose_device(device))
    if lines.isatty():
        print(f"{translator.name}: type a sentence per line, and end with Ctrl-D", file=sys.stderr)
        at_once = 1
    count = 0
    try:
        sentences = _without_mark(iter(lines.readline, ""))
        for line in translator.translate(sentences, beam=beam, length_penalty=length_penalty, at_once=at_once):
            print(line, file=out, flush=True)
            count += 1
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        if out is sys.stdout:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at the exit
    except UnicodeDecodeError as error:
        raise DataError(f"line {count + 1} or one soon after it is not text in UTF-8 ({error}).") from error
    return count


def _utf8(stream: TextIO) -> TextIO:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return stream


def _without_mark(lines: Iterator[str]) -> Iterator[str]:
    """Some editors begin a file with a byte-order mark."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")
