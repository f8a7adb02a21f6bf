"""More rows than numbers of 32 bits can count several times over: files with holes stand for most of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curves
from encouraging.ops.triton.curves import constants
from encouraging.ops.triton.later_launch import later_for
from encouraging.ops.triton.launch import NO_STATS, Asked, losses_for
from encouraging.ops.triton.problem import Problem
from kernel_cases import MARKS, ours

pytestmark = MARKS
MANY = 360_000_000  # six times as many pass 2**31: two classes of them in float16 take 1.4 GB


@pytest.fixture
def untouched(tmp_path: Path) -> Callable[..., Tensor]:
    """Zeros in a file with holes, which takes room where it is written to."""
    names = (tmp_path / str(i) for i in itertools.count())

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        path = next(names)
        flat = torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=dtype)
        path.unlink()  # the memory stays
        return flat.view(shape)

    return zeros


def test_the_states_of_very_many_smoothed_rows_lie_where_the_backward_pass_reads_them(
        untouched: Callable[..., Tensor]) -> None:
    """Forward and backward pass of the first rows alone."""
    row, curve = torch.tensor([[1.0, 3.0]]), curves.conservative(0.75)
    problem = Problem(row.expand(MANY, 2), untouched(MANY, dtype=torch.uint8), None, constants(curve), -100, 0.1)
    state, losses, grad = untouched(7, MANY), untouched(MANY), untouched(MANY, 2)
    forward = losses_for(problem, Asked(False, 0, False, False, True, False, False), None, None, torch.float32)
    forward.programs = 1
    forward(-1, *problem[:3], None, None, losses, None, None, None, state, *NO_STATS)
    upstream = torch.ones(1).expand(MANY)
    backward = later_for(problem, upstream, grad)
    backward.programs = 1
    backward(-1, *problem[:3], state, upstream, None, grad)
    loss, expected = ours(row, torch.zeros(1, dtype=torch.int64), curve, torch.ones(1), label_smoothing=0.1,
                          reduction="none")
    assert losses[:100].tolist() == loss.expand(100).tolist()
    assert torch.equal(grad[:100], expected.expand(100, 2))
