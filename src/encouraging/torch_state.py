"""What torch is doing around a call: compiling, transforming, differentiating forwards.

The losses choose their path by these answers. Torch has no public names for most of them, so this is the one file that
asks its private ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad

PLAIN = (Tensor, torch.nn.Parameter)  # types of tensors that are nothing but numbers in memory, unlike their subclasses

# Looked up once: these run in every call, where the attribute lookups would take longer than the calls.
is_compiling = torch.compiler.is_compiling
transform_level = torch._C._functorch.maybe_current_level  # None outside of torch.func's transforms
tracing_state = torch._C._get_tracing_state  # None unless torch.jit.trace records
_dispatch_modes = torch._C._len_torch_dispatch_stack
_is_legacy_batch = torch._C._functorch.is_legacy_batchedtensor
_is_batch = torch._C._functorch.is_batchedtensor


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` (``vmap``, ``grad``, ``jvp``, ...) surrounds the call."""
    return transform_level() is not None


def in_forward_mode() -> bool:
    """Whether a level of forward-mode differentiation is open, so that tensors may carry tangents."""
    return forward_ad._current_level >= 0


def is_jit_tracing() -> bool:
    """Whether ``torch.jit.trace`` records the call, as the legacy ONNX export does."""
    return tracing_state() is not None


def autocasts(device: str) -> bool:
    """Whether autocast is on for this type of device; the meta device has none."""
    return device != "meta" and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> AbstractContextManager[object]:
    """A context without autocast on this type of device; the meta device needs none."""
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def is_eager() -> bool:
    """Whether tensors hold ordinary numbers: nothing compiles or traces, no transform of ``torch.func`` is active."""
    return not torch.compiler.is_compiling() and transform_level() is None and tracing_state() is None


def in_backward() -> bool:
    """Whether a backward pass makes the call, as activation checkpointing does to run a forward pass again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether one of the tensors carries a tangent of forward-mode differentiation."""
    return in_forward_mode() and any(
        forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]
        for tensor in tensors if tensor is not None)


def is_batched(tensor: Tensor) -> bool:
    """Whether the tensor stands for a batch of tensors (``is_grads_batched=True``, ``torch.func.vmap``)."""
    return bool(_is_legacy_batch(tensor) or _is_batch(tensor))


def values_are_readable(tensor: Tensor) -> bool:
    """Whether the host can read the tensor's numbers without waiting for a device or breaking a trace or transform."""
    if not tensor.is_cpu or not is_eager():
        return False
    return _dispatch_modes() == 0  # make_fx, linearize and fake tensors use this stack


def values_exist(tensor: Tensor) -> bool:
    """As :func:`values_are_readable`, but on any device that has numbers: reading them may wait for it."""
    return tensor.device.type != "meta" and is_eager() and _dispatch_modes() == 0


def backward_must_be_differentiable(upstream: Tensor) -> bool:
    """Whether a backward pass that received ``upstream`` is itself differentiated, traced or batched.

    ``is_grads_batched=True`` passes a batched tensor, which fast in-place code cannot write into.
    """
    return (torch.is_grad_enabled() or not is_eager() or in_forward_mode()
            or _is_legacy_batch(upstream))


def needs_plain_operations() -> bool:
    """Whether an autograd Function would lose something here, so that plain operations must be used instead.

    ``torch.compile`` ignores a Function's ``vmap`` inside a transform. A Function's forward-mode rule is not
    differentiated by a second forward mode around it: ``jacfwd(jacfwd(f))`` would silently be 0. ``torch.jit.trace``
    would record a call into Python, which neither a saved trace nor an ONNX file can hold.
    """
    if not torch._C._are_functorch_transforms_active():
        return is_jit_tracing()
    if torch.compiler.is_compiling():
        return True
    levels = torch._C._functorch.get_interpreter_stack() or []
    return sum(level.key() == torch._C._functorch.TransformType.Jvp for level in levels) > 1


def needs_no_rules() -> bool:
    """Whether an autograd Function that knows neither transforms nor forward mode has all derivatives that can be asked
    for: in eager mode, and where only ``torch.compile`` traces."""
    return (is_eager() or torch.compiler.is_compiling()) and not in_forward_mode() and not needs_plain_operations()


def read_before_function(numbers: Iterable[object]) -> None:
    """Read numbers in the graph that a compiler traces, before an autograd Function of it reads them.

    ``torch.compile`` makes an input of a float that has changed since the last call, as a schedule changes it. Where
    such a float is first read inside an autograd Function, the next Function that reads it fails (torch 2.13).
    """
    for number in numbers:
        _ = number + 0.0 if isinstance(number, float) else None
