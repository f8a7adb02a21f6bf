"""Targets of language models that do not fit their logits: the message says how they do."""

from __future__ import annotations

import pytest
import torch

from encouraging import (
    curve_loss,
    curves,
    linear_curve_loss,
)
from encouraging.errors import ShapeError, TargetError

TOKENS = torch.arange(34).reshape(2, 17) % 11
LOGITS = torch.zeros(2, 16, 11)
SHAPES = {
    "classes last": (lambda: curve_loss(LOGITS, TOKENS[:, 1:], curves.normal()),
                     r"\(2, 16\).*\(2, 16, 11\).*flatten\(0, 1\) and target\.flatten\(\).*\(N, C, d\)"),
    "classes last, target flattened": (lambda: curve_loss(LOGITS, TOKENS[:, 1:].flatten(), curves.normal()),
                                       r"\(32,\).*\(2, 16, 11\).*flatten\(0, 1\)"),
    "logits flattened, target not": (lambda: curve_loss(LOGITS.flatten(0, 1), TOKENS[:, 1:], curves.normal()),
                                     r"\(2, 16\).*\(32, 11\).*pass target\.flatten\(\)"),
    "unshifted": (lambda: curve_loss(LOGITS, TOKENS, curves.normal()),
                  r"\(2, 17\).*\(2, 16, 11\).*16 positions and 17 labels.*target\[:, 1:\]"),
    "unshifted and flattened": (lambda: curve_loss(LOGITS.flatten(0, 1), TOKENS.flatten(), curves.normal()),
                                r"\(34,\).*\(32, 11\).*32 positions and 34 tokens.*shift them before"),
    "fused layer, unshifted": (
        lambda: linear_curve_loss(torch.zeros(2, 16, 5), torch.zeros(11, 5), TOKENS, curves.normal()),
        r"\(2, 17\).*\(2, 16, 5\).*hidden\[:, :-1\].*target\[:, 1:\]"),
    "fused layer, target shifted only": (
        lambda: linear_curve_loss(torch.zeros(2, 17, 5), torch.zeros(11, 5), TOKENS[:, 1:], curves.normal()),
        r"\(2, 16\).*\(2, 17, 5\).*17 positions and 16 labels.*hidden\[:, :-1\]"),
    "fused layer, hidden flattened": (
        lambda: linear_curve_loss(torch.zeros(32, 5), torch.zeros(11, 5), TOKENS[:, 1:], curves.normal()),
        r"\(2, 16\).*\(32, 5\).*target\.flatten\(\)"),
}


@pytest.mark.parametrize("what", SHAPES)
def test_a_target_of_a_language_model_that_does_not_fit_is_told_how_to(what):
    call, words = SHAPES[what]
    with pytest.raises(ShapeError, match=words):
        call()


def test_the_advice_works():
    flat = curve_loss(LOGITS.flatten(0, 1), TOKENS[:, 1:].flatten(), curves.normal())
    moved = curve_loss(LOGITS.movedim(-1, 1), TOKENS[:, 1:], curves.normal())
    torch.testing.assert_close(flat, moved)
    with pytest.raises((ShapeError, TargetError)) as caught:
        curve_loss(torch.zeros(5, 3), torch.zeros(5, 2).long(), curves.normal())
    assert "language model" not in str(caught.value)
