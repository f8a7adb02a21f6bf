"""Launch a kernel that was launched before.

Triton's own launch binds some forty arguments anew each time, looks at each for what the compiler may assume of it, and
makes a string of the result to find the compiled kernel: 0.1 ms and more on the host, as long as the whole loss takes a
GPU for a hundred thousand rows. Here the kernel that Triton returned for the same numbers, types and alignments is
launched directly. How that is done is private to Triton and changes between versions: where the version is not one that
was tested on a GPU, every launch takes Triton's own way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

TESTED_VERSIONS = ("3.6",)
_MOST_REMEMBERED = 4096  # sizes; a program that meets more of them starts over
_INTERPRETER = -1  # the number of the device of a CPU tensor: there Triton interprets, and compiles nothing

_is_tested = ".".join(triton.__version__.split(".")[:2]) in TESTED_VERSIONS
_compiled: dict[Any, tuple[Any, tuple[Any, ...]]] = {}


def launch(kernel: Any, programs: int, tensors: tuple[Tensor | None, ...], numbers: tuple[int | float, ...],
           **constants: Any) -> None:
    """``kernel[(programs,)](*tensors, *numbers, **constants)`` on the current device, which is that of the tensors."""
    device = tensors[0].get_device() if tensors[0] is not None else -1
    if device == _INTERPRETER or not _is_tested:
        kernel[(programs,)](*tensors, *numbers, **constants)
        return
    layouts = [None if tensor is None else (tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors]
    key = (kernel.__name__, device, *layouts, numbers, *constants.values())
    remembered = _compiled.get(key)
    if remembered is None:
        compiled = kernel[(programs,)](*tensors, *numbers, **constants)
        if len(_compiled) >= _MOST_REMEMBERED:
            _compiled.clear()
        names = kernel.arg_names[len(tensors) + len(numbers):]
        _compiled[key] = compiled, (*numbers, *(constants[name] for name in names))
        return
    compiled, fixed = remembered
    stream = torch._C._cuda_getCurrentRawStream(device)
    compiled.run(programs, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, *tensors,
                 *fixed)


class Prepared:
    """A launch of which everything is known but the tensors' addresses: their types and layouts are always the same.

    Whoever launches often keeps it, so that neither the sizes nor the key above are worked out again.
    """

    __slots__ = ("_compiled", "_constants", "_fixed", "_kernel", "_numbers", "programs")

    def __init__(self, kernel: Any, programs: int, numbers: tuple[int | float, ...], **constants: Any) -> None:
        self.programs = programs
        self._kernel, self._numbers, self._constants = kernel, numbers, constants
        self._fixed: tuple[Any, ...] = ()
        self._compiled: dict[tuple[int | None, ...], tuple[Any, Any, Any]] = {}  # by the addresses' alignments

    def __call__(self, device: int, *tensors: Tensor | None) -> None:
        """Launch on the current device, which is number ``device`` and that of the tensors; -1 is the interpreter."""
        if device == _INTERPRETER or not _is_tested:
            self._kernel[(self.programs,)](*tensors, *self._numbers, **self._constants)
            return
        key = tuple([None if tensor is None else tensor.data_ptr() & 15 for tensor in tensors])
        ready = self._compiled.get(key)
        if ready is None:
            made = self._kernel[(self.programs,)](*tensors, *self._numbers, **self._constants)
            names = self._kernel.arg_names[len(tensors) + len(self._numbers):]
            self._fixed = (*self._numbers, *(self._constants[name] for name in names))
            self._compiled[key] = made.run, made.function, made.packed_metadata
            return
        run, function, metadata = ready
        stream = torch._C._cuda_getCurrentRawStream(device)
        run(self.programs, 1, 1, stream, function, metadata, None, None, None, *tensors, *self._fixed)


class Kept:
    """Prepared launches by what they depend on; a program that meets very many starts over."""

    def __init__(self) -> None:
        self._launches: dict[Any, Prepared] = {}
        self.get = self._launches.get

    def keep(self, key: Any, prepared: Prepared) -> Prepared:
        if len(self._launches) >= _MOST_REMEMBERED:
            self._launches.clear()
        self._launches[key] = prepared
        return prepared
