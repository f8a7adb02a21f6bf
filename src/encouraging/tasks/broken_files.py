"""Image files that cannot be read completely: reported once, skipped and counted, or refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from ..errors import DataError

SHOWN = 20  # how many are printed; files/broken.txt of the run has all of them
FEW, FRACTION = 10, 0.01  # if more than both are broken, the whole copy is taken to be damaged


class BrokenFiles:
    """The faults of broken files; ``count`` is the number of files of the dataset."""

    def __init__(self, refuse: bool, count: int) -> None:
        self.refuse, self.count = refuse, count
        self.faults: dict[str, None] = {}

    def note(self, faults: Iterable[str]) -> None:
        """Report files that a worker could not use.

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
                            f"the copy of the data is probably damaged. Copy it again. The first: "
                            f"{next(iter(self.faults))}.")

    def text(self) -> bytes:
        """One line per file; a name that is not UTF-8 keeps its bytes."""
        return os.fsencode("".join(f"{fault}\n" for fault in sorted(self.faults)))
