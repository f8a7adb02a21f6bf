"""The paper's optimisers, in forms that a CUDA graph can hold: the rate is a tensor on the device there."""

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
    """The optimiser that a recipe names, over the parameters that learn; on a GPU in the form for a CUDA graph."""
    recorded = device.type == "cuda" if capturable is None else capturable
    wanted: list[dict[str, Any]] = []
    for group in groups:
        params = [param for param in group.params if param.requires_grad]
        decay = {} if group.weight_decay is None else {"weight_decay": group.weight_decay}
        # Every group has a tensor of its own: one for all would have the last group's rate.
        rate: Any = torch.tensor(train.lr, device=device) if recorded else train.lr
        wanted += [{"params": params, "lr": rate, "lr_scale": group.lr_scale, **decay}] if params else []
    if not wanted:
        raise RunError("nothing in the model learns: a stage freezes all of its parts. Freeze fewer.")
    if train.optimizer == "sgd":
        kind = CapturableSGD if recorded else torch.optim.SGD
        return kind(wanted, momentum=train.momentum, nesterov=train.nesterov, weight_decay=train.weight_decay)
    if train.optimizer == "rmsprop_tf":
        return RMSpropTF(wanted, train.lr, alpha=train.alpha, eps=train.eps, momentum=train.momentum,
                         weight_decay=train.weight_decay)
    if train.optimizer == "rmsprop":
        return torch.optim.RMSprop(wanted, alpha=train.alpha, eps=train.eps, momentum=train.momentum,
                                   weight_decay=train.weight_decay, capturable=recorded)
    adam = torch.optim.Adam if train.optimizer == "adam" else torch.optim.AdamW
    return adam(wanted, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay, capturable=recorded)


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
    """torch's SGD with a rate that stays on the device (torch's own asks the host for its value).

    One kernel reads parameter, gradient and momentum once. The operations one after the other, which a gradient in
    another memory format than its parameter's needs, take six.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            slopes: list[Tensor] = [param.grad for param in params if param.grad is not None]
            buffers = [self._buffer(param) for param in params] if group["momentum"] else []
            if not params:
                continue
            if _laid_out_alike(params, slopes, *([buffers] if buffers else [])):
                torch._fused_sgd_(params, slopes, buffers, lr=group["lr"], weight_decay=group["weight_decay"],
                                  momentum=group["momentum"], dampening=0.0, nesterov=group["nesterov"],
                                  maximize=False, is_first_step=False)  # its first step is one from buffers of 0
            else:
                self._one_after_the_other(group, params, slopes, buffers)

    @staticmethod
    def _one_after_the_other(group: dict[str, Any], params: list[Tensor], slopes: list[Tensor],
                             buffers: list[Tensor]) -> None:
        if group["weight_decay"]:
            slopes = list(torch._foreach_add(slopes, params, alpha=group["weight_decay"]))
        if buffers:
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


def _laid_out_alike(*lists: Sequence[Tensor]) -> bool:
    """Whether all tensors have one type and those at the same place of every list the same memory format."""
    tensors = [tensor for given in lists for tensor in given]
    return (len({(tensor.dtype, tensor.device) for tensor in tensors}) == 1
            and all(tensor.layout == torch.strided for tensor in tensors)
            and all(len({tensor.stride() for tensor in same}) == 1 for same in zip(*lists, strict=True)))


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
