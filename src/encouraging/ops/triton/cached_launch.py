"""Launch a kernel that was launched before.

Triton's own launch binds some forty arguments anew each time, looks at each for what the compiler may assume of it, and
makes a string of the result to find the compiled kernel: 0.1 ms and more on the host, as long as the whole loss takes a
GPU for a hundred thousand rows. Here the kernel that Triton returned for the same numbers, types and alignments is
launched directly, with addresses in place of tensors, each of which Triton would look up in the driver. Nobody looks at
an address again: whoever launches has tensors of one device. Triton's launch hooks are not called; profilers that ask
the driver see every launch. How all this is done is private to Triton and changes between versions: where the version
is not one that was tested on a GPU, every launch takes Triton's own way; so it does where Triton interprets the kernels
(``TRITON_INTERPRET=1``), also those of tensors on a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import reduce
from operator import itemgetter, or_
from typing import Any

import torch
import triton
from torch import Tensor

TESTED_VERSIONS = ("3.6",)
_MOST_REMEMBERED = 4096  # sizes; a program that meets more of them starts over
_INTERPRETER = -1  # the number of the device of a CPU tensor: there Triton interprets, and compiles nothing



def _knows(version: str, interpreted: bool) -> bool:
    """Whether what Triton returns for a launch is a kernel that can be launched here."""
    return ".".join(version.split(".")[:2]) in TESTED_VERSIONS and not interpreted


_is_tested = _knows(triton.__version__, triton.knobs.runtime.interpret)
_compiled: dict[Any, _Ready] = {}
_first_launch = threading.RLock()


def current_stream(device: int) -> int:
    """The stream that a launch on this device takes; 0 for the interpreter."""
    return 0 if device == _INTERPRETER else torch._C._cuda_getCurrentRawStream(device)


def is_captured(device: int) -> bool:
    """Whether the stream that a launch on this device takes is being captured as a graph."""
    if device < 0:
        return False
    if _elsewhere(device):
        with torch.cuda.device(device):
            return torch.cuda.is_current_stream_capturing()
    return torch.cuda.is_current_stream_capturing()


class _Ready:
    """A compiled kernel and all it is launched with but the addresses."""

    __slots__ = ("_before", "_behind", "_compiled", "_launch", "_programs")

    def __init__(self, compiled: Any, programs: int, behind: tuple[Any, ...]) -> None:
        launcher = compiled.run
        bare = _bare_launch(launcher)
        self._compiled = compiled  # which owns what ``function`` stands for
        self._programs, self._behind = programs, behind
        self._before: tuple[Any, ...]
        if bare is None:
            self._launch = launcher
            self._before = compiled.function, compiled.packed_metadata, None, None, None
        else:  # what the launcher does for a kernel that needs no memory of its own, without asking each time
            self._launch = bare
            self._before = (compiled.function, launcher.launch_cooperative_grid, launcher.launch_pdl, None, None,
                            compiled.packed_metadata, None, None, None)

    def __call__(self, device: int, addresses: Sequence[int | None]) -> None:
        stream = torch._C._cuda_getCurrentRawStream(device)
        self._launch(self._programs, 1, 1, stream, *self._before, *addresses, *self._behind)


def _bare_launch(launcher: Any) -> Callable[..., None] | None:
    """The compiled function behind a launcher of Triton for CUDA, where it takes its arguments in the order that is
    known here and the kernel needs no memory of its own."""
    call = getattr(type(launcher).__call__, "__code__", None)
    # Known is __call__(self, gridX, gridY, gridZ, stream, function, *args): the others name what *args holds.
    if call is None or call.co_argcount != 6 or not hasattr(launcher, "launch_pdl"):
        return None
    if launcher.global_scratch_size or launcher.profile_scratch_size:
        return None
    bare: Callable[..., None] = launcher.launch
    return bare


def launch(kernel: Any, programs: int, tensors: tuple[Tensor | None, ...], numbers: tuple[int | float, ...],
           persistent: bool = False, **constants: Any) -> None:
    """``kernel[(programs,)](*tensors, *numbers, **constants)`` on the device of the first tensor; ``persistent`` as
    :class:`Prepared` has it."""
    device = tensors[0].get_device() if tensors[0] is not None else _INTERPRETER
    if _elsewhere(device):
        with torch.cuda.device(device):
            launch(kernel, programs, tensors, numbers, persistent, **constants)
        return
    if device == _INTERPRETER or not _is_tested:
        kernel[(programs,)](*tensors, *numbers, **constants)
        return
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    layouts = [None if tensor is None else (tensor.dtype, tensor.get_device(), tensor.data_ptr() & 15)
               for tensor in tensors]
    key = (kernel.__name__, device, programs, persistent, *layouts, numbers, *constants.values())
    ready = _compiled.get(key)
    if ready is not None:
        ready(device, addresses)
        return
    if len(_compiled) >= _MOST_REMEMBERED:
        _compiled.clear()
    _compiled[key] = _compile_and_launch(kernel, programs, tensors, numbers, constants, persistent)


def _compile_and_launch(kernel: Any, programs: int, tensors: tuple[Tensor | None, ...],
                        numbers: tuple[int | float, ...], constants: dict[str, Any], persistent: bool) -> _Ready:
    # Triton hands out a kernel that another thread is still loading, without what is to be launched.
    with _first_launch:
        if persistent:
            compiled = kernel.run(*tensors, *numbers, grid=(programs,), warmup=True, **constants)
            programs = _that_fit(compiled, programs)
        compiled = kernel[(programs,)](*tensors, *numbers, **constants)
    names = kernel.arg_names[len(tensors) + len(numbers):]
    return _Ready(compiled, programs, (*numbers, *(constants[name] for name in names)))


def _that_fit(compiled: Any, programs: int) -> int:
    """As many of so many programs as fit on the multiprocessors of the current device at once. The others would begin
    when the first ones end, and have the GPU to themselves without filling it."""
    _ = compiled.run  # which loads the kernel: only then is it known what the compiler took
    registers = getattr(compiled, "n_regs", None)
    if not registers:
        return programs
    device: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    in_all = getattr(device, "regs_per_multiprocessor", 0)  # torch does not know it of every kind of GPU
    if not in_all:
        return programs
    threads = device.warp_size * compiled.metadata.num_warps
    taken = threads * (-(-registers // 8) * 8)  # registers are given out by eights
    fit = int(max(1, min(in_all // taken, device.max_threads_per_multi_processor // threads)))
    return min(programs, fit * int(device.multi_processor_count))


def _elsewhere(device: int) -> bool:
    """Whether another device is the current one, on which Triton would launch."""
    return device >= 0 and device != torch._C._cuda_getDevice()


class Prepared:
    """A launch of which everything is known but the tensors' addresses: their types and layouts are always the same.

    Whoever launches often keeps it, so that neither the sizes nor the key above are worked out again. The programs of a
    ``persistent`` kernel walk over the rows, however many there are of them: no more are launched than fit on the
    device at once, which the compiled kernel's registers decide.
    """

    __slots__ = ("_aligned", "_constants", "_given", "_kernel", "_numbers", "_persistent", "_places", "_unaligned",
                 "programs")

    def __init__(self, kernel: Any, programs: int, numbers: tuple[int | float, ...], persistent: bool = False,
                 **constants: Any) -> None:
        self.programs, self._persistent = programs, persistent
        self._kernel, self._numbers, self._constants = kernel, numbers, constants
        self._aligned: _Ready | None = None  # for addresses that are all multiples of 16
        self._unaligned: dict[tuple[int, ...], _Ready] = {}  # by what the addresses are beyond that
        self._given: Callable[..., Any] | None = None  # the tensors among the arguments, which are always the same
        self._places: Callable[..., Any]  # the arguments again, from None and the addresses of those

    def __call__(self, device: int, *tensors: Tensor | None) -> None:
        """Launch on the device of this number, that of the tensors; -1 is the interpreter."""
        if _elsewhere(device):
            with torch.cuda.device(device):
                self(device, *tensors)
            return
        if device == _INTERPRETER or not _is_tested:
            self._kernel[(self.programs,)](*tensors, *self._numbers, **self._constants)
            return
        if self._given is None:
            self._see_which_are_given(tensors)
        addresses = list(map(_data_ptr, self._given(tensors)))  # type: ignore[misc]
        if reduce(or_, addresses) & 15:
            key = tuple([address & 15 for address in addresses])
            ready = self._unaligned.get(key)
            if ready is None:
                self._unaligned[key] = self._compile_and_launch(tensors)
                return
        else:
            ready = self._aligned
            if ready is None:
                self._aligned = self._compile_and_launch(tensors)
                return
        ready(device, self._places((None, *addresses)))

    def _see_which_are_given(self, tensors: tuple[Tensor | None, ...]) -> None:
        given = [i for i, tensor in enumerate(tensors) if tensor is not None]
        self._places = _picked([1 + given.index(i) if i in given else 0 for i in range(len(tensors))])
        self._given = _picked(given)

    def _compile_and_launch(self, tensors: tuple[Tensor | None, ...]) -> _Ready:
        return _compile_and_launch(self._kernel, self.programs, tensors, self._numbers, self._constants,
                                   self._persistent)


_data_ptr = Tensor.data_ptr


def _picked(indices: list[int]) -> Callable[..., Any]:
    """What takes the items at these indices from a tuple."""
    if len(indices) == 1:  # where itemgetter would give the item itself
        return lambda items: (items[indices[0]],)
    return itemgetter(*indices)


class Kept:
    """Prepared launches by what they depend on; a program that meets very many starts over."""

    def __init__(self) -> None:
        self._launches: dict[Any, Any] = {}
        self.get = self._launches.get

    def keep(self, key: Any, prepared: Any) -> Any:
        if len(self._launches) >= _MOST_REMEMBERED:
            self._launches.clear()
        self._launches[key] = prepared
        return prepared
