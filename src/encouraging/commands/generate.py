"""``encouraging generate``: write text with a trained language model."""

from __future__ import annotations

import io
import math
import os
import sys
from pathlib import Path
from typing import TextIO

from ..data.text import HALF
from ..engine.environment import choose_device
from ..errors import ArgumentError, DataError
from ..recipes.writer import load_writer


def write_text(run: Path, prompt: str = "\n", *, length: int = 500, temperature: float = 1.0, seed: int = 0,
               device: str = "auto", out: TextIO | None = None) -> None:
    """Write ``length`` tokens after ``prompt`` to ``out`` (standard output), each as soon as it is known."""
    if not prompt:
        raise ArgumentError("prompt is empty: expected at least one character, because a token is predicted from those "
                            "before it.")
    if HALF.search(prompt):  # the command line has bytes that are no UTF-8
        raise ArgumentError(f"prompt={prompt!r}: expected text in UTF-8.")
    if not 0 <= temperature < math.inf:
        raise ArgumentError(f"temperature={temperature}: expected a number, 0 or more.")
    out = out or sys.stdout
    if out is None:  # Python sets a stream to None that was closed at the start
        raise DataError("standard output is closed: expected a place for the text.")
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(encoding="utf-8")
    writer = load_writer(run, choose_device(device))
    try:
        out.write(prompt)
        for piece in writer.write(prompt, length=length, temperature=temperature, seed=seed):
            out.write(piece)
            out.flush()
        out.write("\n")
        out.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        if out is sys.stdout:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at the exit
