"""The paper's optimisers, in forms that a CUDA graph can record: the learning rate is a tensor on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import RunError
from .settings import Train
from .task import ParameterGroup


def build_optimizer(train: Train, groups: Sequence[ParameterGroup], device: torch.device,
                    capturable: bool | None = None) -> torch.optim.Optimizer:
    """The optimiser of a recipe for the parameters that require gradients; on a GPU a form for CUDA graphs."""
    if capturable is None:
        capturable = device.type == "cuda"
    param_groups: list[dict[str, Any]] = []
    for group in groups:
        params = [param for param in group.params if param.requires_grad]
        if not params:
            continue
        decay = {} if group.weight_decay is None else {"weight_decay": group.weight_decay}
        # Each group needs a tensor of its own: one for all would have the last group's rate.
        rate: Any = torch.tensor(train.lr, device=device) if capturable else train.lr
        param_groups.append({"params": params, "lr": rate, "lr_scale": group.lr_scale, **decay})
    if not param_groups:
        raise RunError("nothing in the model learns: a stage freezes all of its parts. Freeze fewer.")
    if train.optimizer == "sgd":
        sgd = CapturableSGD if capturable else torch.optim.SGD
        return sgd(param_groups, momentum=train.momentum, nesterov=train.nesterov, weight_decay=train.weight_decay)
    if train.optimizer == "rmsprop_tf":
        return RMSpropTF(param_groups, train.lr, alpha=train.alpha, eps=train.eps, momentum=train.momentum,
                         weight_decay=train.weight_decay)
    if train.optimizer == "rmsprop":
        return torch.optim.RMSprop(param_groups, alpha=train.alpha, eps=train.eps, momentum=train.momentum,
                                   weight_decay=train.weight_decay, capturable=capturable)
    adam = torch.optim.Adam if train.optimizer == "adam" else torch.optim.AdamW
    return adam(param_groups, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay, capturable=capturable)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Change the learning rate in place, so that a recorded graph sees it too."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["lr_scale"])
        else:
            group["lr"] = rate * group["lr_scale"]


def pack(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """The optimiser's state: its tensors by parameter index and name, and its plain numbers as JSON holds them."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, entry in optimizer.state_dict()["state"].items():
        for name, value in entry.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            else:
                numbers.setdefault(str(index), {})[name] = value
    return tensors, numbers


def unpack(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor],
           numbers: Mapping[str, Mapping[str, Any]]) -> None:
    """Restore the state that :func:`pack` returned; learning rates and decays stay those of the recipe.

    Tensors take the memory format of their parameter: torch's fused updates need equal strides.
    """
    entries: dict[int, dict[str, Any]] = {int(index): dict(entry) for index, entry in numbers.items()}
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        like = params[int(index)]
        entries.setdefault(int(index), {})[key] = tensor if tensor.shape != like.shape else torch.empty_like(
            like, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})


class CapturableSGD(torch.optim.SGD):
    """torch's SGD with a learning rate that stays on the device (torch's own reads its value on the host).

    One fused kernel reads parameter, gradient and momentum once. A gradient whose memory format differs from its
    parameter's needs separate operations, which read and write six times.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if not params:
                continue
            grads: list[Tensor] = [param.grad for param in params if param.grad is not None]
            buffers = [self._buffer(param) for param in params] if group["momentum"] else []
            if _same_memory_format(params, grads, *([buffers] if buffers else [])):
                torch._fused_sgd_(params, grads, buffers, lr=group["lr"], weight_decay=group["weight_decay"],
                                  momentum=group["momentum"], dampening=0.0, nesterov=group["nesterov"],
                                  maximize=False, is_first_step=False)  # buffers of 0 make a first step correct too
            else:
                self._unfused_step(group, params, grads, buffers)

    @staticmethod
    def _unfused_step(group: dict[str, Any], params: list[Tensor], grads: list[Tensor],
                      buffers: list[Tensor]) -> None:
        if group["weight_decay"]:
            grads = list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))
        if buffers:
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, grads)
            grads = list(torch._foreach_add(grads, buffers, alpha=group["momentum"])) \
                if group["nesterov"] else buffers
        torch._foreach_sub_(params, torch._foreach_mul(grads, group["lr"]))

    def _buffer(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(param)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def _same_memory_format(*lists: Sequence[Tensor]) -> bool:
    """Whether all tensors have one dtype and device, and those at the same index of every list the same strides."""
    tensors = [tensor for members in lists for tensor in members]
    return (len({(tensor.dtype, tensor.device) for tensor in tensors}) == 1
            and all(tensor.layout == torch.strided for tensor in tensors)
            and all(len({tensor.stride() for tensor in same}) == 1 for same in zip(*lists, strict=True)))


class RMSpropTF(torch.optim.Optimizer):
    """TensorFlow's RMSProp: eps inside the square root, averages that start at 1, the rate inside the momentum."""

    def __init__(self, params: Any, lr: float | Tensor, alpha: float = 0.9, eps: float = 1e-8, momentum: float = 0.0,
                 weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "momentum": momentum,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["square_avg"] = torch.ones_like(param)
                    state["momentum_buffer"] = torch.zeros_like(param)
                grad = param.grad + group["weight_decay"] * param if group["weight_decay"] else param.grad
                state["square_avg"].lerp_(grad * grad, 1 - group["alpha"])
                change = grad * group["lr"] / (state["square_avg"] + group["eps"]).sqrt()
                param.sub_(state["momentum_buffer"].mul_(group["momentum"]).add_(change))
