"""Where tensors lie, and small arithmetic of sizes."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


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


def pieces(n: int, size: int) -> int:
    """How many pieces of a size cover n; Triton's own ``cdiv`` takes microseconds."""
    return -(-n // size)


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def ends_of(*tensors: Tensor | None) -> tuple[int, int]:
    """Elements of an aligned vector for rows that have ends, see ``ends.py``, and the offset of the tensors themselves.

    0 where the rows are aligned as they lie, and where they have no common inner part: classes apart, or tensors that
    are aligned in different ways.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    sizes = {tensor.dtype.itemsize for tensor in given}
    vector = 16 // min(sizes)
    classes, outer = given[0].shape[1], given[0].stride(0)
    if any(tensor.ndim != 2 or tensor.stride() != (outer, 1) for tensor in given):
        return 0, 0
    phases = [tensor.data_ptr() // tensor.dtype.itemsize for tensor in given]
    if not classes % vector and not outer % vector and not any(phase % vector for phase in phases):
        return 0, 0
    phase = next(phase for phase, tensor in zip(phases, given, strict=True)
                 if tensor.dtype.itemsize == min(sizes)) % vector
    together = all((at - phase) % (16 // tensor.dtype.itemsize) == 0 for at, tensor in zip(phases, given, strict=True))
    return (vector, phase) if together else (0, 0)
