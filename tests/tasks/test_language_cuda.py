"""On a GPU: a language model is recorded in CUDA graphs, learns the same without them, and writes as on a CPU."""

from __future__ import annotations

import io
import json

import pytest
import torch

from encouraging.commands.generate import write_text
from encouraging.engine import RunDir, RunSpec, execute
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from language_toys import RECIPE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
CUDA = torch.device("cuda")


def run(folder, arm, *words):
    path = folder / "lines.toml"
    folder.mkdir()
    path.write_text(RECIPE)
    recipe = read_recipe(path, ["model_options.dropout=0", "train.epochs=12", *words])
    spec = recipe.task_spec(arm, 0, CUDA)
    final = execute(RunSpec(lambda: build_task("language", spec), spec.stages, RunDir(folder / "run"),
                            recipe.config(arm, 0), 0, CUDA, about=recipe.about_runs(arm)))
    return final, json.loads((folder / "run" / "timing.json").read_text())["cuda_graph"]


@pytest.mark.parametrize(("arm", "precision"), [("ce", "tf32"), ("el", "fp32"), ("el", "bf16"), ("el_1", "bf16")])
def test_recorded_updates_teach_what_eager_ones_teach(tmp_path, arm, precision):
    recorded, how = run(tmp_path / "graph", arm, f"train.precision={precision}")
    eager, _ = run(tmp_path / "eager", arm, f"train.precision={precision}", "train.cuda_graph=false")
    assert how == "recorded"
    tolerance = 0.1 if precision == "bf16" else 0.02
    for name in ("train_loss", "test_loss", "bits"):
        assert recorded[name] == pytest.approx(eager[name], rel=tolerance, abs=tolerance), name


def test_a_gpu_writes_as_a_cpu_does(tmp_path):
    run(tmp_path / "run", "el")
    texts = []
    for device in ("cuda", "cpu"):
        out = io.StringIO()
        write_text(tmp_path / "run" / "run", "abc", length=60, device=device, out=out)
        texts.append(out.getvalue())
    assert texts[0] == texts[1]
