"""What ``quick_interpreter`` keeps is what Triton's interpreter makes anew."""

from __future__ import annotations

import os

import numpy as np
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


def operand(shape: list[int], dtype: tl.dtype, numbers: np.ndarray) -> tl.core.tensor:
    kind = tl.block_type(dtype, shape) if shape else dtype
    data = np.resize(numbers, shape or [1]).astype(interpreter._get_np_dtype(dtype))
    return tl.core.tensor(interpreter.TensorHandle(data, dtype), kind)


NUMBERS = np.array([3, -2, 0, 7])
SEMANTIC = interpreter.TritonSemantic(interpreter.InterpreterBuilder())
CHECK = interpreter.TritonSemantic.binary_op_type_checking_impl
quick_operands = pytest.mark.skipif(not hasattr(CHECK, "__wrapped__"), reason="operands are the interpreter's own")


@quick_operands
@pytest.mark.parametrize("flags", [{}, {"div_or_mod": True}, {"arithmetic_check": False}], ids=str)
@pytest.mark.parametrize("element", [tl.float32, tl.float16, tl.int1, tl.int32, tl.int64], ids=str)
@pytest.mark.parametrize("other", [0.0, -0.0, 1, 1.0, True, -3, float("nan"), 2**40, "scalar", "row", "float"],
                         ids=repr)
def test_operands_are_those_of_the_interpreter(other: object, element: tl.dtype, flags: dict[str, bool]) -> None:
    tile = operand([4, 4], element, NUMBERS)
    others = {"scalar": operand([], element, NUMBERS[:1]), "row": operand([1, 4], element, NUMBERS),
              "float": operand([4, 4], tl.float32, NUMBERS)}
    other = others.get(other, other) if isinstance(other, str) else other
    for pair in ((tile, other), (other, tile)):
        try:
            expected = CHECK.__wrapped__(SEMANTIC, *pair, **flags)
        except (TypeError, ValueError, RuntimeWarning) as error:
            for _ in range(2):
                with pytest.raises(type(error)):
                    CHECK(SEMANTIC, *pair, **flags)
            continue
        for _ in range(2):  # made, and then kept
            for ours, theirs in zip(CHECK(SEMANTIC, *pair, **flags), expected, strict=True):
                assert ours.type == theirs.type
                assert ours.handle.data.tobytes() == theirs.handle.data.tobytes()


@quick_operands
@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_an_overflow_is_found(operation: str) -> None:
    large = operand([4], tl.int32, np.array([2**31 - 1, 5, 0, 1]))
    small = operand([4], tl.int32, np.array([-2 if operation == "sub" else 2, 1, 1, 1]))
    with pytest.raises(AssertionError, match=f"int32 overflow in {operation}"):
        getattr(SEMANTIC, operation)(large, small, True)
    wide = [operand([4], tl.int64, np.array([2**31 - 1, 5, 0, 1])), operand([4], tl.int64, np.array([2, 1, 1, 1]))]
    getattr(SEMANTIC, operation)(*wide, True)
