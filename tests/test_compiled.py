"""The losses under torch.compile, against the same calls without it: values, gradients and torch.func inside."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import grad, vmap
from torch.nn import functional as F

from encouraging import CurveLoss, SigmoidCurveLoss, curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from transform_cases import CLASSES, SMOOTHING, batch

# torch's own tracer makes an object of every autograd Function that it meets, and warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None,
                                    reason="torch.compile needs a C++ compiler on a CPU")


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    yield
    torch._dynamo.reset()


def compiled(function, backend: str = "aot_eager", **more):
    return torch.compile(function, fullgraph=True, backend=backend, **more)


@pytest.mark.parametrize("curve", [curves.cross_entropy(), curves.normal(), curves.conservative(), curves.aggressive(),
                                   curves.power(2.5, 0.5), curves.poly(-0.5), curves.halted_focal(2.0, 0.5),
                                   curves.square()], ids=repr)
def test_compiled_as_one_graph_values_and_gradients_are_the_same(curve):
    logits, label = batch()
    label[0] = -100
    weight = torch.linspace(0.5, 1.5, CLASSES, dtype=torch.float64)
    soft = F.one_hot(label.clamp(min=0), CLASSES).double()

    def losses(z, t):
        hard = curve_loss(z, t, curve, weight, reduction="none", label_smoothing=0.1)
        return hard + curve_loss(z, soft, curve) + curve_loss(z, t, curve)

    results = []
    for function in (losses, compiled(losses)):
        z = logits.clone().requires_grad_()
        value = function(z, label)
        results.append((value.detach(), torch.autograd.grad(value, z, torch.arange(4.0, dtype=torch.float64))[0]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-13, atol=1e-14)


def test_compiled_sigmoid_mirror_mse_and_match_norm_are_the_same():
    logits, label = batch()
    presence = F.one_hot(label, CLASSES)
    soft = logits.flip(0).softmax(-1)
    upstream = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64).view_as(logits)

    def losses(z):
        return (sigmoid_curve_loss(z, presence, curves.focal(2.0), alpha=0.25) + mirror_mse_loss(z, label)
                + curve_loss(z, label, curves.normal(), match_norm=True)
                + mirror_mse_loss(z, label, bonus=False) + mirror_mse_loss(z, soft, bonus=False)
                + (mirror_mse_loss(z, soft, reduction="none") * upstream).sum()
                + mirror_mse_loss(z, label, link="sigmoid") + mirror_mse_loss(z, soft, bonus=False, link="sigmoid"))

    results = []
    for function in (losses, compiled(losses)):
        z = logits.clone().requires_grad_()
        value = function(z)
        results.append((value.detach(), torch.autograd.grad(value, z)[0]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_compiled_vmap_of_grad_and_grad_of_vmap_are_the_same(smoothing):
    logits, label = batch()

    def row(z, y):
        return curve_loss(z, y, curves.conservative(), label_smoothing=smoothing)

    for function in (lambda z: vmap(grad(row))(z, label), lambda z: grad(lambda z: vmap(row)(z, label).sum())(z)):
        torch.testing.assert_close(compiled(function)(logits), function(logits), rtol=1e-13, atol=1e-14)


def test_compiled_with_changing_batch_sizes_and_smoothing_stays_right():
    function = compiled(lambda z, t, s: curve_loss(z, t, curves.conservative(), label_smoothing=s), dynamic=True)
    for rows, smoothing in ((4, 0.0), (7, 0.1), (9, 0.25)):
        z, t = torch.randn(rows, CLASSES), torch.randint(CLASSES, (rows,))
        torch.testing.assert_close(function(z, t, smoothing), curve_loss(z, t, curves.conservative(),
                                                                         label_smoothing=smoothing))


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
@pytest.mark.parametrize("shape", [(CLASSES,), (1, CLASSES), (1, 1)], ids=str)
def test_buffers_fit_logits_whose_numbers_of_rows_and_classes_the_compiler_leaves_open(name, shape):
    loss = SigmoidCurveLoss(curves.focal(), **{name: torch.linspace(0.5, 1.5, CLASSES)[:shape[-1]].expand(shape)})
    function = compiled(loss, dynamic=True)
    for rows in (4, 7, 1, 0):
        z, t = torch.randn(rows, CLASSES), torch.rand(rows, CLASSES)
        torch.testing.assert_close(function(z, t), loss(z, t), equal_nan=True)


@pytest.mark.parametrize("kind", ["smoothed", "two losses", "sigmoid"])
@pytest.mark.parametrize("make", [curves.focal, curves.encouraging])
def test_compiled_losses_follow_a_schedule_of_their_curve(make, kind):
    logits, label = batch()
    loss = CurveLoss(make(), label_smoothing=0.1 if kind == "smoothed" else 0.0)

    def losses(z):
        if kind == "sigmoid":
            return sigmoid_curve_loss(z, label, loss.curve)
        return loss(z, label) + (loss(2 * z, label) if kind == "two losses" else 0.0)

    function = compiled(losses)
    for number in (0.5, 0.625, 0.75):
        loss.curve = make(number)
        results = []
        for each in (losses, function):
            z = logits.clone().requires_grad_()
            value = each(z)
            results.append((value.detach(), torch.autograd.grad(value, z)[0]))
        torch.testing.assert_close(results[1], results[0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("make", [curves.focal, curves.power, curves.poly])
def test_a_smoothed_loss_is_not_compiled_anew_for_each_value_of_a_schedule(make):
    logits, label = batch()
    counter = CompileCounterWithBackend("aot_eager")
    function = compiled(lambda z, number: curve_loss(z, label, make(number), label_smoothing=0.1), counter)
    for number in (0.5, 1.0, 1.5, 2.5, 3.0, 3.5):
        z = logits.clone().requires_grad_()
        value = function(z, number)
        again = curve_loss(z, label, make(number), label_smoothing=0.1)
        torch.testing.assert_close(value, again, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(torch.autograd.grad(value, z), torch.autograd.grad(again, z), rtol=1e-12, atol=1e-14)
    assert counter.frame_count == 2  # for the first number, and for any number


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_to_machine_code_values_and_gradients_are_the_same(dtype):
    logits, label = batch()
    logits = logits.to(dtype)

    def losses(z, t):  # in one of the types smoothed: each compiles for many seconds
        return curve_loss(z, t, curves.conservative(), label_smoothing=0.1 if dtype == torch.bfloat16 else 0.0)

    results = []
    for function in (losses, compiled(losses, "inductor")):
        z = logits.clone().requires_grad_()
        value = function(z, label)
        results.append((value.detach(), torch.autograd.grad(value, z)[0]))
    torch.testing.assert_close(results[1], results[0], rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("where", ["compiled", "vmap"])
def test_where_the_host_cannot_look_a_label_out_of_range_is_still_no_number(where):
    logits, label = torch.zeros(2, 3), torch.tensor([0, 3])
    loss = {"compiled": compiled(lambda z, t: curve_loss(z, t, curves.normal())),
            "vmap": vmap(lambda z, t: curve_loss(z, t, curves.normal()))}[where]
    with pytest.raises((IndexError, RuntimeError)):
        loss(logits, label)
