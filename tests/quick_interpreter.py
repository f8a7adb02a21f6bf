"""Triton's interpreter without the work that it repeats at every call and at every operation inside a kernel.

A launch replaces the functions of ``triton.language`` by interpreted ones and puts the originals back at its end. The
interpreter also replaces them before each call of a function within the kernel, where they are replaced already: it
looks through all names of the language to find nothing to do.

Every operation makes a type and a tensor, and each of them checks and wraps its shape anew, of which a kernel has few;
it also makes a table of all types to look up one, and broadcasts shapes that are equal.

Every operation of two numbers finds their common type, converts both to it although they have it, and makes a tensor of
a constant. Every one of 32-bit integers is made again in 64 bits, by six more operations, to see whether it overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np


def once_per_launch(interpreter: Any) -> None:
    """Replace the language once per launch. Of no effect for a Triton whose interpreter has no such scope."""
    if not hasattr(interpreter, "_LangPatchScope"):
        return
    languages = (interpreter.tl, interpreter.tl.core)
    replace: Callable[[Any], Any] = interpreter._patch_lang
    seen_by: dict[Any, frozenset[int]] = {}
    replaced: set[int] = set()  # what the launch under way has replaced: which functions see one of the two modules

    def patch_lang(fn: Any) -> Any:
        if fn not in seen_by:
            seen_by[fn] = frozenset(id(value) for value in fn.__globals__.values()
                                    if any(value is language for language in languages))
        if seen_by[fn] and seen_by[fn] <= replaced:
            return interpreter._LangPatchScope()
        launch, scope = not replaced, replace(fn)
        replaced.update(seen_by[fn])
        if launch:
            restore = scope.restore

            def restored() -> None:
                replaced.clear()
                restore()

            scope.restore = restored
        return scope

    interpreter._patch_lang = patch_lang


def types_once_per_shape(interpreter: Any) -> None:
    """Keep what depends on a shape or on an element's type alone. Of no effect where Triton's parts are others."""
    core, semantic = interpreter.tl.core, getattr(interpreter, "TritonSemantic", None)
    try:
        known = core.block_type(core.float32, [2]).shape.values == [2] and hasattr(semantic, "broadcast_impl_value")
        np_dtype: Callable[[Any], Any] = interpreter._get_np_dtype
    except (AttributeError, TypeError):
        return
    if not known:
        return
    type_parts: dict[tuple[int, ...], tuple[Any, int, str]] = {}
    tensor_parts: dict[tuple[int, ...], tuple[Any, Any]] = {}
    np_dtypes: dict[str, Any] = {}
    make_type, make_tensor, broadcast = core.block_type.__init__, core.tensor.__init__, semantic.broadcast_impl_value

    @wraps(make_type)
    def quick_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([size.value if isinstance(size, core.constexpr) else size for size in shape])
        if sizes in type_parts:
            self.element_ty = element_ty
            self.shape, self.numel, words = type_parts[sizes]
            self.name = f"<{words}, {element_ty}>"
        else:
            make_type(self, element_ty, shape)
            type_parts[sizes] = self.shape, self.numel, str(self.shape)

    @wraps(make_tensor)
    def quick_tensor(self: Any, handle: Any, type: Any) -> None:
        sizes = tuple(type.shape.values) if type.is_block() else ()
        if sizes in tensor_parts:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.numel, self.shape = tensor_parts[sizes]
        else:
            make_tensor(self, handle, type)
            tensor_parts[sizes] = self.numel, self.shape

    @wraps(np_dtype)
    def quick_np_dtype(tt_dtype: Any) -> Any:
        element = tt_dtype.element_ty if isinstance(tt_dtype, core.block_type) else tt_dtype
        if element.name not in np_dtypes:
            np_dtypes[element.name] = np_dtype(element)
        return np_dtypes[element.name]

    @wraps(broadcast)
    def quick_broadcast(self: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        ours, theirs = lhs.type, rhs.type
        if ours.is_block() and theirs.is_block() and ours.shape.values == theirs.shape.values:
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    core.block_type.__init__, core.tensor.__init__ = quick_type, quick_tensor
    interpreter._get_np_dtype, semantic.broadcast_impl_value = quick_np_dtype, quick_broadcast


def operands_as_they_are(interpreter: Any) -> None:
    """Take two operands of one type as they are but for their shapes, keep the tensors of constants, and look for
    overflows in one operation of numpy. Of no effect where Triton's parts are others."""
    core, semantic = interpreter.tl.core, getattr(interpreter, "TritonSemantic", None)
    names = ("binary_op_type_checking_impl", "binary_op_sanitize_overflow_impl")
    if not all(hasattr(semantic, name) for name in names):
        return
    check, sanitize = (getattr(semantic, name) for name in names)
    alike = {id(dtype) for dtype in (core.float32, core.int1, core.int32, core.int64)}
    constants: dict[tuple[Any, ...], Any] = {}
    operations = {"add": np.add, "sub": np.subtract, "mul": np.multiply}

    @wraps(check)
    def quick_check(self: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False,
                    arithmetic_check: bool = True, div_or_mod: bool = False) -> tuple[Any, Any]:
        flags = allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod
        if isinstance(lhs, core.tensor):
            if isinstance(rhs, core.tensor):
                if lhs.dtype is rhs.dtype and id(lhs.dtype) in alike and not (div_or_mod and lhs.dtype is core.int1):
                    return self.broadcast_impl_value(lhs, rhs)
            elif isinstance(rhs, int | float) and id(lhs.dtype) in alike:
                key = repr(rhs), lhs.dtype.name, _sizes(lhs), flags, "right"
                if key not in constants:
                    left, right = check(self, lhs, rhs, *flags)
                    if left is not lhs:
                        return left, right
                    constants[key] = right
                return lhs, constants[key]
        elif isinstance(rhs, core.tensor) and isinstance(lhs, int | float) and id(rhs.dtype) in alike:
            key = repr(lhs), rhs.dtype.name, _sizes(rhs), flags, "left"
            if key not in constants:
                left, right = check(self, lhs, rhs, *flags)
                if right is not rhs:
                    return left, right
                constants[key] = left
            return constants[key], rhs
        return check(self, lhs, rhs, *flags)

    @wraps(sanitize)
    def quick_sanitize(self: Any, lhs: Any, rhs: Any, binary_op: Callable[..., Any]) -> None:
        if lhs.dtype is not core.int32 or binary_op.__name__ not in operations:
            sanitize(self, lhs, rhs, binary_op)
        elif self.builder.options.sanitize_overflow:
            result = operations[binary_op.__name__](lhs.handle.data, rhs.handle.data, dtype=np.int64)
            assert (result.astype(np.int32) == result).all(), f"int32 overflow in {binary_op.__name__}"

    semantic.binary_op_type_checking_impl, semantic.binary_op_sanitize_overflow_impl = quick_check, quick_sanitize


def _sizes(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.type.shape.values) if tensor.type.is_block() else ()
