"""Targets: labels or distributions over the classes, laid out as ``F.cross_entropy`` takes them.

Everything that can be checked without reading the numbers is checked here, so that the operations need not check it.
"""

from __future__ import annotations

import operator
from typing import NamedTuple, SupportsIndex

import torch
from torch import Tensor

from .errors import ArgumentError, DtypeError, ShapeError, TargetError
from .torch_state import autocasts, values_are_readable

REDUCTIONS = ("none", "mean", "sum")
IMPLEMENTATIONS = ("auto", "reference", "triton")
_LABELS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ONE_CLASS_HINT = (" For the logits of a binary classifier, one per example, use SigmoidCurveLoss with input[:, 0]: a "
                  "softmax over a single class has nothing to learn.")
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # torch stores these and has few operations for them


class Rows(NamedTuple):
    """An input with its target as rows, (N) labels or (N, C) probabilities, and the shape of the losses per example."""

    input: Tensor
    target: Tensor
    soft: bool
    shape: torch.Size

    @property
    def classes(self) -> int:
        return self.input.shape[min(1, self.input.ndim - 1)]

    @property
    def logits(self) -> Tensor:
        """The input as (N, C): a copy where the classes of an image are not adjacent in memory."""
        return _rows(self.input)

    @property
    def planes(self) -> tuple[Tensor, Tensor] | None:
        """The input as (N, C, d) with a target (N, d), without a copy, where each class is one plane in memory."""
        strides, sizes = self.input.stride(), self.input.shape
        if self.soft or self.input.ndim < 3 or strides[-1] != 1 or strides[1] == 1:
            return None
        if any(strides[i] != strides[i + 1] * sizes[i + 1] for i in range(2, self.input.ndim - 1)):
            return None
        planes = self.input.flatten(2)
        return planes, self.target.reshape(sizes[0], planes.shape[2])


def as_rows(input: Tensor, target: Tensor) -> Rows:
    """Bring (C), (N, C) or (N, C, d1, ..., dk) and its target to rows; refuse shapes and types that do not match."""
    check_input(input)
    if input.ndim == 0:
        raise ShapeError("input is a single number: expected logits of shape (C), (N, C) or (N, C, d1, ..., dk).")
    if not isinstance(target, Tensor):
        raise DtypeError(f"target is a {type(target).__name__}: expected a tensor of labels or of probabilities.")
    check_dense("target", target)
    if target.device != input.device:
        raise ArgumentError(f"input is on {input.device} but target on {target.device}: move one of them.")
    if target.dtype in WIDE_UNSIGNED:
        target = target.long()
    axis = 0 if input.ndim == 1 else 1
    classes = input.shape[axis]
    shape = input.shape[:axis] + input.shape[axis + 1:]
    soft = target.shape == input.shape and target.is_floating_point()
    if not soft:
        _check_labels(input, target, shape)
    if classes == 0:
        raise ShapeError(f"input of shape {tuple(input.shape)} has no classes: expected at least one.")
    labels = target if target.ndim == 1 else target.reshape(-1)
    return Rows(input, _rows(target) if soft else labels, soft, shape)


def _rows(tensor: Tensor) -> Tensor:
    if tensor.ndim == 2:
        return tensor
    return tensor[None] if tensor.ndim == 1 else tensor.movedim(1, -1).flatten(0, -2)


def _check_labels(input: Tensor, target: Tensor, shape: torch.Size) -> None:
    if target.shape == shape and target.dtype in _LABELS:
        return
    came = f"target is {target.dtype} of shape {tuple(target.shape)} for an input of shape {tuple(input.shape)}"
    expected = f"integer labels of shape {tuple(shape)}, or probabilities of the input's shape"
    if target.is_floating_point() and (hint := _probabilities_hint(input, target)):
        raise TargetError(f"{came}: expected {expected}.{hint}")
    check_label_dtype(target, came, expected)
    if target.shape != shape:
        hint = (_single_hint(input.shape[0]) if input.ndim == 1
                else " One-hot rows are probabilities: pass them as target.float()." if target.shape == input.shape
                else " For labels with an axis of one class, pass target.squeeze(1)." if target.shape[1:2] == (1,)
                and target.squeeze(1).shape == shape
                else " For a single example without a batch, pass input[None] and target[None]."
                if input.ndim > 2 and target.shape == input.shape[1:]
                else sequence_hint("input", input.shape, target.shape))
        raise ShapeError(f"{came}: expected labels of shape {tuple(shape)}, one per example.{hint}")


def _probabilities_hint(input: Tensor, target: Tensor) -> str:
    """What to do about floats that are neither labels nor probabilities of the input's shape."""
    if input.ndim > 1 and input.shape[1] == 1:
        return ONE_CLASS_HINT
    if input.ndim > 2 and target.shape == input.movedim(1, -1).shape:
        return " For probabilities with the classes last, pass target.movedim(-1, 1)."
    return ""


def _single_hint(size: int) -> str:
    """What logits of shape (C) with labels of another shape than () may be meant to be."""
    return (f" An input of shape ({size},) is a single example with {size} classes. For the logits of a binary "
            "classifier, one per example, use SigmoidCurveLoss with target.float(). One-hot rows are probabilities: "
            "pass them as target.float().")


def check_label_dtype(target: Tensor, came: str, expected: str) -> None:
    """Refuse labels that are no integers; ``came`` and ``expected`` say what the error is about."""
    if target.is_floating_point() or target.is_complex():
        raise TargetError(f"{came}: expected {expected}. Labels that were read as floats become labels with "
                          "target.long().")
    if target.dtype == torch.bool:
        raise DtypeError(f"{came}: expected integer labels. For two classes use target.long().")


def is_integer(tensor: Tensor) -> bool:
    """Whether these can be labels by their type; torch counts neither bool nor complex numbers among floats."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def check_tensor(name: str, value: object) -> None:
    """Refuse what is not a dense tensor."""
    if not isinstance(value, Tensor):
        raise DtypeError(f"{name} is a {type(value).__name__}: expected a tensor.")
    check_dense(name, value)


def check_dense(name: str, tensor: Tensor) -> None:
    """Refuse a sparse tensor."""
    if tensor.layout not in (torch.strided, torch.jagged):
        raise ArgumentError(f"{name} is a tensor of layout {tensor.layout}: expected a dense one. Pass "
                            f"{name}.to_dense().")


def sequence_hint(name: str, shape: torch.Size, labels: torch.Size) -> str:
    """What to do about labels of a language model that do not match a tensor of ``shape``, (..., positions, classes or
    width). Empty where neither another layout nor a shift would help."""
    positions = shape[:-1]
    if len(shape) == 3 and name == "input" and labels in (positions, (positions.numel(),)):
        return (f" For logits of shape (N, d, C), with the classes last, pass {name}.flatten(0, 1) and "
                f"target.flatten(), that is (N * d, C) and (N * d), or {name}.movedim(-1, 1), that is (N, C, d) and "
                "(N, d).")
    if len(shape) > 3 and name == "input" and labels == positions:
        return (f" For logits with the classes last, pass {name}.movedim(-1, 1), that is "
                f"{(shape[0], shape[-1], *shape[1:-1])}.")
    if len(shape) == 2 and len(labels) > 1 and labels.numel() == shape[0]:
        return f" The {name} is flattened and the target is not: pass target.flatten()."
    if len(positions) > 1 and len(labels) == len(positions) and labels[:-1] == positions[:-1] and (
            abs(labels[-1] - positions[-1]) == 1):
        return (f" The sequences have {positions[-1]} positions and {labels[-1]} labels: position t predicts token "
                f"t + 1, so all positions but the last, {name}[:, :-1], belong to the tokens from the second on, "
                "target[:, 1:].")
    if len(shape) == 2 and len(labels) == 1 and name == "input" and shape[0] > 1 and labels[0] > 1:
        return (f" If these are {shape[0]} positions and {labels[0]} tokens of a language model, shift them before "
                "they are flattened: logits[:, :-1].flatten(0, 1) and tokens[:, 1:].flatten().")
    return ""


def check_input(input: Tensor) -> None:
    """Refuse what is not a floating-point tensor."""
    if not isinstance(input, Tensor):
        raise DtypeError(f"input is a {type(input).__name__}: expected a tensor of logits.")
    check_dense("input", input)
    if not input.is_floating_point():
        raise DtypeError(f"input is {input.dtype}: expected floating-point logits. If these are logits, use "
                         "input.float().")
    if input.dtype.itemsize == 1:
        raise DtypeError(f"input is {input.dtype}: expected float64, float32, float16 or bfloat16.")


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"reduction={reduction!r}: expected 'none', 'mean' or 'sum'.")


def check_implementation(impl: str) -> None:
    if impl not in IMPLEMENTATIONS:
        raise ArgumentError(f"impl={impl!r}: expected 'auto', 'reference' or 'triton'.")


def check_flag(name: str, value: object) -> None:
    """Refuse what is not True or False; a word such as "no" would count as True."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}={value!r}: expected True or False.")


def check_buffer(name: str, value: Tensor | None) -> None:
    """Refuse what a module cannot keep as a buffer, such as a list."""
    if value is not None and not isinstance(value, Tensor):
        raise DtypeError(f"{name} is a {type(value).__name__}: expected a tensor. Use "
                         f"torch.tensor({name}, dtype=torch.float32).")


def check_smoothing(label_smoothing: float) -> None:
    if not is_fraction(label_smoothing):
        raise ArgumentError(f"label_smoothing={label_smoothing!r}: expected a number from 0 to 1.")


def check_link(link: str) -> None:
    if link not in ("softmax", "sigmoid"):
        raise ArgumentError(f"link={link!r}: expected 'softmax' or 'sigmoid'.")


def is_fraction(number: object) -> bool:
    """Whether this is a number from 0 to 1."""
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1


def check_arguments(rows: Rows, weight: Tensor | None, ignore_index: int, reduction: str,
                    label_smoothing: float, *, weight_name: str = "weight") -> int:
    """Refuse arguments that do not match the rows; returns ``ignore_index`` as a Python integer. ``weight_name`` is
    what the caller's class weights are called."""
    check_reduction(reduction)
    check_smoothing(label_smoothing)
    ignore_index = checked_ignore_index(ignore_index)
    if rows.soft and ignore_index >= 0:
        raise ArgumentError(f"ignore_index={ignore_index} with probabilities as target: there is no label to ignore. "
                            "Leave rows out with a probability row of zeros, or pass labels.")
    if weight is not None:
        check_class_weight(weight, rows.classes, weight_name)
        if weight.device != rows.input.device:
            raise ArgumentError(f"{weight_name} is on {weight.device} but input on {rows.input.device}: move one of "
                                "them.")
    return ignore_index


def check_class_weight(weight: Tensor, classes: int | None, name: str = "weight") -> None:
    """Refuse what is not one number per class; ``classes`` is None where their number is not known."""
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        hint = " Parameters of the loss are passed by name, such as log_end=0.5." if isinstance(weight, float) else ""
        raise DtypeError(f"{name} is {getattr(weight, 'dtype', type(weight).__name__)}: expected a floating-point "
                         f"tensor with one number per class.{hint}")
    check_dense(name, weight)
    if weight.ndim != 1 or classes not in (None, weight.shape[0]):
        raise ShapeError(f"{name} has shape {tuple(weight.shape)}: expected ({'C' if classes is None else classes},), "
                         "one number per class.")


def checked_ignore_index(ignore_index: SupportsIndex) -> int:
    """``ignore_index`` as a Python integer; it may be any integer type, such as numpy's."""
    try:
        if isinstance(ignore_index, bool):  # which Triton takes for one bit
            ignore_index = int(ignore_index)
        number = ignore_index if isinstance(ignore_index, int) else operator.index(ignore_index)
    except TypeError as error:
        raise ArgumentError(f"ignore_index={ignore_index!r}: expected an integer, the label of rows to leave out."
                            ) from error
    if not -2**63 <= number < 2**63:
        raise ArgumentError(f"ignore_index={number}: expected an integer of 64 bits, the label of rows to leave out.")
    return number


def result_dtype(input: Tensor, target: Tensor | None = None) -> torch.dtype:
    """The loss's type, as in torch's cross-entropy: the input's, or the probabilities' where theirs is more precise; at
    least float32 under autocast."""
    dtype = input.dtype
    if target is not None and target.is_floating_point():
        dtype = torch.promote_types(dtype, target.dtype)
    return torch.float32 if dtype.itemsize < 4 and autocasts(input.device.type) else dtype


def one_hot(rows: Rows, dtype: torch.dtype) -> Tensor:
    """Labels as rows of 0 and 1. A label that names no class is refused where its value can be read."""
    labels = checked_labels(rows.target, rows.classes)
    if torch.compiler.is_compiling():  # a comparison is part of the loop around it, a scatter is not
        return (labels[:, None] == torch.arange(rows.classes, device=labels.device)).to(dtype)
    return torch.zeros_like(rows.logits, dtype=dtype).scatter(-1, labels[:, None], 1.0)


def checked_labels(target: Tensor, classes: int) -> Tensor:
    """Labels of any integer type as int64. One that names no class is refused where its value can be read."""
    labels = target.long()  # before the comparison: in uint8, 300 classes are 44
    if not labels.numel() or not values_are_readable(labels):
        return labels
    low, high = labels.aminmax()
    if int(low) < 0 or int(high) >= classes:
        raise TargetError(f"target holds labels outside 0 to {classes - 1}: there are {classes} classes.")
    return labels
