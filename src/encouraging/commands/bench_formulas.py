"""The losses as a user of torch writes them, for ``encouraging bench --matrix``: what ours must not be slower than.

Only the formulas: they are inexact where p is near 0 or 1, as such code is.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..curves import Curve


def phi(curve: Curve, log_p: Tensor, p: Tensor | None = None) -> Tensor:
    """The curve as a function of log p."""
    given: dict[str, float] = curve.params
    if curve.name == "cross_entropy":
        return -log_p
    p = log_p.exp() if p is None else p
    if curve.name == "normal":
        return -log_p + torch.log(torch.clamp(1 - p, min=given["eps"] or 1e-30))
    if curve.name == "conservative":
        end = given["log_end"]
        line = -(p - end) / (1 - end) + math.log(1 - end)
        return -log_p + torch.where(p > end, line, torch.log1p(-p.clamp(max=end)))
    if curve.name == "aggressive":
        bonus = torch.log(torch.clamp(1 - p, min=given["eps"] or 1e-30)) - math.log(1 - given["start"])
        return -log_p + torch.where(p >= given["start"], bonus, 0.0)
    if curve.name == "power":
        return -log_p - given["weight"] * p ** given["exponent"]
    if curve.name == "poly":
        return -log_p + given["epsilon"] * (1 - p)
    if curve.name == "square":
        return (1 - p) ** 2 - (p**2 if given["bonus"] else 0)
    focal = -((1 - p) ** given["gamma"]) * log_p
    if curve.name == "focal":
        return focal
    halt = given["halt"]
    shift = (1 - (1 - halt) ** given["gamma"]) * math.log(halt) if halt else 0.0
    return torch.where(p <= halt, focal, -log_p + shift)


def softmax_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None, smoothing: float = 0.0,
                 reduction: str = "mean", match_norm: bool = False) -> Tensor:
    if curve.name == "cross_entropy" and not match_norm:
        return F.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)
    log_p = torch.log_softmax(logits, -1)
    if target.is_floating_point():
        mass = target * (1 - smoothing) + smoothing / logits.shape[-1] if smoothing else target
        mass = mass if weight is None else mass * weight
        rows = (mass * phi(curve, log_p)).sum(-1)
        return rows if reduction == "none" else rows.mean() if reduction == "mean" else rows.sum()
    known = target != -100
    label = torch.where(known, target, 0)
    own = log_p.gather(-1, label[:, None])[:, 0]
    each = known.to(own.dtype) if weight is None else torch.where(known, weight[label].to(own.dtype), 0.0)
    rows = each * phi(curve, own)
    if smoothing:
        spread = phi(curve, log_p) if weight is None else phi(curve, log_p) * weight
        rows = (1 - smoothing) * rows + smoothing * torch.where(known, spread.mean(-1), 0.0)
    if match_norm:
        rows = rows * _match(log_p.detach(), own.detach(), label, each)
    if reduction == "none":
        return rows
    return rows.sum() / each.sum() if reduction == "mean" else rows.sum()


def _match(log_p: Tensor, own: Tensor, label: Tensor, each: Tensor) -> Tensor:
    """The factor of norm matching for a pull of 1, the normal bonus without its clamp."""
    q = -torch.expm1(own.float())
    rivals = (2 * log_p.float()).exp().scatter(-1, label[:, None], 0.0).sum(-1)
    length = (each * (1 + rivals / q.clamp(min=1e-12) ** 2).sqrt()).float()
    return ((q * length).square().sum() / length.square().sum()).sqrt()


def sigmoid_loss(logits: Tensor, target: Tensor, curve: Curve, *, alpha: float | None = None,
                 pos_weight: Tensor | None = None, weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    if curve.name == "cross_entropy" and alpha is None:
        return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), weight, reduction=reduction,
                                                  pos_weight=pos_weight)
    if target.ndim < logits.ndim:
        target = target[..., None] == torch.arange(logits.shape[-1], device=target.device)
    share = target.to(logits.dtype)
    positive, negative = phi(curve, F.logsigmoid(logits)), phi(curve, F.logsigmoid(-logits))
    if alpha is not None:
        positive, negative = alpha * positive, (1 - alpha) * negative
    positive = positive if pos_weight is None else positive * pos_weight
    loss = share * positive + (1 - share) * negative
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
