"""The losses accept the types that torch's cross-entropy accepts, and compute half precision in float32."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from encouraging import curve_loss, curves, encouraging_loss, mirror_mse_loss
from strategies import CURVES, SEEDS, generator, rows_with_gaps

CE = curves.cross_entropy()
HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_result_has_torchs_type_and_the_gradient_the_inputs(dtype, soft, reduction):
    logits, label = rows_with_gaps(torch.linspace(-3, 9, 6, dtype=torch.float64), 4, 0)
    logits = logits.to(dtype).requires_grad_()
    target = F.one_hot(label, 4).to(dtype) if soft else label
    loss = curve_loss(logits, target, CE, reduction=reduction)
    torchs = F.cross_entropy(logits, target, reduction=reduction)
    assert loss.dtype == torchs.dtype == dtype
    assert torch.autograd.grad(loss.sum(), logits)[0].dtype == dtype


@pytest.mark.parametrize("input_type", [torch.float64, torch.float32, *HALVES])
@pytest.mark.parametrize("target_type", [torch.float64, torch.float32, *HALVES])
def test_probabilities_of_another_type_give_torchs_type(input_type, target_type):
    logits = torch.randn(3, 4, generator=generator(0)).to(input_type)
    target = torch.full((3, 4), 0.25, dtype=target_type)
    assert curve_loss(logits, target, CE).dtype == F.cross_entropy(logits, target).dtype


@pytest.mark.parametrize("dtype", HALVES)
@given(seed=SEEDS, curve=CURVES, smoothing=st.sampled_from([0.0, 0.1]))
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype, seed, curve, smoothing):
    gaps = 24 * torch.rand(6, generator=generator(seed), dtype=torch.float64) - 12
    logits, label = rows_with_gaps(gaps, 5, seed)
    half = logits.to(dtype)

    def loss(z):
        return curve_loss(z, label, curve, reduction="none", label_smoothing=smoothing)

    upstream = torch.ones(6)
    results = []
    for z in (half, half.float()):
        z = z.clone().requires_grad_()
        value = loss(z)
        results.append((value.detach(), torch.autograd.grad(value, z, upstream.to(value.dtype))[0]))
    for low, full in zip(*results, strict=True):
        assert torch.equal(low, full.to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_the_labels_gradient_keeps_its_digits_at_p_0_999_in_16_bits(dtype):
    logits = torch.tensor([[8.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    curve_loss(logits, torch.tensor([0]), CE).backward()
    q = 2 / (math.exp(8) + 2)
    torch.testing.assert_close(logits.grad[0].double(), torch.tensor([-q, q / 2, q / 2], dtype=torch.float64),
                               rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_under_autocast_it_computes_in_float32_and_returns_float32(dtype, smoothing):
    logits, label = rows_with_gaps(torch.linspace(-3, 9, 6, dtype=torch.float64), 4, 0)
    logits = logits.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        loss = encouraging_loss(logits, label, label_smoothing=smoothing)
        assert F.cross_entropy(logits, label).dtype == torch.float32
        assert encouraging_loss(logits, F.one_hot(label, 4).to(dtype)).dtype == torch.float32
        assert mirror_mse_loss(logits, label).dtype == torch.float32
        assert encouraging_loss(logits.double(), label).dtype == torch.float64
    assert loss.dtype == torch.float32
    assert torch.equal(loss, encouraging_loss(logits.float(), label, label_smoothing=smoothing))
    assert torch.autograd.grad(loss, logits)[0].dtype == dtype


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_every_integer_type_are_labels(dtype):
    logits = torch.randn(300 if dtype == torch.uint8 else 4, 250, generator=generator(0))
    label = torch.arange(len(logits)).remainder(250 if dtype == torch.uint8 else 100)
    expected = F.cross_entropy(logits, label, reduction="none")
    torch.testing.assert_close(curve_loss(logits, label.to(dtype), CE, reduction="none"), expected)
    # In uint8, -100 and 156 are the same bits: where the host cannot look, the label 156 must still count.
    mapped = torch.func.vmap(lambda z, t: curve_loss(z, t, CE))(logits, label.to(dtype))
    torch.testing.assert_close(mapped, expected)
