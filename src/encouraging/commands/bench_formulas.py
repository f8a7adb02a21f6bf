"""The losses as a user of torch writes them, for ``encouraging bench --matrix``: what ours must not be slower than.

They are inexact where p is near 0 or 1, as such code is.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..curves import Curve


def phi(curve: Curve, log_p: Tensor, p: Tensor | None = None) -> Tensor:
    """The curve as a function of log p."""
    params: dict[str, float] = curve.params
    if curve.name == "cross_entropy":
        return -log_p
    p = log_p.exp() if p is None else p
    if curve.name == "normal":
        return -log_p + torch.log(torch.clamp(1 - p, min=params["eps"] or 1e-30))
    if curve.name == "conservative":
        log_end = params["log_end"]
        line = -(p - log_end) / (1 - log_end) + math.log(1 - log_end)
        return -log_p + torch.where(p > log_end, line, torch.log1p(-p.clamp(max=log_end)))
    if curve.name == "aggressive":
        bonus = torch.log(torch.clamp(1 - p, min=params["eps"] or 1e-30)) - math.log(1 - params["start"])
        return -log_p + torch.where(p >= params["start"], bonus, 0.0)
    if curve.name == "power":
        return -log_p - params["weight"] * p ** params["exponent"]
    if curve.name == "poly":
        return -log_p + params["epsilon"] * (1 - p)
    if curve.name == "square":
        return (1 - p) ** 2 - (p**2 if params["bonus"] else 0)
    focal = -((1 - p) ** params["gamma"]) * log_p
    if curve.name == "focal":
        return focal
    halt = params["halt"]
    shift = (1 - (1 - halt) ** params["gamma"]) * math.log(halt) if halt else 0.0
    return torch.where(p <= halt, focal, -log_p + shift)


def softmax_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None, smoothing: float = 0.0,
                 reduction: str = "mean", match_norm: bool = False) -> Tensor:
    if curve.name == "cross_entropy" and not match_norm:
        return F.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)
    log_p = torch.log_softmax(logits, -1)
    if target.is_floating_point():
        factors = target * (1 - smoothing) + smoothing / logits.shape[-1] if smoothing else target
        factors = factors if weight is None else factors * weight
        rows = (factors * phi(curve, log_p)).sum(-1)
        return rows if reduction == "none" else rows.mean() if reduction == "mean" else rows.sum()
    valid = target != -100
    label = torch.where(valid, target, 0)
    label_log_p = log_p.gather(-1, label[:, None])[:, 0]
    row_weight = valid.to(label_log_p.dtype)
    if weight is not None:
        row_weight = torch.where(valid, weight[label].to(label_log_p.dtype), 0.0)
    rows = row_weight * phi(curve, label_log_p)
    if smoothing:
        spread = phi(curve, log_p) if weight is None else phi(curve, log_p) * weight
        rows = (1 - smoothing) * rows + smoothing * torch.where(valid, spread.mean(-1), 0.0)
    if match_norm:
        rows = rows * _match(log_p.detach(), label_log_p.detach(), label, row_weight)
    if reduction == "none":
        return rows
    return rows.sum() / row_weight.sum() if reduction == "mean" else rows.sum()


def _match(log_p: Tensor, label_log_p: Tensor, label: Tensor, row_weight: Tensor) -> Tensor:
    """The factor of norm matching for a pull of 1, the normal bonus without its clamp."""
    q = -torch.expm1(label_log_p.float())
    rivals = (2 * log_p.float()).exp().scatter(-1, label[:, None], 0.0).sum(-1)
    length = (row_weight * (1 + rivals / q.clamp(min=1e-12) ** 2).sqrt()).float()
    return ((q * length).square().sum() / length.square().sum()).sqrt()


def sigmoid_loss(logits: Tensor, target: Tensor, curve: Curve, *, alpha: float | None = None,
                 pos_weight: Tensor | None = None, weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    if curve.name == "cross_entropy" and alpha is None:
        return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), weight, reduction=reduction,
                                                  pos_weight=pos_weight)
    if target.ndim < logits.ndim:
        target = target[..., None] == torch.arange(logits.shape[-1], device=target.device)
    truth = target.to(logits.dtype)
    positive, negative = phi(curve, F.logsigmoid(logits)), phi(curve, F.logsigmoid(-logits))
    if alpha is not None:
        positive, negative = alpha * positive, (1 - alpha) * negative
    positive = positive if pos_weight is None else positive * pos_weight
    loss = truth * positive + (1 - truth) * negative
    loss = loss if weight is None else loss * weight
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def mse_loss(logits: Tensor, target: Tensor, *, bonus: bool, link: str, reduction: str = "mean") -> Tensor:
    p = torch.softmax(logits, -1) if link == "softmax" else torch.sigmoid(logits)
    truth = target if target.is_floating_point() else F.one_hot(target, logits.shape[-1])
    truth = truth.to(p.dtype)
    loss = (truth - p) ** 2
    if bonus:
        loss = loss - (truth * p) ** 2 - ((1 - truth) * (1 - p)) ** 2
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
