"""The command itself, and how its errors are shown."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__

INTERRUPTED = 130  # the exit code after Ctrl-C, as shells have it
app = typer.Typer(
    name="encouraging",
    help="Losses that keep teaching a classifier after it gets an example right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """The entry point of the ``encouraging`` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # hours of training must not end in a ± that a terminal cannot show
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:  # one more Ctrl-C has nothing left to stop, and would end in a traceback
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"encouraging {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


class Outputs:
    """The files that a command is going to write (None is one that is not wanted): afterwards it says of each whether
    there was one of that name. (``os.path.isfile`` never raises, unlike ``Path.is_file`` in a locked folder.)"""

    def __init__(self, *paths: Path | None) -> None:
        self.replaced = {path for path in paths if path is not None and os.path.isfile(path)}

    def say(self, path: Path, more: str = "") -> None:
        typer.echo(f"wrote {path}{more}" + (", in place of the one that was there" if path in self.replaced else ""))


@contextmanager
def errors_in_one_line(interrupted: str = "") -> Iterator[None]:
    """Bad input ends with one line on the error stream and exit code 2, as any wrong argument does; Ctrl-C with exit
    code 130 and a line, in which ``interrupted`` says what is left."""
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo(f"\nencouraging: interrupted. {interrupted}".rstrip(), err=True)
        raise typer.Exit(INTERRUPTED) from error
    except (ValueError, OSError) as error:
        typer.echo(f"encouraging: {error}", err=True)
        raise typer.Exit(2) from error
