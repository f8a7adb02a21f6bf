"""Files that are no whole images: named once, left out and counted, or refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from ..errors import DataError

SHOWN = 20  # of them are printed; all are kept in the run's files/broken.txt
FEW, FRACTION = 10, 0.01  # more than both, and it is not a few files that are broken


class BrokenFiles:
    """What was wrong with which files; ``count`` is how many files the data has."""

    def __init__(self, refuse: bool, count: int) -> None:
        self.refuse, self.count = refuse, count
        self.faults: dict[str, None] = {}

    def note(self, faults: Iterable[str]) -> None:
        """Take notice of files that a worker could not use.

        Raises:
            DataError: broken files are refused, or there are too many of them.
        """
        for fault in faults:
            if self.refuse:
                raise DataError(f"{fault}. Repair or remove the file, or leave such files out with --set "
                                "options.broken=skip.")
            if fault not in self.faults:
                self.faults[fault] = None
                if len(self.faults) <= SHOWN:
                    print(f"skipped a broken image: {fault}", file=sys.stderr, flush=True)
        if len(self.faults) > max(FEW, FRACTION * self.count):
            raise DataError(f"{len(self.faults)} of {self.count} files are broken so far, more than {FRACTION:.0%}: "
                            f"the copy of the data is probably damaged. The first: {next(iter(self.faults))}.")

    def text(self) -> bytes:
        """One line per file; a name that is not UTF-8 keeps its bytes."""
        return os.fsencode("".join(f"{fault}\n" for fault in sorted(self.faults)))
