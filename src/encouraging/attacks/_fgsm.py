"""The fast gradient sign method (Goodfellow and others, 2015)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._ascent import Ascent, attack
from ._ball import LINF
from ._check import check_batch, check_eps, check_index, check_reach, check_settings
from ._model import Model, checked, evaluating


def fgsm(model: Model, x: Tensor, y: Tensor, eps: float, *, loss: str = "ce", clip: bool = True,
         batch_size: int | None = None) -> Tensor:
    r"""One step of length ``eps`` along the sign of the gradient: :math:`x + \epsilon\, \mathrm{sign}\, \nabla_x L`.

    Args:
        model: any function from inputs to logits (N, C); a module is put into evaluation mode meanwhile.
        x: inputs in [0, 1], float32 or float64, the shape (N, ...). Normalisation belongs in the model.
        y: labels, the shape (N,).
        eps: the largest change of any coordinate, at most 1 unless ``clip=False``.
        loss: what the step increases: ``"ce"`` (the paper's), ``"margin"``, ``"dlr"`` or ``"label_logit"``.
        clip: whether the result is clipped to [0, 1]. With ``clip=False`` x may have any finite values, for example
            normalised images: the authors attack L-Softmax in this way, with ``loss="label_logit"``.
        batch_size: the largest number of examples that are attacked at a time; all of them by default.

    Returns:
        Perturbed inputs, without a gradient.

    Raises:
        ArgumentError, DtypeError, ShapeError, TargetError: an argument cannot be used; the message says why.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight)
    >>> x, y = torch.tensor([[0.75, 0.25]]), torch.tensor([0])
    >>> fgsm(model, x, y, 0.125)
    tensor([[0.6250, 0.3750]])
    """
    eps = check_eps(eps)
    check_settings(loss=loss, clip=clip, batch_size=batch_size)
    if clip:
        check_reach(eps)
    highest = check_batch(x, y, box=clip)
    ascent = Ascent(LINF, eps, steps=1, step_size=eps, loss=loss, clip=clip)
    with evaluating(model) as model, torch.autocast(x.device.type, enabled=False):
        return attack(checked(model, highest), x, y, ascent, seed=0, index=check_index(None, x), batch_size=batch_size)
