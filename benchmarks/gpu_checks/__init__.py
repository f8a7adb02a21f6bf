"""What the checks of the kernels on a GPU share: logits at any confidence, measures of error, and how checks are run.

A check is a function that raises where something is wrong and returns a few words where nothing is. ``--part I/N``
runs a share of the work: of a check that is registered with ``in_parts``, every N-th case (it asks :func:`mine` for
them); the others go, the longest first, to the part that has the fewest seconds of them. Parts can run beside each
other on one GPU: most of their time is compilation.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor

from encouraging import curves

ULP = 2.0**-23
EL = curves.conservative(0.75)
CURVES = [curves.cross_entropy(), curves.normal(), curves.normal(eps=0), EL, curves.conservative(0.2),
          curves.aggressive(0.5), curves.power(2.0, 0.5), curves.poly(1.0), curves.focal(2.0),
          curves.halted_focal(2.0, 0.5), curves.square(), curves.square(bonus=True)]
TYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICE = "cuda"

_Item = TypeVar("_Item")
_part, _parts, _turn = 1, 1, 0


class Check(NamedTuple):
    run: Callable[[], str]
    in_parts: bool
    seconds: float  # about, on an H200, beside thirteen other parts; for a check that is not in parts


class Checks(list[Check]):
    """The checks of a script, in order: a decorator that adds one."""

    def __call__(self, function: Callable[[], str] | None = None, *, in_parts: bool = False,
                 seconds: float = 1.0) -> Callable[..., object]:
        if function is None:
            return lambda later: self._add(later, in_parts, seconds)
        return self._add(function, in_parts, seconds)

    def _add(self, function: Callable[[], str], in_parts: bool, seconds: float) -> Callable[[], str]:
        self.append(Check(function, in_parts, seconds))
        return function


def mine(cases: Iterable[_Item]) -> list[_Item]:
    """This part's share of a check's cases. Where they cannot be shared evenly, another part has more of them in every
    check."""
    return list(cases)[(_part - 1 + _turn) % _parts::_parts]


def share_out(checks: Iterable[Check], parts: int) -> list[list[Check]]:
    """The checks that are not in parts, for every part: about the same number of seconds."""
    shares: list[list[Check]] = [[] for _ in range(parts)]
    for check in sorted((check for check in checks if not check.in_parts), key=lambda check: -check.seconds):
        min(shares, key=lambda share: sum(one.seconds for one in share)).append(check)
    return shares


def draw(rows: int, classes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Labels with p from 1e-6 to 1 - 1e-7, evenly in the gap; fresh numbers every time."""
    z = 3 * torch.randn(rows, classes, device=DEVICE, dtype=torch.float32)
    y = torch.randint(classes, (rows,), device=DEVICE)
    ends = torch.tensor([1e-6, 1 - 1e-7], dtype=torch.float64).logit().tolist()
    gap = torch.linspace(*ends, rows, device=DEVICE)[torch.randperm(rows, device=DEVICE)]
    rivals = z.scatter(1, y[:, None], -math.inf).logsumexp(1)
    z.scatter_(1, y[:, None], (rivals + gap)[:, None])
    return (z + 10 * torch.rand(rows, 1, device=DEVICE)).to(dtype), y


def row_error(gradient: Tensor, expected: Tensor) -> Tensor:
    size = expected.abs().amax(1)
    return (gradient.double() - expected).abs().amax(1) / torch.where(size == 0, 1.0, size)


def spacing(expected: Tensor, dtype: torch.dtype) -> Tensor:
    """Half the distance of the type's smallest numbers, relative to a row's largest element: float16 ends at 6e-8, and
    the gradient of a row that is certain of its label, or one of many in a mean, is smaller than that."""
    size = expected.abs().amax(1)
    half = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2
    return half / torch.where(size == 0, 1.0, size)


def sensitivity(gradient: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Tensor:
    """How far a row's gradient moves, relative to its largest element, when every odds and every mass of the target
    moves up or down by an ulp; in float64, the most of eight draws.

    No arithmetic in float32 is closer than that to the truth but by luck: it rounds the odds and the masses at least
    once. It is large where the gradient is a small difference of large terms, as it is where the probabilities are near
    soft targets, most often with two classes. There an error of the plain code that happens to be small bounds nothing.
    """
    z, t = logits.detach().double(), target.detach().double()
    middle = gradient(z, t)
    size = middle.abs().amax(1)
    worst = torch.zeros_like(size)
    for _ in range(8):
        ups = [ULP * (2 * torch.randint_like(like, 2) - 1) for like in (z, t)]
        worst = torch.maximum(worst, (gradient(z + ups[0], t * (1 + ups[1])) - middle).abs().amax(1))
    return worst / torch.where(size == 0, 1.0, size)


def gaps_of(logits: Tensor, target: Tensor) -> Tensor:
    z = logits.double()
    return z.gather(1, target[:, None])[:, 0] - z.scatter(1, target[:, None], -math.inf).logsumexp(1)


def expect(holds: object, words: str) -> None:
    if not bool(holds):
        raise AssertionError(words)


def _parse_part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"{text}: expected I/N such as 2/5, the second of five parts")
    return int(match[1]), int(match[2])


def run(checks: Checks, words: str | None) -> NoReturn:
    """:func:`main` as a whole process, which ends at once with its status.

    Python's own end would wait for nobody: autograd's thread of the device may still be dropping what a backward pass
    has left, for which it asks for the interpreter's lock. While the interpreter is being taken down that ends the
    thread inside a C++ destructor, and the process by "terminate called without an active exception", status 134: once
    in 42 processes, after all checks had held.
    """
    status = main(checks, words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(checks: Checks, words: str | None) -> int:
    """Run the checks that the command line asks for, one line each; the exit status."""
    global _part, _parts, _turn
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these checks; without a name, all")
    parser.add_argument("--list", action="store_true", help="print the names of the checks and exit")
    parser.add_argument("--part", type=_parse_part, default=(1, 1), metavar="I/N",
                        help="a share of the work, such as 2/5: the second of five parts")
    asked = parser.parse_args()
    _part, _parts = asked.part
    known = [check.run.__name__ for check in checks]
    if asked.list:
        print("\n".join(known))
        return 0
    for name in asked.names:
        if name not in known:
            parser.error(f"no check is called {name}: --list prints their names")
    if not torch.cuda.is_available() or not find_spec("triton"):
        print("needs a CUDA device and Triton")
        return 1
    chosen = [check for check in checks if not asked.names or check.run.__name__ in asked.names]
    whole = share_out(chosen, _parts)[_part - 1]
    turns = {check: turn for turn, check in enumerate(chosen)}
    chosen = [check for check in chosen if check.in_parts or check in whole]
    torch.manual_seed(time.time_ns() % 2**31)
    failures = 0
    for check in chosen:
        start, _turn = time.perf_counter(), turns[check]
        try:
            result, verdict = check.run(), "ok  "
        except Exception as error:
            result, verdict = f"{type(error).__name__}: {error}", "FAIL"
            failures += 1
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        print(f"{verdict} {check.run.__name__} ({time.perf_counter() - start:.1f} s): {result}", flush=True)
        torch.cuda.empty_cache()
    share = "" if _parts == 1 else f" (part {_part} of {_parts})"
    print(f"{len(chosen) - failures} of {len(chosen)} checks hold on {torch.cuda.get_device_name()}{share}")
    return 1 if failures else 0
