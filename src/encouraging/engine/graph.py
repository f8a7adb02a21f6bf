"""Record an update in a CUDA graph and replay it: the host then has one launch per step instead of hundreds.

An update is recorded once per shape of batch and objective, up to :data:`MOST` of them; further shapes run eagerly. The
recording includes clipping, the moving average of the weights and the sums of the meter; the learning rate is a tensor
that is changed between replays. Batches that are not tensors, and updates that cannot be recorded, run eagerly;
:attr:`Replay.reason` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from .update import Update

MOST = 16  # recordings; each holds the activations of its batch in a memory pool that all of them share
WARM_UP = 2  # eager updates of a shape before it is recorded, in which lazy initialisation and compilation happen


class Replay:
    """An :class:`Update` that replays recordings of itself where it can."""

    def __init__(self, update: Update, enabled: bool) -> None:
        self.update = update
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        self.seen: Counter[Hashable] = Counter()
        self.pool: Any = None  # recordings never run at the same time, so they share memory
        self.stream = torch.cuda.Stream() if enabled else None  # type: ignore[no-untyped-call]
        self.reason = None if enabled else "switched off, or not on one GPU in fp32, tf32 or bf16"

    def __call__(self, group: Sequence[Any], objective: Hashable, measure: bool) -> None:
        tensors = self._tensors(group) if self.reason is None else None
        if tensors is None or self.stream is None:
            self.update(group, objective, measure)
            return
        key = (objective, tuple((tensor.shape, tensor.dtype) for tensor in tensors))
        if key in self.graphs:
            graph, inputs = self.graphs[key]
            torch._foreach_copy_(inputs, tensors)
            graph.replay()
            return
        self.seen[key] += 1
        if self.seen[key] > WARM_UP and len(self.graphs) < MOST and self._record(key, group, objective):
            self(group, objective, measure)
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.update(group, objective, True)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _record(self, key: Hashable, group: Sequence[Any], objective: Hashable) -> bool:
        copies = _map_leaves(group, torch.clone)
        self.update.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        stream, generator = torch.cuda.current_stream(), torch.cuda.default_generators[torch.cuda.current_device()]
        random_state = generator.clone_state()
        try:
            self.pool = self.pool or torch.cuda.graph_pool_handle()
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                self.update(copies, objective, True)
        except Exception as error:  # a loss or a model can do anything that a graph cannot record
            self.reason = f"could not be recorded: {_first_cause(error)}"
            # A recording that fails leaves its stream current, and a generator that no dropout outside of a recording
            # can draw from.
            torch.cuda.set_stream(stream)
            generator.graphsafe_set_state(random_state)
            torch.cuda.synchronize()
            return False
        inputs: list[Tensor] = []
        _map_leaves(copies, inputs.append)
        self.graphs[key] = (graph, inputs)
        return True

    def _tensors(self, group: Sequence[Any]) -> list[Tensor] | None:
        leaves: list[Any] = []
        _map_leaves(group, leaves.append)
        if all(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in leaves):
            return leaves
        self.reason = "the batches are not made of tensors on the GPU"
        return None


def _first_cause(error: BaseException) -> str:
    """The error that came first, in one line: the end of a recording that was broken off raises as well, and says less.

    >>> _first_cause(NotImplementedError()), _first_cause(RuntimeError("not permitted\\nwhen capturing"))
    ('NotImplementedError', 'RuntimeError: not permitted')
    """
    while error.__context__ is not None:
        error = error.__context__
    lines = str(error).splitlines()  # an error may have no message
    return ": ".join([type(error).__name__, *lines[:1]])


def _map_leaves(tree: Any, function: Any) -> Any:
    """Apply a function to the leaves of tuples, lists and dicts.

    >>> _map_leaves({"a": [1, 2], "b": (3,)}, lambda leaf: leaf + 1)
    {'a': [2, 3], 'b': (4,)}
    """
    if isinstance(tree, dict):
        return {key: _map_leaves(value, function) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        values = [_map_leaves(value, function) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)  # named tuples take each alone
    return function(tree)
