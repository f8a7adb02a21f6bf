"""The model as an attack sees it: a function from inputs to logits, which is left unchanged."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import ArgumentError, DtypeError, ShapeError, TargetError
from ._objective import Objective

Model = Callable[[Tensor], Tensor]


@contextmanager
def evaluating(model: Model) -> Iterator[Model]:
    """The model in evaluation mode with gradients enabled; the mode of every submodule is restored afterwards.

    For a function that calls modules, these modules: in training mode each call would change batch norm's statistics.
    """
    if isinstance(model, DistributedDataParallel):
        model = model.module  # the wrapper would wait for gradients that are not computed
    if isinstance(model, type) or not callable(model):
        kind = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
        raise DtypeError(f"model: expected a function from inputs to logits, such as a module, got {kind}.")
    roots = modules_of(model)
    modes = {module: module.training for root in roots for module in root.modules()}
    with ExitStack() as stack:
        if any(modes.values()):
            stack.callback(_restore, modes)
            for root in roots:
                root.eval()
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield model


def _restore(modes: dict[nn.Module, bool]) -> None:
    for module, training in modes.items():
        module.training = training


def modules_of(model: object, seen: tuple[object, ...] = ()) -> list[nn.Module]:
    """The modules that a model calls, as far as it shows them: itself, what a function refers to by name, the object
    that a method belongs to, the arguments of a ``partial``; and what lists, mappings and other objects hold.
    ``seen`` has the functions that led here, so that circular references end.

    >>> net = nn.Linear(2, 2)
    >>> modules_of(lambda x: (net(x), x)[0]) == modules_of(net.forward) == [net]
    True
    """
    if isinstance(model, nn.Module):
        return [model]
    if isinstance(model, functools.partial):
        referenced: list[object] = [model.func, *model.args, *model.keywords.values()]
    elif inspect.ismethod(model):
        referenced = [model.__self__]
    elif inspect.isfunction(model):
        names = inspect.getclosurevars(inspect.unwrap(model))
        referenced = [*names.nonlocals.values(), *names.globals.values()]
    else:
        referenced = []
    modules = [module for value in (model, *referenced) for module in _modules_in(value)]
    modules += [module for value in referenced if isinstance(value, functools.partial) or inspect.isroutine(value)
                if not any(value is earlier for earlier in seen) for module in modules_of(value, (*seen, model, value))]
    return list(dict.fromkeys(modules))


def _modules_in(holder: object) -> list[nn.Module]:
    """A module, or the modules in a list, tuple or mapping, or among an object's attributes; libraries, classes and
    functions are not searched."""
    if isinstance(holder, nn.Module):
        return [holder]
    if isinstance(holder, type | ModuleType) or inspect.isroutine(holder):
        return []
    values = holder if isinstance(holder, list | tuple) else holder.values() if isinstance(holder, Mapping) else \
        getattr(holder, "__dict__", {}).values()
    return [value for value in values if isinstance(value, nn.Module)]


def plain(tensor: Tensor) -> Tensor:
    """The same values without a graph; tensors made in inference mode are copied, since autograd refuses them."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def checked(model: Model, highest: int = -1, of: Model | None = None) -> Model:
    """The same model, with a check that its outputs are logits that include the class ``highest``.

    Only shapes are checked, so that nothing synchronises with the device. ``of`` is the module that ``model`` calls.
    The model gets a copy: one that begins by normalising in place would change the caller's images.
    """
    def logits_of(x: Tensor) -> Tensor:
        try:
            logits = model(x.clone())
        except RuntimeError as error:
            reason = _misfit(model if of is None else of, x)
            if reason is None:
                raise
            raise ArgumentError(f"model(x) failed: {reason}") from error
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x) or logits.shape[1] < 2:
            kind = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ShapeError(f"model(x): expected logits of the shape ({len(x)}, classes) with two classes or more, "
                             f"got {kind}. If the model returns more than logits, pass a function that picks them.")
        if not logits.is_floating_point():
            raise DtypeError(f"model(x): expected floating-point logits, got {logits.dtype}.")
        if highest >= logits.shape[1]:
            raise TargetError(f"y has the label {highest}, but the model has the classes 0 to {logits.shape[1] - 1}.")
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    return logits_of


def _misfit(model: Model, x: Tensor) -> str | None:
    """Why a module may have failed on inputs of this kind, as far as its parameters show it."""
    if not isinstance(model, nn.Module):
        return None
    floating = [tensor for tensor in model.state_dict(keep_vars=True).values() if tensor.is_floating_point()]
    devices = [tensor.device for tensor in floating if tensor.device != x.device]
    if devices:
        return f"x is on {x.device} and the model on {devices[0]}. Expected one device: model.to(x.device)."
    dtypes = [tensor.dtype for tensor in floating if tensor.dtype != x.dtype]
    if dtypes:
        return (f"x is {x.dtype} and the model has parameters of {dtypes[0]}. Expected one type: model.to(x.dtype), or "
                "a function that converts its input.")
    if any(tensor.is_inference() for tensor in floating):
        return "its parameters were made under torch.inference_mode(). Make or load the model outside of it."
    return None


def input_gradient(model: Model, x: Tensor, label: Tensor, loss: Objective) -> Tensor:
    """The gradient of every example's own loss. Losses are summed, never averaged, so that an example's gradient does
    not depend on the batch around it; gradients of parameters are neither computed nor accumulated."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(x)
        if not logits.requires_grad:
            raise ArgumentError("model(x): the logits have no gradient with respect to x. Expected a model made of "
                                "differentiable operations, without torch.no_grad() or detach() inside.")
        (gradient,) = torch.autograd.grad(loss(logits, label).sum(), x)
    return gradient.nan_to_num(0.0)  # with a NaN the example would stay NaN in every later step
