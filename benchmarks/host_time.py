"""What a step of the kernels costs the host, and how many kernels it launches, measured without a GPU.

    python benchmarks/host_time.py [--shape 16x1000] [--dtype float32] [--out FILE] [PATH ...]

Every launch is replaced by a call that does nothing, and everything around it runs as it does on a GPU: checks, the
choice of the path, buffers, autograd, the search for the prepared launch. The result is microseconds of Python and
torch per forward and backward pass, the median of many. Beside it stand torch's own cross-entropy on a tiny tensor of
the CPU, computation included, for scale, and the number of launches: our kernels, and operations of torch that compute
something.

With ``--cuda`` both are timed on a GPU with all their launches. A backward pass wakes autograd's thread of the device,
which takes 0.1 ms or 0.4, as the machine pleases at the moment, more than everything else together: figures that are
taken one after the other cannot be compared. So the two take turns: in every round ten steps of torch's cross-entropy
and ten of the path, in changing order, are queued behind other work; a figure is the median over the rounds, and the
ratio that of the two times of each round.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from encouraging import EncouragingLoss, curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss, targets
from encouraging.ops import dispatch, repeat

EL = curves.conservative(0.75)
_OWN = curves.custom(lambda gap: -0.5 * gap, lambda gap: torch.full_like(gap, 0.5), "halved")
# Operations of torch that launch nothing: they allocate, or look at the same memory in another way.
_FREE = ("empty", "view", "expand", "detach", "alias", "t.", "transpose", "slice", "select", "unsqueeze", "as_strided",
         "reshape", "_unsafe_view", "squeeze", "new_empty", "lift", "promote_types")


class Launches(TorchDispatchMode):
    """Counts what a GPU would be given: ``ours`` by the names of the kernels, ``torchs`` by those of the operations."""

    def __init__(self) -> None:
        super().__init__()
        self.ours: list[str] = []
        self.torchs: list[str] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation.__name__
        if not name.startswith(_FREE):
            self.torchs.append(name)
        return operation(*args, **(kwargs or {}))


class _Compiled:
    """What Triton returns for a launch: a kernel that can be launched again. It is kept with the prepared launches."""

    function, packed_metadata = None, None
    launched: list[str] | None = None  # where the launches are written down

    def __init__(self, kernel: Any) -> None:
        self.name = kernel.__name__
        self.run()

    def run(self, *_: Any) -> None:
        if _Compiled.launched is not None:
            _Compiled.launched.append(self.name)


def _stream(device: int) -> int:
    return 0


def _none(_: object) -> None:
    return None


def _yes(*_: Any, **__: Any) -> bool:
    return True


@contextmanager
def no_launches(launched: list[str] | None = None) -> Iterator[None]:
    """Take the path of a GPU with tensors of the CPU; nothing is launched, and the names of the kernels are added to
    ``launched``."""
    import triton

    from encouraging.ops.triton import cached_launch

    def compile_and_launch(kernel: Any, *_: Any, **__: Any) -> _Compiled:
        return _Compiled(kernel)

    with (mock.patch.object(_Compiled, "launched", launched),
          mock.patch.object(triton.runtime.jit.JITFunction, "run", compile_and_launch),
          mock.patch.object(cached_launch, "_INTERPRETER", None), mock.patch.object(cached_launch, "_is_tested", True),
          mock.patch.object(torch._C, "_cuda_getCurrentRawStream", _stream, create=True),
          mock.patch.object(dispatch, "_machine_obstacle", _none),
          mock.patch.object(targets, "values_are_readable", _none),  # those of a GPU are not
          mock.patch.object(dispatch, "takes_elementwise", _yes), mock.patch.object(repeat, "is_on_gpu", _yes)):
        yield


class Paths:
    """The loss of every path for logits of one shape, by its name."""

    def __init__(self, rows: int, classes: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.logits = logits = torch.zeros(rows, classes, dtype=dtype, device=device).requires_grad_()
        labels = torch.zeros(rows, dtype=torch.int64, device=device)
        soft = torch.zeros_like(logits, requires_grad=False)
        module = EncouragingLoss(impl="triton")

        def labelled(**arguments: Any) -> Callable[[], Tensor]:
            return lambda: curve_loss(logits, labels, **{"curve": EL, "impl": "triton", **arguments})

        self.losses: dict[str, Callable[[], Tensor]] = {
            "plain": lambda: module(logits, labels),
            "sum": labelled(reduction="sum"),
            "none": labelled(reduction="none"),
            "weighted": labelled(weight=torch.ones(classes, device=device)),
            "divisor": labelled(divisor=torch.ones((), device=device)),
            "smoothed": labelled(label_smoothing=0.1),
            "match_norm": labelled(match_norm=True),
            "own curve": labelled(curve=_OWN),
            "soft": lambda: curve_loss(logits, soft, EL, impl="triton"),
            "sigmoid": lambda: sigmoid_curve_loss(logits, soft, EL),
            "sigmoid, class indices": lambda: sigmoid_curve_loss(logits, labels, EL),
            "mse": lambda: mirror_mse_loss(logits, labels),
            "F.cross_entropy": lambda: F.cross_entropy(logits, labels),
        }
        self._above = {name: torch.ones(rows if name == "none" else (), dtype=dtype, device=device)
                       for name in self.losses}

    def step(self, name: str) -> Callable[[], None]:
        """Forward and backward, with an upstream gradient that is there already."""
        loss, above, logits = self.losses[name], self._above[name], self.logits

        def run() -> None:
            logits.grad = None
            loss().backward(above)

        return run

    def launches(self, name: str) -> Launches:
        """What a GPU is given in one forward and backward pass, once everything is prepared."""
        counted, run = Launches(), self.step(name)
        with no_launches():
            run()
        with no_launches(counted.ours), counted:
            run()
        return counted


def microseconds(run: Callable[[], None], repeats: int) -> float:
    """The median of ``repeats`` passes, after some that prepare, of the time that the thread itself has run."""
    taken = []
    for _ in range(20):
        run()
    for _ in range(repeats):
        start = time.thread_time_ns()
        run()
        taken.append(time.thread_time_ns() - start)
    return statistics.median(taken) / 1e3


def in_turn(run: Callable[[], None], other: Callable[[], None], rounds: int, steps: int = 10,
            timer: Callable[[Callable[[], None], int], float] | None = None) -> tuple[float, float, float]:
    """Microseconds of the host for a step of each of two, and their ratio: medians over rounds in which both are timed,
    now the one first and now the other. ``timer`` times so many steps of one."""
    timer = timer or _queued
    for one in (run, other):
        for _ in range(10):
            one()
    taken: list[tuple[float, float]] = []
    for i in range(rounds):
        first, second = (run, other) if i % 2 else (other, run)
        times = timer(first, steps), timer(second, steps)
        taken.append(times if i % 2 else times[::-1])
    mine, others = zip(*taken, strict=True)
    return (statistics.median(mine), statistics.median(others),
            statistics.median(one / two for one, two in taken))


def _queued(run: Callable[[], None], steps: int) -> float:
    """Microseconds per step on the host, while the GPU is busy for longer than all of them take to be queued."""
    torch.cuda.synchronize()
    torch.cuda._sleep(2_400_000 * steps)  # 1.2 ms or more per step
    start = time.perf_counter_ns()
    for _ in range(steps):
        run()
    return (time.perf_counter_ns() - start) / 1e3 / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these paths, such as plain or 'own curve'")
    parser.add_argument("--shape", default="16x1000", help="rows and classes (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", help="type of the logits (default: %(default)s)")
    parser.add_argument("--repeats", type=int, help="passes per path (default: 2000), on a GPU rounds of "
                        "ten passes (default: 40)")
    parser.add_argument("--cuda", action="store_true", help="time it on a GPU, with all launches")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    args.repeats = args.repeats or (40 if args.cuda else 2000)
    rows, classes = map(int, args.shape.split("x"))
    dtype, device = getattr(torch, args.dtype), "cuda" if args.cuda else "cpu"
    names = [name for name in Paths(2, 3).losses if name != "F.cross_entropy"]
    for unknown in set(args.paths) - set(names):
        parser.error(f"no path is called {unknown!r}; they are {', '.join(names)}")
    counted, timed = Paths(rows, classes, dtype), Paths(rows, classes, dtype, device)
    base = math.nan
    if not args.cuda:
        base = microseconds(Paths(2, 3).step("F.cross_entropy"), args.repeats)
        print(f"{'F.cross_entropy, 2 x 3':24}{base:8.1f} us")
    record: dict[str, Any] = {"date": datetime.date.today().isoformat(), "torch": torch.__version__,
                              "device": torch.cuda.get_device_name() if args.cuda else "cpu", "shape": args.shape,
                              "dtype": args.dtype, "paths": {}}
    for name in args.paths or names:
        count = counted.launches(name)
        if args.cuda:
            taken, base, ratio = in_turn(timed.step(name), timed.step("F.cross_entropy"), args.repeats)
        else:
            with no_launches():
                taken = microseconds(timed.step(name), args.repeats)
            ratio = taken / base
        record["paths"][name] = {"us": taken, "cross_entropy_us": base, "ratio": ratio, "ours": count.ours,
                                 "torchs": count.torchs}
        beside = f" beside {base:6.1f}" if args.cuda else ""
        print(f"{name:24}{taken:8.1f} us{beside} {ratio:5.2f}   {len(count.ours)} kernels, {len(count.torchs)} of torch"
              f": {', '.join(count.ours + count.torchs)}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
