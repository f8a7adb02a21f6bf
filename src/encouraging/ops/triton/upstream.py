"""The upstream gradient, applied to a gradient that the forward pass has made."""

from __future__ import annotations

import torch
from torch import Tensor

from ...torch_state import is_batched
from .launch import scale

_keep_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def times_upstream(grad: Tensor, upstream: Tensor) -> Tensor:
    """``grad * upstream``, in its own memory where nobody else needs it."""
    if is_batched(upstream):
        return (grad.float() * upstream).to(grad.dtype)
    # A graph that is kept needs the buffer as it is, and so does whoever was given it by an earlier pass.
    result = torch.empty_like(grad) if _keep_graph() else grad
    scale(grad, upstream, result)
    return result
