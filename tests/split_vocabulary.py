"""What the ranks of ``ops/test_parallel.py`` do: the loss over a split vocabulary against the unsplit definition.

Every case runs once in a world of two and once in a world of four, and each process writes down how it went.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from encouraging import curve_loss, curves, loss_divisor, parallel_curve_loss
from encouraging.engine.distributed import leave
from encouraging.errors import ArgumentError
from plain_formula import CURVES, plain_loss
from split_logits import draw, split
from split_refusals import (
    a_split_with_holes_is_an_error_on_every_rank,
    a_wrong_label_is_an_error_on_every_rank,
    second_derivatives_and_transforms_are_refused,
    weights_that_need_a_gradient_are_refused,
)


def compare(logits: Tensor, target: Tensor, curve: curves.Curve, *, uneven: bool = False, weight: Tensor | None = None,
            tolerance: float = 1e-12, **arguments) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    start, end = split(logits.shape[1], world, uneven)[rank]
    local = logits[:, start:end].clone().requires_grad_()
    loss = parallel_curve_loss(local, target, curve, weight=None if weight is None else weight[start:end],
                               class_offset=start if uneven else None, **arguments)
    whole = logits.double().requires_grad_()
    names = {"label_smoothing": "smoothing"}
    expected = plain_loss(whole, target, curve, weight, **{names.get(k, k): v for k, v in arguments.items()})
    assert loss.dtype == logits.dtype
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    torch.testing.assert_close(loss.double(), expected, rtol=0, atol=tolerance * scale, equal_nan=True)
    (gradient,) = torch.autograd.grad(loss, local, upstream.to(loss.dtype))
    (whole_gradient,) = torch.autograd.grad(expected, whole, upstream.to(loss.dtype).double())
    size = whole_gradient.abs().max().item() if whole_gradient.numel() else 1.0
    torch.testing.assert_close(gradient.double(), whole_gradient[:, start:end], rtol=tolerance, atol=tolerance * size)


def every_curve_and_argument() -> None:
    seeds = itertools.count()
    for curve, smoothing, reduction in itertools.product(CURVES, (0.0, 0.15), ("none", "mean", "sum")):
        logits, target = draw(seed := next(seeds))
        target[3::4] = 7
        weight = torch.rand(12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
        compare(logits, target, curve, reduction=reduction, label_smoothing=smoothing, ignore_index=7,
                uneven=seed % 2 == 1, weight=weight if seed % 4 < 2 else None, tolerance=1e-9)


def all_smoothing() -> None:
    logits, target = draw(50)
    compare(logits, target, curves.conservative(), label_smoothing=1.0, tolerance=1e-9)


def exact_at_any_confidence() -> None:
    """Rivals' gradients keep their relative accuracy where 1 - p would be 0."""
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 3e-5)):
        logits, target = draw(100, dtype=dtype)
        logits[torch.arange(23), target] += 40
        start, end = split(12, dist.get_world_size(), False)[dist.get_rank()]
        for smoothing in (0.0, 0.1):
            local = logits[:, start:end].clone().requires_grad_()
            whole = logits.to(torch.float64, copy=True).requires_grad_()
            for curve in (curves.normal(0.0), curves.cross_entropy()):
                parallel_curve_loss(local, target, curve, reduction="sum", label_smoothing=smoothing).backward()
                plain_loss(whole, target, curve, reduction="sum", smoothing=smoothing).backward()
                torch.testing.assert_close(local.grad.double(), whole.grad[:, start:end], rtol=tolerance,
                                           atol=1e-300 if smoothing == 0 else tolerance)
                local.grad = whole.grad = None


def low_precision_is_as_good_as_torchs_own() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        logits, target = draw(7, rows=64, classes=40)
        logits = (logits + 100).to(dtype)  # what all classes share must cost no accuracy
        start, end = split(40, world, False)[rank]
        torch_logits, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
        local = logits[:, start:end].clone().requires_grad_()
        F.cross_entropy(torch_logits, target, reduction="sum").backward()
        F.cross_entropy(exact, target, reduction="sum").backward()
        loss = parallel_curve_loss(local, target, curves.cross_entropy(), reduction="sum")
        loss.backward()
        assert loss.dtype == local.grad.dtype == dtype
        ours = (local.grad.double() - exact.grad[:, start:end]).abs().max()
        theirs = (torch_logits.grad.double() - exact.grad).abs().max()
        assert ours <= theirs * 1.01, (dtype, ours, theirs)
        for smoothing in (0.0, 0.1):
            compare(logits, target, curves.conservative(), reduction="none", label_smoothing=smoothing,
                    tolerance=4 * torch.finfo(dtype).eps)


def nothing_to_learn() -> None:
    for smoothing, reduction in itertools.product((0.0, 0.1), ("none", "mean", "sum")):
        arguments = {"reduction": reduction, "label_smoothing": smoothing}
        local = torch.full((4, 3), torch.nan, requires_grad=True)
        loss = parallel_curve_loss(local, torch.full((4,), -100), curves.normal(), **arguments)
        assert loss.isnan() if reduction == "mean" else (loss == 0).all()
        loss.sum().backward()
        assert (local.grad == 0).all()
        empty = torch.zeros(0, 3, requires_grad=True)
        loss = parallel_curve_loss(empty, torch.zeros(0, dtype=torch.long), curves.normal(), **arguments)
        assert loss.isnan() if reduction == "mean" else (loss == 0).all()
        loss.sum().backward()
        assert empty.grad.shape == (0, 3)


def ranks_agree_to_the_last_bit() -> None:
    logits, target = draw(11, rows=200, classes=64, dtype=torch.float32)
    start, end = split(64, dist.get_world_size(), False)[dist.get_rank()]
    for smoothing in (0.0, 0.1):
        loss = parallel_curve_loss(logits[:, start:end], target, curves.normal(), label_smoothing=smoothing,
                                   reduction="none")
        everyone = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, loss)
        assert all(torch.equal(loss, other) for other in everyone)


def classes_ruled_out_by_minus_infinity() -> None:
    logits, target = draw(12)
    logits[:, 0] = -torch.inf
    target[target == 0] = 1
    logits[5, target[5] + 1 if target[5] < 11 else 1] = -torch.inf
    compare(logits, target, curves.normal())
    alone = torch.full((1, 4), -torch.inf, dtype=torch.float64)  # the label is all there is
    if dist.get_rank() == 1:
        alone[0, 2] = 1.5
    alone.requires_grad_()
    parallel_curve_loss(alone, torch.tensor([6]), curves.cross_entropy()).backward()
    assert (alone.grad == 0).all()


def parts_with_a_divisor_add_up() -> None:
    logits, target = draw(9)
    target[5:17] = -100
    start, end = split(12, dist.get_world_size(), True)[dist.get_rank()]
    weight = torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    local = logits[:, start:end].clone().requires_grad_()
    arguments = {"weight": weight[start:end], "label_smoothing": 0.1, "class_offset": start}
    whole = parallel_curve_loss(local, target, curves.conservative(), **arguments)
    divisor = loss_divisor(target, weight)
    parts = [parallel_curve_loss(local[rows], target[rows], curves.conservative(), divisor=divisor, **arguments)
             for rows in (slice(0, 7), slice(7, 23))]
    torch.testing.assert_close(sum(parts), whole)
    torch.testing.assert_close(*(torch.autograd.grad(loss, local)[0] for loss in (sum(parts), whole)))


def leading_dimensions() -> None:
    logits, target = draw(13, rows=24)
    start, end = split(12, dist.get_world_size(), False)[dist.get_rank()]
    flat = parallel_curve_loss(logits[:, start:end], target, curves.normal(), reduction="none")
    cube = parallel_curve_loss(logits[:, start:end].reshape(2, 3, 4, -1), target.reshape(2, 3, 4), curves.normal(),
                               reduction="none")
    assert torch.equal(flat.reshape(2, 3, 4), cube)
    strided = logits.T.contiguous().T[:, start:end]
    assert torch.equal(flat, parallel_curve_loss(strided, target, curves.normal(), reduction="none"))


def collectives_are_few() -> None:
    from torch.distributed.tensor.debug import CommDebugMode

    local = torch.randn(4, 3, requires_grad=True)
    for smoothing, weight in itertools.product((0.0, 0.1), (None, torch.rand(3))):
        with CommDebugMode() as forward:
            loss = parallel_curve_loss(local, torch.tensor([0, 1, 2, 3]), curves.normal(), weight=weight,
                                       label_smoothing=smoothing)
        assert forward.get_total_counts() == (2 if smoothing else 1)
        with CommDebugMode() as backward:
            loss.backward()
        assert backward.get_total_counts() == 0


def a_retained_graph_gives_the_same_again() -> None:
    local, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 3])
    loss = parallel_curve_loss(local, target, curves.conservative(), label_smoothing=0.1)
    (once,) = torch.autograd.grad(loss, local, retain_graph=True)
    (again,) = torch.autograd.grad(loss, local, torch.tensor(3.0))
    torch.testing.assert_close(3 * once, again)


def groups_within_the_world() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    logits, target = draw(20 + rank // 2, classes=6)  # every pair has its own batch
    local = logits[:, 3 * (rank % 2):][:, :3].clone().requires_grad_()
    whole = logits.clone().requires_grad_()
    loss = parallel_curve_loss(local, target, curves.normal(), pairs[rank // 2], label_smoothing=0.1)
    expected = plain_loss(whole, target, curves.normal(), smoothing=0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*torch.autograd.grad(loss, local),
                               torch.autograd.grad(expected, whole)[0][:, 3 * (rank % 2):][:, :3])


def dtensors() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for seed, (classes, smoothing, dim) in enumerate(itertools.product((12, 7, 5, 3), (0.0, 0.2), (-1, 1))):
        logits, target = draw(30 + seed, classes=classes)
        weight = torch.rand(classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        whole = logits.clone().requires_grad_()
        sharded = distribute_tensor(logits, mesh, [Shard(dim)]).requires_grad_()
        loss = parallel_curve_loss(sharded, distribute_tensor(target, mesh, [Replicate()]), curves.conservative(),
                                   weight=distribute_tensor(weight, mesh, [Shard(0)]), label_smoothing=smoothing)
        expected = plain_loss(whole, target, curves.conservative(), weight, smoothing=smoothing)
        torch.testing.assert_close(loss, expected)
        # As the gradient arrives: torch 2.11 gathers that of a leaf whose shards are uneven.
        placed: list[tuple[object, ...]] = []
        sharded.register_hook(lambda gradient, placed=placed: placed.append(gradient.placements))
        (2 * loss).backward()
        (2 * expected).backward()
        assert placed == [sharded.placements]
        assert sharded.grad.shape == (23, classes)
        torch.testing.assert_close(sharded.grad.full_tensor(), whole.grad)
        torch.testing.assert_close(curve_loss(sharded, target, curves.conservative(), label_smoothing=smoothing),
                                   plain_loss(logits, target, curves.conservative(), smoothing=smoothing))
    logits, target = draw(60)
    for placement in (Shard(0), Replicate()):
        with pytest.raises(ArgumentError, match="to_local"):
            curve_loss(distribute_tensor(logits, mesh, [placement]), target, curves.normal())
    for placement in (Shard(0), Replicate()):
        with pytest.raises(ArgumentError, match="Shard"):
            parallel_curve_loss(distribute_tensor(logits, mesh, [placement]), target, curves.normal())
    if dist.get_world_size() == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "classes"))
        sharded = distribute_tensor(logits, mesh, [Replicate(), Shard(1)]).requires_grad_()
        loss = parallel_curve_loss(sharded, target, curves.normal())
        torch.testing.assert_close(loss, plain_loss(logits, target, curves.normal()))
        loss.backward()
        whole = logits.requires_grad_()
        plain_loss(whole, target, curves.normal()).backward()
        torch.testing.assert_close(sharded.grad.full_tensor(), whole.grad)


def labels_of_a_byte() -> None:
    """In uint8, -100 is the label 156, and 300 classes are 44."""
    logits, target = draw(71, classes=300)
    target = target.clamp(max=255)
    target[:2] = 156
    start, end = split(300, dist.get_world_size(), False)[dist.get_rank()]
    expected = plain_loss(logits, target, curves.normal())
    ours = parallel_curve_loss(logits[:, start:end], target.to(torch.uint8), curves.normal())
    torch.testing.assert_close(ours, expected)


def losses_may_be_changed_in_place() -> None:
    logits, target = draw(73)
    start, end = split(12, dist.get_world_size(), False)[dist.get_rank()]
    local = logits[:, start:end].clone().requires_grad_()
    for smoothing in (0.0, 0.1):
        losses = parallel_curve_loss(local, target, curves.normal(), reduction="none", label_smoothing=smoothing)
        expected = torch.autograd.grad(losses.sum() / 2, local, retain_graph=True)
        losses /= 2
        torch.testing.assert_close(torch.autograd.grad(losses.sum(), local), expected)


def compiled_in_one_graph() -> None:
    if dist.get_world_size() > 2:
        return  # each rank traces for itself, and that takes seconds
    logits, target = draw(70)
    start, end = split(12, dist.get_world_size(), False)[dist.get_rank()]
    for smoothing in (0.0, 0.1):
        local = logits[:, start:end].clone().requires_grad_()

        def loss(z: Tensor, smoothing: float = smoothing) -> Tensor:
            return parallel_curve_loss(2 * z, target, curves.conservative(), label_smoothing=smoothing)

        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)(local)
        torch.testing.assert_close(compiled, loss(local))
        torch.testing.assert_close(torch.autograd.grad(compiled, local), torch.autograd.grad(loss(local), local))


CASES = [every_curve_and_argument, all_smoothing, exact_at_any_confidence, low_precision_is_as_good_as_torchs_own,
         nothing_to_learn, ranks_agree_to_the_last_bit, classes_ruled_out_by_minus_infinity, leading_dimensions,
         parts_with_a_divisor_add_up,
         a_wrong_label_is_an_error_on_every_rank, a_split_with_holes_is_an_error_on_every_rank, collectives_are_few,
         second_derivatives_and_transforms_are_refused, a_retained_graph_gives_the_same_again,
         groups_within_the_world, dtensors, labels_of_a_byte,
         weights_that_need_a_gradient_are_refused, losses_may_be_changed_in_place, compiled_in_one_graph]


def run_rank(rank: int, world: int, folder: Path) -> None:
    with (folder / f"stderr{rank}").open("w") as errors:
        os.dup2(errors.fileno(), 2)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=30))
    for case in CASES:
        try:
            case()
            outcome = "passed"
        except BaseException:
            outcome = traceback.format_exc()[-3000:]
        with (folder / f"rank{rank}.jsonl").open("a") as file:
            file.write(json.dumps([case.__name__, outcome]) + "\n")
    leave()
