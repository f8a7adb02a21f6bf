"""The paper's optimisers, in forms that a CUDA graph can hold: the rate is a tensor on the device there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import RunError
from .settings import Train
from .task import ParameterGroup


def build_optimizer(train: Train, groups: Sequence[ParameterGroup], device: torch.device) -> torch.optim.Optimizer:
    """The optimiser that a recipe names, over the parameters that learn."""
    wanted: list[dict[str, Any]] = []
    for group in groups:
        params = [param for param in group.params if param.requires_grad]
        decay = {} if group.weight_decay is None else {"weight_decay": group.weight_decay}
        wanted += [{"params": params, "lr_scale": group.lr_scale, **decay}] if params else []
    if not wanted:
        raise RunError("nothing in the model learns: a stage freezes all of its parts. Freeze fewer.")
    cuda = device.type == "cuda"
    lr: Any = torch.tensor(train.lr, device=device) if cuda else train.lr
    if train.optimizer == "sgd":
        kind = CapturableSGD if cuda else torch.optim.SGD
        return kind(wanted, lr, momentum=train.momentum, nesterov=train.nesterov, weight_decay=train.weight_decay)
    if train.optimizer == "rmsprop_tf":
        return RMSpropTF(wanted, lr, alpha=train.alpha, eps=train.eps, momentum=train.momentum,
                         weight_decay=train.weight_decay)
    if train.optimizer == "rmsprop":
        return torch.optim.RMSprop(wanted, lr, alpha=train.alpha, eps=train.eps, momentum=train.momentum,
                                   weight_decay=train.weight_decay, capturable=cuda)
    adam = torch.optim.Adam if train.optimizer == "adam" else torch.optim.AdamW
    return adam(wanted, lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay, capturable=cuda)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Change the rate where it stands, so that a recorded graph sees it too."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["lr_scale"])
        else:
            group["lr"] = rate * group["lr_scale"]


def pack(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """What the optimiser has gathered: its tensors by number and name, and its numbers as JSON holds them."""
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
    """Put back what :func:`pack` has returned; rates and decays stay as the recipe has them.

    Tensors take the memory format of their parameter: torch updates many at once only where their strides agree.
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
    """torch's SGD, step for step, with a rate that stays on the device (torch's own asks the host for its value)."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if not params:
                continue
            slopes: list[Tensor] = [param.grad for param in params if param.grad is not None]
            if group["weight_decay"]:
                slopes = list(torch._foreach_add(slopes, params, alpha=group["weight_decay"]))
            if group["momentum"]:
                buffers = [self._buffer(param) for param in params]
                torch._foreach_mul_(buffers, group["momentum"])
                torch._foreach_add_(buffers, slopes)
                slopes = list(torch._foreach_add(slopes, buffers, alpha=group["momentum"])) \
                    if group["nesterov"] else buffers
            torch._foreach_sub_(params, torch._foreach_mul(slopes, group["lr"]))

    def _buffer(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(param)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


class RMSpropTF(torch.optim.Optimizer):
    """RMSProp as TensorFlow has it: eps inside the root, averages that start at 1, the rate inside the momentum."""

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
                slope = param.grad + group["weight_decay"] * param if group["weight_decay"] else param.grad
                state["square_avg"].lerp_(slope * slope, 1 - group["alpha"])
                move = slope * group["lr"] / (state["square_avg"] + group["eps"]).sqrt()
                param.sub_(state["momentum_buffer"].mul_(group["momentum"]).add_(move))
