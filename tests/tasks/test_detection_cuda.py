"""On a GPU: a detector learns what it learns on a CPU, with images that stay on the GPU or come from workers."""

from __future__ import annotations

import pytest
import torch

from box_toys import write_recipe
from encouraging.data import Clock
from encouraging.engine import RunDir, RunSpec, execute
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def run(folder, arm, device, *words):
    recipe = read_recipe(write_recipe(folder), words)
    spec = recipe.task_spec(arm, 0, torch.device(device))
    return execute(RunSpec(lambda: build_task("detection", spec), spec.stages, RunDir(folder / "run"),
                           recipe.config(arm, 0), 0, spec.device, about=recipe.about_runs(arm)))


@pytest.mark.parametrize(("arm", "precision", "workers", "tolerance"), [
    ("focal", "fp32", 0, 0.05), ("halted", "fp32", 2, 0.05), ("halted_logit", "fp32", 0, 0.05),
    ("halted_logit", "bf16", 0, 0.15)])
def test_a_gpu_learns_what_a_cpu_learns(tmp_path, arm, precision, workers, tolerance):
    """One epoch: the pixels of resized images are rounded in different places, and the two drift apart later."""
    finals = []
    for device in ("cpu", "cuda"):
        (tmp_path / device).mkdir()
        words = ("train.epochs=1", f"train.precision={precision}", f"train.workers={workers}")
        finals.append(run(tmp_path / device, arm, device, *words))
    for name in ("train_loss", "classification_loss", "box_loss"):
        assert finals[1][name] == pytest.approx(finals[0][name], rel=tolerance)


def test_images_stay_on_the_gpu_and_are_transformed_there(tmp_path):
    spec = read_recipe(write_recipe(tmp_path)).task_spec("focal", 0, torch.device("cuda"))
    source = build_task("detection", spec).source(1)
    batch = next(source.batches(Clock(1, 1, 0), 0, 0, 1))
    assert all(image.is_cuda and image.dtype == torch.float32 for image in batch.images)
    assert all(pixels.is_cuda for pixels in source.reader.examples._pixels.values())
