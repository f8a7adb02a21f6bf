"""Launch a kernel that was launched before.

Triton's own launch binds some forty arguments anew each time, looks at each for what the compiler may assume of it, and
makes a string of the result to find the compiled kernel: 0.1 ms and more on the host, as long as the whole loss takes a
GPU for a hundred thousand rows. Here the kernel that Triton returned for the same numbers, types and alignments is
launched directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_MOST = 4096  # sizes to remember; a program that meets more of them starts over

_known: dict[Any, tuple[Any, tuple[Any, ...]]] = {}


def launch(kernel: Any, programs: int, tensors: tuple[Tensor | None, ...], numbers: tuple[int | float, ...],
           **constants: Any) -> None:
    """``kernel[(programs,)](*tensors, *numbers, **constants)`` on the current device, which is that of the tensors."""
    device = tensors[0].get_device() if tensors[0] is not None else -1
    looks = [None if tensor is None else (tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors]
    key = (kernel.__name__, device, *looks, numbers, *constants.values())
    found = _known.get(key)
    if found is None:
        compiled = kernel[(programs,)](*tensors, *numbers, **constants)
        if device >= 0:  # the interpreter compiles nothing
            if len(_known) >= _MOST:
                _known.clear()
            names = kernel.arg_names[len(tensors) + len(numbers):]
            _known[key] = compiled, (*numbers, *(constants[name] for name in names))
        return
    compiled, rest = found
    stream = torch._C._cuda_getCurrentRawStream(device)
    compiled.run(programs, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, *tensors, *rest)
