"""What ``quick_interpreter`` keeps is what Triton's interpreter makes anew."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("triton")

import triton.language as tl
from triton.runtime import interpreter

SHAPES = [[1], [8], [2, 4], [tl.constexpr(2), 4], [1, 1, 16]]
ELEMENTS = [tl.float32, tl.bfloat16, tl.int1, tl.int64, tl.pointer_type(tl.float16)]

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1" or not hasattr(
    interpreter._get_np_dtype, "__wrapped__"), reason="Triton's interpreter is not in use, or runs as it is")


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_types_and_tensors_are_those_of_the_interpreter(element: tl.dtype, shape: list[int]) -> None:
    for _ in range(2):  # made, and then kept
        ours, theirs = tl.block_type(element, shape), object.__new__(tl.block_type)
        tl.block_type.__init__.__wrapped__(theirs, element, shape)
        assert (ours, ours.shape.values, ours.numel, ours.name, ours.scalar) == (
            theirs, theirs.shape.values, theirs.numel, theirs.name, theirs.scalar)
        assert interpreter._get_np_dtype(ours) == interpreter._get_np_dtype.__wrapped__(theirs)
        for kind in (ours, element):
            tensor, expected = tl.core.tensor("handle", kind), object.__new__(tl.core.tensor)
            tl.core.tensor.__init__.__wrapped__(expected, "handle", kind)
            assert [size.value for size in tensor.shape] == [size.value for size in expected.shape]
            assert (tensor.handle, tensor.type, tensor.dtype, tensor.numel.value) == (
                "handle", kind, expected.dtype, expected.numel.value)


def test_a_shape_that_the_interpreter_refuses_stays_refused() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="power of 2"):
            tl.block_type(tl.float32, [3])
        with pytest.raises(TypeError, match="0d"):
            tl.block_type(tl.float32, [])
