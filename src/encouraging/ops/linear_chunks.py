r"""Output layer and loss together: the logits exist for one chunk of rows at a time, never as a whole.

For each chunk of rows the logits are written to one buffer and replaced in place by the gradient :math:`G` of their own
losses, which is used at once: :math:`G W` is the gradient on the chunk's inputs, and :math:`G^\top H` is added to the
gradient on the weight. So the gradients of ``mean`` and ``sum`` are ready when the forward pass ends, and the backward
pass only multiplies them by the upstream gradient, and by the factor of norm matching, which is known when all rows
have been read. A second backward pass (``retain_graph=True``), and any for
``none``, whose upstream gradient has one number per row, goes over the chunks again.

**Rows per chunk.** Each chunk reads and writes the whole gradient of the weight, and its matrix products grow with its
rows. The share of time that goes into accumulation therefore depends only on the rows and on the bytes per number of
the accumulator: 1024 rows per byte (4096 for float32, 2048 for bfloat16) keep it at about 6% of the three products on
an H200. A chunk has fewer rows where it would exceed 2 GiB of logits. Beside the gradients themselves the memory is one
chunk: for 8192 rows of width 4096, 128256 classes and bfloat16, 2004 MiB of float32 accumulator + 1002 of logits + 64
of input gradient (in bfloat16: 1002 + 501 + 64), where the plain layer and cross-entropy take 6012.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..curves import Curve
from ..torch_state import without_autocast
from . import dispatch, reference
from .rows import compute_dtype

_ROWS_PER_BYTE = 1024
_MAX_BYTES = 1 << 31
_ALIGN = 128  # rows of a tile of the matrix products

ACCUMULATORS = ("float32", "weight")


class Layer(NamedTuple):
    """The rows (N, D) that the output layer reads, and the layer itself."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None


class Plan(NamedTuple):
    """What is the same for all chunks."""

    curve: Curve
    soft: bool
    ignore_index: int
    reduction: str
    label_smoothing: float
    chunk_bytes: int | None
    accumulate: str
    impl: str  # "triton" or "reference"
    dtype: torch.dtype  # of the logits
    differentiate: bool
    match_norm: bool = False

    def chunk(self, layer: Layer) -> tuple[int, torch.dtype]:
        """Rows per chunk, and the type in which the weight's gradient is accumulated."""
        n, weight = layer.hidden.shape[0], layer.weight
        total_dtype = compute_dtype(weight.dtype)
        if self.accumulate == "weight" and weight.dtype != torch.float16:
            total_dtype = weight.dtype
        rows = chunk_rows(n, weight.shape[0], self.dtype.itemsize, total_dtype.itemsize, self.chunk_bytes)
        if rows >= n and weight.dtype != torch.float16:
            total_dtype = weight.dtype  # a single product accumulates in float32 by itself
        return rows, total_dtype

    @property
    def kernels_match(self) -> bool:
        """Whether the kernels compute the lengths of the rows' gradients together with the losses."""
        return self.impl == "triton" and not self.soft and not self.label_smoothing

    def lengths(self, layer: Layer) -> Tensor | None:
        """A buffer for the lengths of all rows' gradients, from which :meth:`factor` follows."""
        if not self.match_norm:
            return None
        n = layer.hidden.shape[0]
        if self.kernels_match:
            return layer.hidden.new_empty((2, n), dtype=torch.float32)
        return layer.hidden.new_empty((n, 3), dtype=compute_dtype(self.dtype))

    def factor(self, lengths: Tensor | None) -> Tensor | None:
        """What norm matching multiplies the loss by."""
        if lengths is None:
            return None
        factor: Tensor = (dispatch.kernels().norm_ratio(lengths) if self.kernels_match
                          else reference.factor_of_lengths(lengths))
        return factor

    def buffers(self, layer: Layer, needs: tuple[bool, ...]) -> list[Tensor | None]:
        """Buffers for the gradients that are needed."""
        hidden, weight, _ = layer
        by_hidden = torch.empty_like(hidden, memory_format=torch.contiguous_format) if needs[0] else None
        # chunk() is called only where its answer matters: torch.export cannot compare a number of rows that may vary.
        total_dtype = weight.dtype if weight.dtype == compute_dtype(weight.dtype) else self.chunk(layer)[1]
        by_weight = hidden.new_empty(weight.shape, dtype=total_dtype) if needs[1] else None
        by_bias = hidden.new_empty(weight.shape[0], dtype=compute_dtype(self.dtype)) if needs[2] else None
        return [by_hidden, by_weight, by_bias]


def chunk_rows(rows: int, classes: int, logits_bytes: int, accumulator_bytes: int, chunk_bytes: int | None) -> int:
    """Rows per chunk: as many as the budget allows, spread evenly over the chunks, whole tiles where possible.

    >>> chunk_rows(8192, 128256, 2, 4, None), chunk_rows(8192, 128256, 2, 2, None)
    (4096, 2048)
    >>> chunk_rows(5000, 32000, 2, 4, None)  # two chunks: not 4096 and 904 rows
    2560
    """
    most = (chunk_bytes or _MAX_BYTES) // max(1, classes * logits_bytes)
    if chunk_bytes is None:
        most = min(most, _ROWS_PER_BYTE * min(4, accumulator_bytes))
    most = max(1, most - most % _ALIGN if most > _ALIGN else most)
    chunks = max(1, -(-rows // most))
    even = -(-rows // chunks)
    return max(1, min(most, even + -even % _ALIGN, rows))


def walk(layer: Layer, target: Tensor, class_weight: Tensor | None, plan: Plan, needs: tuple[bool, ...],
         upstream: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, list[Tensor | None]]:
    """The losses of all rows, and the gradients of their sum (weighted by ``upstream``, if given) that are needed;
    ``lengths`` is filled with those of the rows' gradients on the logits."""
    hidden, (n, classes) = layer.hidden, (layer.hidden.shape[0], layer.weight.shape[0])
    table = layer.weight.to(plan.dtype)
    shift = None if layer.bias is None else layer.bias.to(plan.dtype)
    rows, _ = plan.chunk(layer)
    losses = hidden.new_empty(n, dtype=compute_dtype(plan.dtype))
    by_hidden, by_weight, by_bias = gradients = plan.buffers(layer, needs)
    if by_weight is not None and n == 0:
        by_weight.zero_()
    if by_bias is not None:
        by_bias.zero_()
    with without_autocast(hidden.device.type):
        buffer = hidden.new_empty((rows, classes), dtype=plan.dtype)
        for part in _chunks(n, rows):
            chunk = hidden[part].to(plan.dtype)
            logits = buffer[:chunk.shape[0]]
            if shift is None:
                torch.mm(chunk, table.T, out=logits)
            else:
                torch.addmm(shift, chunk, table.T, out=logits)
            above = None if upstream is None else upstream[part]
            if lengths is not None and not plan.kernels_match:
                lengths[part] = reference.match_norm_lengths(
                    logits, target[part], plan.curve, weight=class_weight, ignore_index=plan.ignore_index,
                    label_smoothing=plan.label_smoothing)
            chunk_lengths = None
            if lengths is not None and plan.kernels_match:
                chunk_lengths = lengths.new_empty((2, chunk.shape[0]))
            differentiate = any(needs) or chunk_lengths is not None
            losses[part] = _losses_(logits, target[part], class_weight, plan, differentiate, above, chunk_lengths)
            if lengths is not None and chunk_lengths is not None:
                lengths[:, part] = chunk_lengths
            if by_hidden is not None:
                if by_hidden.dtype == plan.dtype:
                    torch.mm(logits, table, out=by_hidden[part])
                else:
                    by_hidden[part] = torch.mm(logits, table)
            if by_weight is not None:
                _add_product(by_weight, logits.T, chunk, first=part.start == 0)
            if by_bias is not None:
                by_bias += logits.sum(0, dtype=by_bias.dtype)
    return losses, gradients


def _chunks(n: int, rows: int) -> Iterator[slice]:
    for start in range(0, n, rows):
        yield slice(start, min(n, start + rows))


def _losses_(logits: Tensor, target: Tensor, class_weight: Tensor | None, plan: Plan, differentiate: bool,
             upstream: Tensor | None, lengths: Tensor | None = None) -> Tensor:
    """The losses of these rows. With ``differentiate`` their gradient is written over the logits; the kernels fill
    ``lengths``."""
    arguments: dict[str, Any] = {"weight": class_weight, "label_smoothing": plan.label_smoothing}
    if not plan.soft:
        arguments["ignore_index"] = plan.ignore_index
    if plan.impl == "triton" and differentiate:
        losses: Tensor = dispatch.kernels().loss_and_gradient_(logits, target, plan.curve, upstream=upstream,
                                                               lengths=lengths, **arguments)
        return losses
    with torch.no_grad():
        if differentiate:
            return reference.rows_with_gradient_(
                logits, target, plan.curve, soft=plan.soft, weight=class_weight, ignore_index=plan.ignore_index,
                label_smoothing=plan.label_smoothing, upstream=upstream)
        op = reference.soft_loss if plan.soft else reference.hard_loss
        if plan.impl == "triton":
            op = dispatch.kernels().soft_loss if plan.soft else dispatch.kernels().hard_loss
        losses = op(logits, target, plan.curve, reduction="none", **arguments)
    return losses


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """``total += a @ b`` in the type of the total. The first product overwrites it."""
    if a.dtype == total.dtype:
        torch.addmm(total, a, b, beta=0 if first else 1, out=total)
    elif a.is_cuda and torch.version.cuda:
        torch.addmm(total, a, b, total.dtype, beta=0 if first else 1, out=total)
    else:  # only CUDA accumulates products of 16-bit numbers in float32
        total.addmm_(a.to(total.dtype), b.to(total.dtype), beta=0 if first else 1)
