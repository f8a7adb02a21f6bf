"""Full float32 precision: by default a GPU computes convolutions with the ten-bit mantissa of TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def _switches() -> list[Any]:
    cudnn: Any = torch.backends.cudnn  # its attributes are created at run time
    return [cudnn.conv, cudnn.rnn, torch.backends.cuda.matmul]


@contextmanager
def float32_is(mode: str) -> Iterator[None]:
    """Compute float32 as ``"ieee"`` or ``"tf32"`` inside the context, on GPUs that have both."""
    before = [switch.fp32_precision for switch in _switches()]
    try:
        for switch in _switches():
            switch.fp32_precision = mode
        yield
    finally:
        for switch, value in zip(_switches(), before, strict=True):
            switch.fp32_precision = value
