"""Whether the numbers of attacks that follow the gradient of cross-entropy can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError
from ._accuracy import RobustAccuracy, percent


@dataclass(frozen=True)
class Verdict:
    """One cross-entropy-driven attack at one epsilon, beside attacks that do not depend on the scale of the logits.

    Attributes:
        attack: the name of the cross-entropy-driven attack.
        eps: its epsilon.
        accuracy: the accuracy under it, in percent.
        robust: the accuracy, in percent, under all of ``compared_with`` together. It does not contain the
            cross-entropy-driven attack, so it is the same for a model whose logits are only multiplied by a number.
        compared_with: the names of the other attacks.
        flattered: whether the attack makes the model look more robust than it is.
        words: the verdict as a sentence.
    """

    attack: str
    eps: float
    accuracy: float
    robust: float
    compared_with: tuple[str, ...]
    flattered: bool
    words: str


def masked_gradients(result: RobustAccuracy, *, tolerance: float = 1.0, level: float = 0.05) -> list[Verdict]:
    """Compare every attack driven by ``"ce"`` with the same method driven by other losses, and with AutoAttack.

    The gradient of cross-entropy vanishes where a model is confident. An attack that follows it then finds nothing,
    although there is something to find, and the model looks robust. FGSM is compared with FGSM alone, because it is
    weaker than AutoAttack whatever drives it.

    Args:
        result: what :func:`accuracy_over_eps` returned, for at least one attack driven by ``"ce"`` and one that it can
            be compared with at the same epsilon.
        tolerance: how many points of accuracy count as the same.
        level: how likely a difference may be by chance, by the exact sign test on the examples that one side breaks
            and the other does not. On a few examples two equally strong attacks easily differ by some points.

    Returns:
        A verdict per attack and epsilon (above 0), with ``flattered`` and a sentence for people.

    Raises:
        ArgumentError: there is nothing to compare.

    >>> from encouraging.attacks import Attack, accuracy_over_eps
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight).data.mul_(1000)  # the gradient of cross-entropy underflows
    >>> x, y = torch.tensor([[0.75, 0.25]] * 5), torch.tensor([0] * 5)
    >>> both = [Attack("fgsm"), Attack("fgsm", loss="margin")]
    >>> verdict, = masked_gradients(accuracy_over_eps(model, x, y, both, [0.5]))
    >>> verdict.accuracy, verdict.robust, verdict.flattered
    (100.0, 0.0, True)
    """
    verdicts = list(_verdicts(result, tolerance, level))
    if not verdicts:
        raise ArgumentError("masked_gradients: nothing to compare. Expected an attack with loss='ce' and, at the same "
                            "epsilon above 0, the same attack with loss='margin' or 'dlr', or autoattack in its norm.")
    return verdicts


def _verdicts(result: RobustAccuracy, tolerance: float, level: float) -> Iterator[Verdict]:
    for name, attack in result.attacks.items():
        if attack.loss != "ce":
            continue
        same = [other for other, other_attack in result.attacks.items()
                if other_attack.method == attack.method and other_attack.loss != "ce"]
        judges = [other for other, other_attack in result.attacks.items() if other_attack.method == "autoattack"
                  and other_attack.norm == attack.norm and attack.method != "fgsm"]
        for eps, survived in result.survived[name].items():
            others = {other: result.survived[other][eps] for other in (*same, *judges) if eps in result.survived[other]}
            if eps > 0 and others:
                yield _verdict(name, eps, survived, others, [other for other in same if other in others], tolerance,
                               level)


def sign_test(more: int, less: int) -> float:
    """How likely at least ``more`` of ``more + less`` coins show heads; of over 1000 coins by the normal distribution.

    >>> sign_test(5, 0), sign_test(1, 1)
    (0.03125, 0.75)
    """
    coins = more + less
    if coins > 1000:
        return math.erfc((more - 0.5 - coins / 2) / math.sqrt(coins / 2)) / 2
    return sum(math.comb(coins, heads) for heads in range(more, coins + 1)) / (1 << coins)


def _verdict(name: str, eps: float, survived: Tensor, others: dict[str, Tensor], same: list[str],
             tolerance: float, level: float) -> Verdict:
    together = torch.stack(list(others.values())).all(0)
    accuracy, robust = percent(survived), percent(together)
    chance = sign_test(int((survived & ~together).sum()), int((together & ~survived).sum()))
    flattered = accuracy - robust > tolerance and chance <= level
    by_loss = [other for other in same if accuracy - percent(others[other]) > tolerance]
    by_other = ", ".join(f"{percent(mask):.1f}% under {other}" for other, mask in others.items())
    words = (f"At epsilon {eps:g}, {accuracy:.1f}% of the examples stay classified correctly under {name}, which "
             f"follows the gradient of cross-entropy; {by_other}")
    if not flattered and accuracy - robust > tolerance:
        words += f". On {len(survived)} examples such a difference is no sign of masked gradients: it may be chance."
    elif not flattered:
        words += ". No sign of masked gradients."
    else:
        under_all = f" and {robust:.1f}% under all of these together" if len(others) > 1 else ""
        cause = ("the same attack finds more once another loss drives it, as it does where the confidence of a model "
                 "masks the gradient of cross-entropy" if by_loss else "AutoAttack finds more")
        words += (f"{under_all}. {name} makes the model look more robust than it is: {cause}. "
                  f"Report {robust:.1f}%, not {accuracy:.1f}%.")
    return Verdict(name, eps, accuracy, robust, tuple(others), flattered, words)
