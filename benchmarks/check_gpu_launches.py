"""How launches are made on a GPU: by address, at the ends of unaligned rows, on another GPU. One line per check.

    python benchmarks/check_gpu_launches.py [--list] [--part I/N] [NAME ...]

A launch that repeats is given addresses alone, which the interpreter cannot show. Exits with status 1 when a check
fails.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from check_gpu_streams import OWN, differing, step
from gpu_checks import EL, Checks, draw, expect, row_error, run

from encouraging import curve_loss, mirror_mse_loss, sigmoid_curve_loss

if find_spec("triton"):  # --help and --list do without
    import triton

    from encouraging.ops.triton import cached_launch, loss_and_gradient_

check = Checks()


@check(seconds=5)
def numbers_on_the_cpu() -> str:
    """A tensor of shape () from the CPU, after one from the GPU: an address that the GPU must never see."""
    z, y = draw(64, 1000)
    soft = torch.softmax(torch.randn_like(z), 1)
    calls: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, over: curve_loss(x, y, EL, divisor=over), lambda x, over: curve_loss(x, soft, EL, divisor=over),
        lambda x, over: curve_loss(x, y, OWN, divisor=over), lambda x, over: mirror_mse_loss(x, y, divisor=over),
        lambda x, over: sigmoid_curve_loss(x, soft, EL, divisor=over)]
    over = torch.tensor(5.0)
    for call in calls:
        first = step(lambda x: call(x, over.cuda()), z)  # noqa: B023
        for _ in range(2):
            expect(differing(first, step(lambda x: call(x, over), z)) == 0, "a divisor")  # noqa: B023
    for _ in range(3):
        leaf = z.clone().requires_grad_()
        curve_loss(leaf, y, EL).backward(over)
        expect(row_error(leaf.grad, 5 * step(lambda x: curve_loss(x, y, EL), z)[1].double()).max() <= 1e-6, "upstream")
    return f"{len(calls)} losses, and an upstream gradient"


@check(seconds=6)
def rows_share_vectors_at_their_ends() -> str:
    """Neighbouring rows, each of another program, meet inside 16 bytes; around the first and the last lies poison."""
    tried = 0
    for classes in (1001, 2047, 4095, 50257):
        rows = 2000 if classes < 50000 else 200
        z, y = draw(rows, classes)
        value, gradient = step(lambda x: curve_loss(x, y, EL, reduction="sum"), z)  # noqa: B023
        for offset in range(4):
            storage = torch.full((z.numel() + 8,), math.nan, device="cuda")
            place = storage[offset:offset + z.numel()].view(z.shape)
            for _ in range(20):
                place.copy_(z)
                found = loss_and_gradient_(place, y, EL)
                expect((found.sum() - value).abs() <= 1e-4 * rows, f"{classes} at {offset}: loss")
                expect(row_error(place, gradient.double()).max() <= 5e-5, f"{classes} at {offset}: gradient")
            expect(int(storage.isnan().sum()) == 8, f"{classes} at {offset}: written outside")
            tried += 1
    return f"{tried} places, 20 times each"


@check
def another_gpu() -> str:
    if torch.cuda.device_count() < 2:
        return "there is one GPU: NOT TRIED"
    z, y = draw(300, 1001)
    first = step(lambda x: curve_loss(x, y, EL), z)
    there = z.to("cuda:1"), y.to("cuda:1")
    with torch.cuda.device(0):
        for _ in range(4):
            found = step(lambda x: curve_loss(x, there[1], EL), there[0])
            expect(torch.cuda.current_device() == 0, "the current device was changed")
            expect(differing(first, tuple(each.to("cuda:0") for each in found)) == 0, "another result")
    return "cuda:1 while cuda:0 is the current one"


@check
def how_launches_are_made() -> str:
    z, y = draw(64, 1000)
    for _ in range(3):
        step(lambda x: mirror_mse_loss(x, y, bonus=False), z)
    ways = {type(ready._launch).__name__ for ready in cached_launch._compiled.values()}
    if not cached_launch._is_tested:
        expect(not ways, f"Triton {triton.__version__} is not tested, and kernels are launched as {ways}")
        return f"Triton {triton.__version__}: by Triton alone"
    expect(ways == {"builtin_function_or_method"}, f"Triton {triton.__version__}: the launcher is called as {ways}")
    return f"Triton {triton.__version__}: by address, past the launcher"


if __name__ == "__main__":
    run(check, __doc__)
