"""How the kernels are launched, and sums that are made in kernels although the gradient is made later."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl

from encouraging import curve_loss, curves
from encouraging.ops.triton import cached_launch, hard_loss, launch, matching, sums, use_tiling
from kernel_cases import CLASSES, MARKS, STREAMED, ULP, draw, row_error

pytestmark = MARKS
EL = curves.conservative(0.75)


@pytest.fixture(autouse=True)
def _device_0_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton's interpreter is not in use")
def test_every_launch_puts_the_language_of_triton_back() -> None:
    """Also with ``quick_interpreter``, which replaces it once per launch and not at every call in a kernel."""
    logits, target = draw(5, seed=1)
    for smoothing in (0.0, 0.1):
        originals = tl.load, tl.tensor.__add__, tl.math.exp
        before = hard_loss(logits, target, EL, label_smoothing=smoothing)
        assert (tl.load, tl.tensor.__add__, tl.math.exp) == originals
        assert torch.equal(hard_loss(logits, target, EL, label_smoothing=smoothing), before)


class _Recorder:
    """Stands for a kernel of Triton: counts launches, and returns what a launch by Triton returns."""

    __name__, arg_names = "recorder", ("x", "n", "BLOCK")

    def __init__(self) -> None:
        self.public: list[tuple[object, ...]] = []
        self.direct: list[tuple[object, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> object:
        def run(*arguments: object, **constants: object) -> _Recorder:
            self.public.append((grid, *arguments, *constants.values()))
            return self
        return run

    function, packed_metadata = "function", "metadata"

    def run(self, *arguments: object) -> None:
        self.direct.append(arguments)


@pytest.mark.parametrize("tested", [True, False])
def test_only_tested_versions_of_triton_are_launched_directly(tested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_launch, "_is_tested", tested)
    monkeypatch.setattr(cached_launch, "_compiled", {})
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    x, kernel = torch.zeros(4), _Recorder()
    monkeypatch.setattr(x, "get_device", lambda: 0)
    for number in (3, 3, 4, 3):
        cached_launch.launch(kernel, 2, (x,), (number,), BLOCK=16)
    launches = [((2,), x, number, 16) for number in (3, 4)] if tested else [((2,), x, n, 16) for n in (3, 3, 4, 3)]
    assert [call[2:] for call in kernel.public] == [call[2:] for call in launches]
    direct = (2, 1, 1, 7, "function", "metadata", None, None, None, x.data_ptr(), 3, 16)
    assert kernel.direct == ([direct] * 2 if tested else [])


@pytest.mark.parametrize(("version", "interpreted", "expected"), [
    ("3.6.0", False, True), ("3.6.0", True, False), ("3.7.1", False, False), ("3.60.0", False, False)])
def test_what_the_interpreter_returns_is_not_launched(version: str, interpreted: bool, expected: bool) -> None:
    """It returns nothing, also for tensors on a GPU, which it copies."""
    assert cached_launch._knows(version, interpreted) is expected


class _Loading:
    """A kernel compiled by Triton 3.6: another thread sees ``run`` while what it launches is still being loaded."""

    packed_metadata, _run, function = "metadata", None, None

    def __init__(self) -> None:
        self.launched: list[object] = []

    @property
    def run(self) -> Callable[..., None]:
        if self._run is None:
            self._run = lambda *arguments: self.launched.append(arguments[4])
            time.sleep(0.05)
            self.function = "function"
        return self._run


def test_no_thread_launches_what_another_one_is_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_launch, "_is_tested", True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    compiled, x = _Loading(), torch.zeros(4)

    class Kernel:
        arg_names = ("x", "n", "BLOCK")

        def __getitem__(self, grid: tuple[int]) -> Callable[..., _Loading]:
            def launch(x: torch.Tensor, n: int, *, BLOCK: int) -> _Loading:  # noqa: N803 - as in kernels
                compiled.run(*grid, 1, 1, 0, compiled.function, x, n, BLOCK)
                return compiled
            return launch

    prepared = cached_launch.Prepared(Kernel(), 2, (3,), BLOCK=16)
    threads = [threading.Thread(target=prepared, args=(0, x)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled.launched == ["function"] * 3


@pytest.mark.parametrize(("registers", "warps", "expected"), [
    (64, 8, 528), (65, 8, 396), (80, 8, 396), (81, 8, 264), (184, 8, 132), (64, 16, 264), (40, 16, 396),
    (None, 8, 528)])
def test_a_persistent_kernel_gets_no_more_programs_than_fit(registers: int | None, warps: int, expected: int,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Four, three, two programs and one on each of an H200's multiprocessors; and as asked where nothing is known."""
    h200 = SimpleNamespace(warp_size=32, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048,
                           multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: h200)
    monkeypatch.setattr(cached_launch, "_is_tested", True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    kernel, x = _Recorder(), torch.zeros(4)
    kernel.n_regs, kernel.metadata = registers, SimpleNamespace(num_warps=warps)
    warmed = []

    def run(*arguments: object, warmup: bool = False, **others: object) -> _Recorder:
        (warmed if warmup else kernel.direct).append(arguments)
        return kernel

    monkeypatch.setattr(kernel, "run", run, raising=False)
    most = 264 if (registers, warps) == (64, 16) else 528
    for persistent, programs in ((True, expected), (False, most)):
        prepared = cached_launch.Prepared(kernel, most, (3,), persistent, BLOCK=16)
        for _ in range(2):
            prepared(0, x)
        assert kernel.public.pop() == ((programs,), x, 3, 16)
        assert kernel.direct.pop()[0] == programs
        monkeypatch.setattr(cached_launch, "_compiled", {})
        monkeypatch.setattr(x, "get_device", lambda: 0)
        cached_launch.launch(kernel, most, (x,), (3,), persistent, BLOCK=16)
        assert kernel.public.pop() == ((programs,), x, 3, 16)
    assert len(warmed) == 2


@pytest.mark.parametrize("tested", [True, False])
def test_a_prepared_launch_compiles_once_per_alignment(tested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_launch, "_is_tested", tested)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    kernel, storage = _Recorder(), torch.zeros(9)
    prepared = cached_launch.Prepared(kernel, 2, (3,), BLOCK=16)
    tensors = [storage[:4], storage[4:8], storage[1:5], storage[5:9]]  # two alignments, twice
    for tensor in tensors:
        prepared(0, tensor)
    by_triton = [call[1] for call in kernel.public]
    assert [tensor.data_ptr() for tensor in by_triton] == (
        [tensors[0].data_ptr(), tensors[2].data_ptr()] if tested else [tensor.data_ptr() for tensor in tensors])
    assert [call[:9] + call[10:] for call in kernel.direct] == (
        [(2, 1, 1, 7, "function", "metadata", None, None, None, 3, 16)] * 2 if tested else [])
    assert [call[9] for call in kernel.direct] == (
        [tensors[1].data_ptr(), tensors[3].data_ptr()] if tested else [])
    prepared(-1, tensors[0])  # in the interpreter, always by Triton
    assert len(kernel.public) == (3 if tested else 5)


def test_a_program_that_meets_very_many_sizes_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_launch, "_MOST_REMEMBERED", 3)
    kept = cached_launch.Kept()
    made = [kept.keep(i, cached_launch.Prepared(_Recorder(), i, ())) for i in range(4)]
    assert [kept.get(i) for i in range(4)] == [None, None, None, made[3]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_float16_sums_the_same_as_its_rows(reduction: str, smoothing: float) -> None:
    z, y = draw(12, dtype=torch.float16, seed=5)
    y[3] = -100
    weight = torch.rand(CLASSES) + 0.5
    arguments = {"weight": weight, "label_smoothing": smoothing}
    each = z.clone().requires_grad_()
    rows = hard_loss(each, y, EL, reduction="none", **arguments)
    divisor = weight[y[y >= 0]].sum() if reduction == "mean" else 1.0
    (rows.sum() / divisor).backward()
    leaf = z.clone().requires_grad_()
    loss = hard_loss(leaf, y, EL, reduction=reduction, **arguments)
    torch.testing.assert_close(loss, rows.detach().sum() / divisor, rtol=8 * ULP, atol=0)
    several = torch.autograd.grad(loss, leaf, torch.tensor([1.0, 2.0]), retain_graph=True, is_grads_batched=True)[0]
    gradient, = torch.autograd.grad(loss, leaf, retain_graph=True)
    torch.testing.assert_close(gradient, each.grad, rtol=2.0**-10, atol=6e-8)
    torch.testing.assert_close(several[1], 2 * gradient, rtol=2.0**-9, atol=1.2e-7)
    assert (gradient[3] == 0).all()
    once, = torch.autograd.grad(loss, leaf, create_graph=True)
    once.float().square().sum().backward()
    assert leaf.grad.isfinite().all()
    ignored = hard_loss(z.clone().requires_grad_(), torch.full_like(y, -100), EL, reduction=reduction)
    assert ignored.isnan() if reduction == "mean" else ignored == 0


@pytest.mark.parametrize("ending", ["the last program", "in order", "a launch of its own"])
@pytest.mark.parametrize("way", [{"match_norm": True}, {"match_norm": True, "reduction": "sum"}, {},
                                 {"label_smoothing": 0.1}, {"reduction": "none"}], ids=str)
def test_fewer_programs_of_a_persistent_kernel_change_nothing(way: dict[str, object], ending: str,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """One program, where the kernel takes so many registers that no more fit: nobody waits for the shares of others, or
    reads them."""
    monkeypatch.setattr(sums, "MOST_ARRIVALS", sums.MOST_ARRIVALS if ending == "the last program" else 0)
    monkeypatch.setattr(sums, "in_order_from", 1 if ending == "in order" else math.inf)
    for module in (sums, launch, matching):
        for name, kept in vars(module).items():
            if isinstance(kept, sums.Kept):
                monkeypatch.setattr(module, name, sums.Kept())
    launched = cached_launch.Prepared.__call__

    def as_few_as_possible(self: cached_launch.Prepared, device: int, *tensors: torch.Tensor | None) -> None:
        if self._persistent:
            self._kernel[(1,)](*tensors, *self._numbers, **self._constants)
        else:
            launched(self, device, *tensors)

    monkeypatch.setattr(cached_launch.Prepared, "__call__", as_few_as_possible)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **kind: empty(*size, **kind).fill_(1e3))
    (logits, target), results = draw(5, seed=1), []
    for dtype, impl in ((torch.float32, "triton"), (torch.float64, "reference")):
        leaf = logits.detach().to(dtype).requires_grad_()
        with use_tiling(STREAMED):
            loss = curve_loss(leaf, target, EL, impl=impl, **way)
            loss.backward(torch.full_like(loss, 0.75))
        results.append((loss.detach().double(), leaf.grad))
    (loss, gradient), (expected, slope) = results
    torch.testing.assert_close(loss, expected, rtol=64 * ULP, atol=8 * ULP)
    assert row_error(gradient, slope).max() <= 128 * ULP
