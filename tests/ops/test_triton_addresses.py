"""Launches by address, and launches worked out before: what must not be taken for the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

pytest.importorskip("triton")

from encouraging import curve_loss, curve_loss_and_gradient_, curves
from encouraging.errors import ArgumentError
from encouraging.ops import repeat
from encouraging.ops.triton import autograd, cached_launch, sums
from encouraging.ops.triton.functions import divisor_of
from encouraging.ops.triton.upstream import mean_factor
from kernel_cases import MARKS, draw

pytestmark = MARKS
EL = curves.conservative(0.75)
META = torch.device("meta")  # stands for a device that is not that of the divisor


@pytest.mark.parametrize("divisor", [torch.tensor(5), torch.tensor(5.0, dtype=torch.float64), 5.0])
def test_a_divisor_comes_to_the_logits_device_as_float32(divisor: float | Tensor) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        found = [divisor_of(divisor, META)]
        if isinstance(divisor, Tensor):
            found.append(mean_factor(8, "mean", divisor, META)[1])
    finally:
        torch.set_default_dtype(before)
    assert all((each.device.type, each.dtype, each.shape) == ("meta", torch.float32, (1,)) for each in found)


def test_an_upstream_gradient_elsewhere_is_refused() -> None:
    z, y = draw(4)
    with pytest.raises(ArgumentError, match="upstream on meta"):
        curve_loss_and_gradient_(z, y, EL, upstream=torch.ones(4, device=META), impl="triton")


def test_a_backward_pass_sees_how_saved_logits_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks on saved tensors give back copies, which lie differently from the logits of the forward pass."""
    monkeypatch.setattr(autograd, "few_bytes", 16 << 20)
    repeat.forget()
    z, y = draw(12, seed=8)
    wide = torch.cat([z, z.roll(1)], 1)
    gradients = []
    for hooked in (True, True, False, False, True):
        leaf = wide.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: tensor.clone(memory_format=torch.contiguous_format) if hooked else tensor,  # noqa: B023
                lambda tensor: tensor):
            loss = curve_loss(leaf[:, :z.shape[1]], y, EL, impl="triton")
        loss.backward()
        gradients.append(leaf.grad)
    assert len(repeat._remembered) == 1
    assert all(torch.equal(gradients[0], each) for each in gradients[1:])


class _Known:
    """A launcher of Triton 3.6 for CUDA."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid, launch_pdl = False, True

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def launch(self, *arguments: Any) -> None:
        self.calls.append(("bare", *arguments))

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, *args: Any) -> None:
        self.calls.append(("whole", grid_x, grid_y, grid_z, stream, function, *args))


class _Unknown(_Known):
    """A launcher whose compiled function takes its arguments in another order, as that of Triton 3.7."""

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, kernel_metadata: Any,
                 launch_metadata: Any, enter_hook: Any, exit_hook: Any, *args: Any) -> None:
        super().__call__(grid_x, grid_y, grid_z, stream, function, kernel_metadata, launch_metadata, enter_hook,
                         exit_hook, *args)


class _NeedsMemory(_Known):
    global_scratch_size = 128


@pytest.mark.parametrize("launcher", [_Known(), _Unknown(), _NeedsMemory()])
def test_only_a_launcher_of_the_known_form_is_passed_by(launcher: _Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    compiled = SimpleNamespace(run=launcher, function="function", packed_metadata="metadata")
    cached_launch._Ready(compiled, 3, (5, 16))(0, [1024, None])
    whole = ("whole", 3, 1, 1, 7, "function", "metadata", None, None, None, 1024, None, 5, 16)
    bare = ("bare", 3, 1, 1, 7, "function", False, True, None, None, "metadata", None, None, None, 1024, None, 5, 16)
    assert launcher.calls == [bare if type(launcher) is _Known else whole]


def test_a_tensor_of_another_device_is_another_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that Triton, which looks at tensors, refuses it."""
    monkeypatch.setattr(cached_launch, "_is_tested", True)
    monkeypatch.setattr(cached_launch, "_compiled", {})
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    seen = []
    monkeypatch.setattr(cached_launch, "_compile_and_launch",
                        lambda kernel, programs, tensors, *_: seen.append(tensors[1]) or (lambda *_: None))
    x, near, far = torch.zeros(4), torch.zeros(1), torch.zeros(1)
    for tensor, device in ((x, 0), (near, 0), (far, -1)):
        monkeypatch.setattr(tensor, "get_device", lambda device=device: device)
    for divisor in (near, near, far):
        cached_launch.launch(SimpleNamespace(__name__="kernel"), 1, (x, divisor), ())
    assert [each is far for each in seen] == [False, True]


def test_capturing_is_asked_of_the_device_that_is_launched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [0]

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            self.before, current[0] = current[0], self.index

        def __exit__(self, *_: object) -> None:
            current[0] = self.before

    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current[0] == 1)
    assert [cached_launch.is_captured(device) for device in (-1, 0, 1)] == [False, False, True]
    assert current == [0]


def test_a_captured_graph_has_a_workspace_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(1)
    usual = sums.workspace(x)
    assert sums.workspace(x) is usual
    monkeypatch.setattr(sums, "is_captured", lambda device: True)
    own = [sums.workspace(x) for _ in range(2)]
    assert len({each.counter.data_ptr() for each in (usual, *own)}) == 3
    monkeypatch.undo()
    assert sums.workspace(x) is usual


def test_a_workspace_made_in_inference_mode_is_an_ordinary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_workspaces", {})
    with torch.inference_mode():
        made = sums.workspace(torch.zeros(1))
    assert not made.shares.is_inference()
    assert not made.counter.is_inference()


def test_a_workspace_without_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_workspaces", {})
    x = torch.zeros(1)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(sums.workspace(x).counter, FakeTensor)
    assert int(sums.workspace(x).counter) == 0


def test_logits_that_change_before_the_backward_pass_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "few_bytes", 16 << 20)
    z, y = draw(12, seed=9)
    own = curves.custom(lambda gap: -gap, torch.ones_like)
    for curve in (EL, EL, own):  # the second time by what was remembered
        logits = 1 * z.clone().requires_grad_()
        loss = curve_loss(logits, y, curve, impl="triton")
        logits.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_compute_a_repeated_loss_again(reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "few_bytes", 16 << 20)
    repeat.forget()  # the first forward pass is the first call, and its repetition is not
    z, y = draw(12, seed=10)
    gradients = []
    for _ in range(2):
        leaf = z.clone().requires_grad_()
        torch.utils.checkpoint.checkpoint(lambda x: curve_loss(2 * x, y, EL, impl="triton"), leaf,
                                          use_reentrant=reentrant).backward()
        gradients.append(leaf.grad)
    leaf = z.clone().requires_grad_()
    curve_loss(2 * leaf, y, EL, impl="triton").backward()
    assert all(torch.equal(leaf.grad, each) for each in gradients)


def test_twice_through_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "few_bytes", 16 << 20)
    z, y = draw(12, seed=11)
    leaf = z.clone().requires_grad_()
    loss = curve_loss(leaf, y, EL, impl="triton")
    loss.backward(retain_graph=True)
    once = leaf.grad.clone()
    loss.backward()
    assert torch.equal(leaf.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
