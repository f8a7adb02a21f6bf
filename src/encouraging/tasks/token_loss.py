"""The loss of sequences: output layer and loss in one, so that the logits of all tokens are never stored."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..engine import Loss
from ..errors import RecipeError
from ..losses import linear_curve_loss
from .objective import Objective
from .spec import StageSpec

OTHER_LOSSES = ("margin", "reweight_from_epoch", "balanced_softmax", "ldam_margin", "bonus_divisor", "logit_norm")


def check_token_stage(stage: StageSpec, ignored: int, *, subject: str, units: str, examples: str) -> None:
    """Refuse losses and sampling that sequences do not have; ``ignored`` is the label of what does not count, and the
    words name the task, its classes and what its batches hold."""
    objective = stage.objective
    wrong = [key for key in OTHER_LOSSES if getattr(objective, key)]
    wrong += ["logit_scale"] if objective.logit_scale != 1 else []
    wrong += ["loss"] if objective.loss != "curve" else ["link"] if objective.link != "softmax" else []
    wrong += ["divisor"] if objective.divisor not in ("weights", "tokens") else []
    wrong += ["ignore_index"] if objective.ignore_index not in (None, ignored) else []
    if wrong:
        raise RecipeError(f"{', '.join(wrong)}: {subject} has a softmax over {units} and a mean over tokens, with any "
                          "curve, label_smoothing and match_norm. Leave it out.", "arms")
    if stage.sampling.kind == "class_balanced":
        raise RecipeError(f"sampling = 'class_balanced': {examples} have no classes. Expected 'shuffled' or "
                          "'sequential'.", "stages")


def token_loss(objective: Objective, hidden: Tensor, weight: Tensor, labels: Tensor,
               fused: bool | None = None) -> Loss:
    """The mean loss per token that is not ignored.

    Args:
        objective: the current loss; its ``ignore_index`` marks padding.
        hidden: (..., D), the input of the output layer.
        weight: (C, D), the weight of the output layer.
        labels: (...), the next token at every position.
        fused: whether the output layer and the loss are computed together; by default on a GPU, where it saves memory
            and time. On a CPU it takes about a quarter longer. ``match_norm`` needs all logits and is never fused.

    Under autocast the output layer and the loss still run in float32: margins reach a hundred, where bfloat16 has steps
    of a half.
    """
    rows, flat = hidden.flatten(0, -2), labels.flatten()
    with torch.autocast(hidden.device.type, enabled=False):
        rows, weight = rows.float(), weight.float()
        if not (rows.is_cuda if fused is None else fused) or not can_fuse(objective) or not flat.numel():
            return objective.loss(F.linear(rows, weight), flat)
        assert objective.curve is not None
        assert objective.ignore_index is not None
        total = linear_curve_loss(rows, weight, flat, objective.curve, ignore_index=objective.ignore_index,
                                  reduction="sum", label_smoothing=objective.label_smoothing)
        count = (flat != objective.ignore_index).sum().to(total.dtype)
        return Loss(total / count.clamp(min=1), count)


def can_fuse(objective: Objective) -> bool:
    """Whether the output layer can be computed together with the loss."""
    return (objective.curve is not None and objective.link == "softmax" and not objective.match_norm
            and not objective.weighted and objective.logit_norm is None and objective.divisor == "tokens"
            and objective.ignore_index is not None)
