"""Where tensors lie, and small arithmetic of sizes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

_CURRENT_DEVICE = nullcontext()


class Layout(NamedTuple):
    """Where the rows of a (N, C) or (N, C, d) tensor lie."""

    rows: int
    classes: int
    inner: int
    outer_stride: int
    inner_stride: int
    class_stride: int


def layout(tensor: Tensor) -> Layout:
    if tensor.ndim == 2:
        (rows, classes), (outer, class_stride) = tensor.shape, tensor.stride()
        return Layout(rows, classes, 1, outer, 0, class_stride)
    (batch, classes, inner), (outer, class_stride, inner_stride) = tensor.shape, tensor.stride()
    return Layout(batch * inner, classes, inner, outer, inner_stride, class_stride)


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the tensor's."""
    if tensor.is_cuda and tensor.get_device() != torch._C._cuda_getDevice():
        return torch.cuda.device(tensor.device)
    return _CURRENT_DEVICE


def pieces(n: int, size: int) -> int:
    """How many pieces of a size cover n; Triton's own ``cdiv`` takes microseconds."""
    return -(-n // size)


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
