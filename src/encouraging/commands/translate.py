"""``encouraging translate``: translate lines with a trained run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from ..engine.environment import choose_device
from ..errors import DataError
from ..recipes.translator import load_translator


def translate_lines(run: Path, *, beam: int | None = None, length_penalty: float | None = None,
                    at_once: int | None = None, device: str = "auto", lines: TextIO | None = None,
                    out: TextIO | None = None) -> int:
    """Write one translation per line of ``lines`` (standard input) to ``out`` (standard output); how many there were.

    At a terminal every line is answered at once; else lines are translated in batches.
    """
    lines, out = lines or sys.stdin, out or sys.stdout
    translator = load_translator(run, choose_device(device))
    if lines.isatty():
        print(f"{translator.name}: type a sentence per line, and end with Ctrl-D", file=sys.stderr)
        at_once = 1
    count = 0
    try:
        for line in translator.translate(iter(lines.readline, ""), beam=beam, length_penalty=length_penalty,
                                         at_once=at_once):
            print(line, file=out, flush=True)
            count += 1
    except UnicodeDecodeError as error:
        raise DataError(f"line {count + 1} or one soon after it is not text in UTF-8 ({error}).") from error
    return count
