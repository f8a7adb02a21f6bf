"""Any curve as the classification loss of torchvision's RetinaNet.

>>> from torchvision.models.detection import retinanet_resnet50_fpn
>>> from encouraging import curves
>>> model = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=4)
>>> with_curve(model, curves.halted_focal(gamma=1.0, halt=0.5), alpha=0.5) is model
True
"""

from __future__ import annotations

import copy
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchvision.models.detection.retinanet import (
    RetinaNet,
    RetinaNetClassificationHead,
    RetinaNetRegressionHead,
)

from ..curves import Curve, halted_focal
from ..curves._curve import check_curve
from ..errors import ArgumentError, DtypeError, ShapeError, did_you_mean
from ..losses import sigmoid_curve_loss
from ..presence import check_alpha
from ..targets import result_dtype

Divisor = Literal["images", "positives", "moving_positives"]
DIVISORS = get_args(Divisor)
HALT_ON = ("likelihood", "logit")
MOMENTUM, FIRST = 0.9, 100.0  # detectron2's moving average of the positives: its momentum, and its first value

__all__ = ["CurveClassificationHead", "DividedRegressionHead", "with_curve"]


class CurveClassificationHead(RetinaNetClassificationHead):  # type: ignore[misc]
    """RetinaNet's classification head with any curve as its loss; :func:`with_curve` makes one.

    ``positives`` is the number of anchors of the last batch that were matched with a box.
    """

    curve: Curve
    negative_curve: Curve
    alpha: float | None
    divisor: Divisor
    from_zero: bool
    positives: Tensor
    moving_positives: Tensor

    def compute_loss(self, targets: list[dict[str, Tensor]], head_outputs: dict[str, Tensor],
                     matched_idxs: list[Tensor]) -> Tensor:
        """The loss of a batch, divided as ``divisor`` says."""
        logits = head_outputs["cls_logits"]
        _check_labels(targets, logits.shape[-1])
        present = torch.stack([_labels(target["labels"].long(), matched)
                               for target, matched in zip(targets, matched_idxs, strict=True)])
        counted = torch.stack(list(matched_idxs)) != self.BETWEEN_THRESHOLDS
        per_image = (present >= 0).sum(1)
        self.positives = per_image.sum()
        precise = torch.promote_types(logits.dtype, torch.float32)
        weight = counted.to(precise) / self._divisors(per_image)[:, None]
        if self.from_zero and result_dtype(logits) != precise:
            logits = logits.to(precise)  # the sum needs it: its constant is much larger than the difference
        arguments: dict[str, Any] = {"alpha": self.alpha, "negative_curve": self.negative_curve}
        if self.from_zero and not logits.is_cuda:
            losses = sigmoid_curve_loss(logits, _presence(present, logits), self.curve, weight[..., None], "none",
                                        **arguments)
            above_lowest: Tensor = losses - self._constants(present, losses.dtype) * weight[..., None]
            return above_lowest.sum()
        # On a GPU the kernels add up and write no losses.
        loss = sigmoid_curve_loss(logits, _presence(present, logits), self.curve, weight[..., None], "sum", **arguments)
        return loss - self._constant(present, weight) if self.from_zero else loss

    def _divisors(self, per_image: Tensor) -> Tensor:
        """What the summed loss of each image is divided by."""
        if self.divisor == "images":
            return per_image.clamp(min=1) * len(per_image)
        return batch_divisor(self).expand(len(per_image))

    def _constant(self, present: Tensor, weight: Tensor) -> Tensor:
        """The loss of this batch if every logit were certain and right."""
        of_present, of_absent = self._lowest_losses(torch.float64)
        hits = (present >= 0).to(weight.dtype)
        constant: Tensor = (weight * (of_absent * (self.num_classes - hits) + of_present * hits)).sum()
        return constant

    def _constants(self, present: Tensor, dtype: torch.dtype) -> Tensor:
        """The same for every logit, unweighted and rounded as its loss is."""
        of_present, of_absent = self._lowest_losses(dtype)
        positive = present[..., None] == torch.arange(self.num_classes, device=present.device)
        constants = torch.full(positive.shape, of_absent, dtype=dtype, device=present.device)
        return constants.masked_fill_(positive, of_present)

    def _lowest_losses(self, dtype: torch.dtype) -> tuple[float, float]:
        """The loss of a present and of an absent class whose logit is certain and right, computed in this type."""
        of_present, of_absent = least_value(self.curve, dtype), least_value(self.negative_curve, dtype)
        if self.alpha is None:
            return of_present, of_absent
        return self.alpha * of_present, (1 - self.alpha) * of_absent


class DividedRegressionHead(RetinaNetRegressionHead):  # type: ignore[misc]
    """RetinaNet's regression head with its loss divided by the same number as that of the classification head."""

    classification: list[CurveClassificationHead]  # in a list, so that its weights are not counted twice

    def compute_loss(self, targets: list[dict[str, Tensor]], head_outputs: dict[str, Tensor], anchors: list[Tensor],
                     matched_idxs: list[Tensor]) -> Tensor:
        """The summed loss of all boxes of the batch, divided."""
        boxes = head_outputs["bbox_regression"]
        total = boxes.new_zeros((), dtype=torch.float32)
        for number, (target, anchor, matched) in enumerate(zip(targets, anchors, matched_idxs, strict=True)):
            mean = super().compute_loss([target], {"bbox_regression": boxes[number : number + 1]}, [anchor], [matched])
            total = total + mean * (matched >= 0).sum().clamp(min=1)
        return total / batch_divisor(self.classification[0], already_counted=True)


def with_curve(model: RetinaNet, curve: Curve, *, alpha: float | None = None, negative_curve: Curve | None = None,
               halt_on: str = "likelihood", divisor: Divisor = "images", from_zero: bool = True) -> RetinaNet:
    """Give a RetinaNet of torchvision another classification loss. Weights, names and outputs stay as they are.

    The loss of every anchor and class is that of :func:`~encouraging.sigmoid_curve_loss`; anchors between the two
    thresholds of the matcher do not count, as before. ``curves.focal(2.0)`` with ``alpha=0.25`` is torchvision's own.

    Args:
        model: ``retinanet_resnet50_fpn``, its ``_v2``, or any other ``RetinaNet`` with torchvision's heads. It is
            changed in place. A model that has been changed can be changed again.
        curve: Any of :mod:`encouraging.curves`.
        alpha: Classes that are present count ``alpha``, absent ones ``1 - alpha``; None to count both alike.
        negative_curve: A curve of its own for absent classes.
        halt_on: For ``curves.halted_focal``. ``"likelihood"`` halts on the probability of the truth, as the paper's
            formula has it. ``"logit"`` halts on the predicted probability, as the authors' code has it: absent classes
            that are rightly not predicted keep focal loss.
        divisor: ``"images"`` divides the loss of an image by its positives and takes the mean over images, as
            torchvision does. ``"positives"`` divides by the positives of the whole batch. ``"moving_positives"``
            divides by their moving average, as detectron2 does; the average is a buffer of the model. The last two
            divide the loss of the boxes by the same number.
        from_zero: Leave out the constant by which a curve is below 0 where the truth is certain. It has no gradient,
            but a hundred thousand easy anchors turn it into a large negative loss.

    Returns:
        The same model.

    Raises:
        DtypeError, ArgumentError: The model is not a RetinaNet, its head is not torchvision's, or an argument is
            unknown.
    """
    if not isinstance(model, RetinaNet):
        raise DtypeError(f"model is a {type(model).__name__}: expected a RetinaNet of torchvision.models.detection.")
    classification, regression = _heads(model)
    check_curve(curve)
    check_alpha(alpha)
    if not isinstance(from_zero, bool):
        raise ArgumentError(f"from_zero={from_zero!r}: expected True or False.")
    if divisor not in DIVISORS:
        raise ArgumentError(f"divisor={divisor!r}: expected {', '.join(DIVISORS)}." + did_you_mean(divisor, DIVISORS))
    head = _become(classification, CurveClassificationHead)
    head.curve, head.alpha, head.divisor, head.from_zero = curve, alpha, divisor, from_zero
    head.negative_curve = _negatives(curve, negative_curve, halt_on)
    head.positives = torch.zeros((), dtype=torch.int64)
    _keep_average(head, divisor)
    model.head.classification_head = head
    kind = RetinaNetRegressionHead if divisor == "images" else DividedRegressionHead
    boxes = _become(regression, kind)
    if divisor != "images":
        boxes.classification = [head]
    model.head.regression_head = boxes
    return model


def least_value(curve: Curve, dtype: torch.dtype = torch.float64) -> float:
    """The value of a curve where the truth is certain, computed in this type; 0 where it has no end.

    >>> from encouraging import curves
    >>> round(least_value(curves.halted_focal(1.0, 0.5)), 4), least_value(curves.focal(2.0))
    (-0.3466, 0.0)
    """
    value = curve.value(torch.tensor(torch.inf, dtype=dtype)).item()
    return value if -torch.inf < value < torch.inf else 0.0


def batch_divisor(head: CurveClassificationHead, already_counted: bool = False) -> Tensor:
    """What the summed loss of a batch is divided by, at least 1. The moving average includes the positives of all
    ranks, once per batch: not again where they are ``already_counted``. DDP averages gradients over ranks, so each rank
    divides by its part of the average."""
    if head.divisor == "positives":
        return head.positives.clamp(min=1)
    if not already_counted:
        batch = head.positives.float()
        if ranks() > 1:
            dist.all_reduce(batch)
        head.moving_positives.lerp_(batch.clamp(min=1).to(head.moving_positives), 1 - MOMENTUM)
    return head.moving_positives / ranks()


def ranks() -> int:
    """The processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _check_labels(targets: list[dict[str, Tensor]], classes: int) -> None:
    """Refuse a label without a logit, whose boxes would be taught as background, and one without a box."""
    for number, target in enumerate(targets):
        labels, boxes = target["labels"], target.get("boxes")
        if labels.ndim != 1 or (boxes is not None and len(boxes) != len(labels)):
            words = "" if boxes is None else f" with {len(boxes)} boxes"
            raise ShapeError(f"labels of the shape {tuple(labels.shape)}{words} in image {number} of this batch: "
                             "expected one class index for each box.")
    of_images = [target["labels"] for target in targets if len(target["labels"])]
    if not of_images:
        return
    labels = torch.cat(of_images)
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise DtypeError(f"labels are {labels.dtype}: expected integers, one class index for each box.")
    if bool(((labels < 0) | (labels >= classes)).any()):
        raise ArgumentError(f"the labels of this batch go from {int(labels.min())} to {int(labels.max())}: expected 0 "
                            f"to {classes - 1}, for the {classes} classes that the model was built with (num_classes).")


def _labels(labels: Tensor, matched: Tensor) -> Tensor:
    """The class of the box that each anchor was matched with, -1 for none."""
    if not len(labels):
        return torch.full_like(matched, -1)
    return torch.where(matched >= 0, labels[matched.clamp(min=0)], -1)


def _presence(present: Tensor, logits: Tensor) -> Tensor:
    """The index of each anchor's class, or, for a model of one class, whether it is present: the loss refuses indices
    of one class, because they look like 0s and 1s."""
    return present if logits.shape[-1] > 1 else (present == 0)[..., None]


def _negatives(curve: Curve, negative_curve: Curve | None, halt_on: str) -> Curve:
    if halt_on not in HALT_ON:
        raise ArgumentError(f"halt_on={halt_on!r}: expected 'likelihood' or 'logit'." + did_you_mean(halt_on, HALT_ON))
    if negative_curve is not None:
        check_curve(negative_curve)
    if halt_on == "likelihood":
        return curve if negative_curve is None else negative_curve
    if negative_curve is not None or not isinstance(curve, halted_focal):
        raise ArgumentError(f"halt_on='logit' with curve={curve!r} and negative_curve={negative_curve!r}: expected "
                            "curves.halted_focal and no curve for negatives.")
    return curve.on_logit()


def _heads(model: RetinaNet) -> tuple[nn.Module, nn.Module]:
    heads = [getattr(model.head, name, None) for name in ("classification_head", "regression_head")]
    allowed = ((RetinaNetClassificationHead, CurveClassificationHead), (RetinaNetRegressionHead, DividedRegressionHead))
    for head, kinds in zip(heads, allowed, strict=True):
        if type(head) not in kinds:
            raise ArgumentError(f"the model has a {type(head).__name__}: expected torchvision's {kinds[0].__name__}, "
                                "whose loss is replaced. Call sigmoid_curve_loss in the compute_loss of your own head.")
    return heads[0], heads[1]  # type: ignore[return-value]


def _become(module: nn.Module, kind: type[Any]) -> Any:
    """The same layers under another class; the module itself is left as it is."""
    changed = copy.copy(module)
    for table in ("_parameters", "_buffers", "_modules"):
        changed.__dict__[table] = dict(module.__dict__[table])
    changed.__dict__.pop("classification", None)
    changed.__class__ = kind
    return changed


def _keep_average(head: CurveClassificationHead, divisor: Divisor) -> None:
    head._buffers.pop("moving_positives", None)
    if divisor == "moving_positives":
        device = next(head.parameters()).device
        head.register_buffer("moving_positives", torch.tensor(FIRST, device=device))
