"""On a GPU: images from files arrive whole while the GPU computes, and updates on them are recorded."""

from __future__ import annotations

import pytest
import torch

from encouraging.data import Clock
from encouraging.engine import Train
from encouraging.engine.distributed import World
from encouraging.engine.settings import StagePlan
from encouraging.engine.train import Hooks, Log, Position, Trainer
from encouraging.tasks import ObjectiveConfig, StageSpec, TaskSpec, build_task
from tiny_files import write_imagenet

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def task_of(root, device, **train):
    whole = Train(**{"epochs": 6, "lr": 0.01, "batch_size": 6, "workers": 2, **train})
    stage = StageSpec(whole, objective=ObjectiveConfig())
    return build_task("image_files", TaskSpec("imagenet", "resnet20", (stage,), 0, torch.device(device), root=root,
                                              options={"train_size": 64, "test_resize": 73, "erase": 0.5}))


@pytest.mark.parametrize("kept", [1, 3])
def test_batches_are_those_of_the_cpu_however_late_the_gpu_reads_them(tmp_path, kept):
    write_imagenet(tmp_path)
    ours, theirs = (task_of(tmp_path, device).source(1) for device in ("cuda", "cpu"))
    busy = torch.randn(4096, 4096, device="cuda")
    group, sums, expected = [], [], []
    for epoch in range(1, 6):
        for batch, other in zip(ours.batches(Clock(1, epoch), 0, 0, 1), theirs.batches(Clock(1, epoch), 0, 0, 1),
                                strict=True):
            group.append(batch)
            expected.append(other)
            if len(group) == kept:  # as with accumulated gradients, the batches are used together, and late
                for _ in range(20):
                    busy = busy @ busy / busy.norm()
                sums += [tuple(tensor.clone() for tensor in each) for each in group]
                group = []
    for mine, other in zip(sums, expected, strict=False):
        assert all(torch.equal(a.cpu(), b) for a, b in zip(mine, other, strict=True))


def test_memory_on_the_gpu_does_not_grow_with_what_is_loaded_ahead(tmp_path):
    write_imagenet(tmp_path)
    source = task_of(tmp_path, "cuda").source(1)
    busy = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    before, size = torch.cuda.memory_allocated(), 0
    torch.cuda.reset_peak_memory_stats()
    for epoch in range(1, 6):
        for images, *_ in source.batches(Clock(1, epoch), 0, 0, 1):
            torch.mm(busy, busy, out=torch.empty_like(busy))
            size = max(size, images.numel())
    assert torch.cuda.max_memory_allocated() - before < 2 * busy.nbytes + 12 * size + 2**20


def test_an_update_on_images_from_files_is_recorded(tmp_path):
    write_imagenet(tmp_path, broken=False)
    task = task_of(tmp_path, "cuda", batch_size=5, epochs=3)
    hooks = Hooks(saver=lambda *_: None, on_epoch=lambda *_: None, stop=lambda: None)
    trainer = Trainer(task, task.build(), StagePlan(task.spec.stages[0].train), Position(), Log(), hooks, World(),
                      torch.device("cuda"), 0)
    trainer.run()
    assert trainer.replay.reason is None
    assert len(trainer.replay.graphs) == 1
