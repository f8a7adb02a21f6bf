"""On a GPU: translation is recorded in CUDA graphs, learns the same without them, and translates as a CPU does."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch

from encouraging.engine import RunDir, RunSpec, execute
from encouraging.models.beam import beam_search
from encouraging.models.transformer import Transformer
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from translation_toys import RECIPE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
CUDA = torch.device("cuda")


def run(folder, arm, *words):
    path = folder / "numbers.toml"
    folder.mkdir()
    path.write_text(RECIPE)
    recipe = read_recipe(path, ["model_options.dropout=0", "options.lengths=3", "train.epochs=12", *words])
    spec = recipe.task_spec(arm, 0, CUDA)
    final = execute(RunSpec(lambda: build_task("translation", spec), spec.stages, RunDir(folder / "run"),
                            recipe.config(arm, 0), 0, CUDA, about=recipe.about_runs(arm)))
    return final, json.loads((folder / "run" / "timing.json").read_text())["cuda_graph"]


@pytest.mark.parametrize(("arm", "precision"), [("ce_ls", "tf32"), ("el_ls", "fp32"), ("el_ls", "tf32"),
                                                ("el_ls", "bf16"), ("el_1", "fp32"), ("el_1", "bf16")])
def test_recorded_updates_teach_what_eager_ones_teach(tmp_path, arm, precision):
    recorded, how = run(tmp_path / "graph", arm, f"train.precision={precision}")
    eager, _ = run(tmp_path / "eager", arm, f"train.precision={precision}", "train.cuda_graph=false")
    assert how == "recorded"
    tolerance = 0.1 if precision == "bf16" else 0.01
    assert recorded["train_loss"] == pytest.approx(eager["train_loss"], rel=tolerance, abs=tolerance)
    assert recorded["test_loss"] == pytest.approx(eager["test_loss"], rel=tolerance, abs=tolerance)
    if precision == "fp32":
        ours, theirs = (safetensors.torch.load_file(tmp_path / name / "run" / "weights.safetensors")
                        for name in ("graph", "eager"))
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0.02, atol=0.02)


def test_a_gpu_translates_as_a_cpu_does():
    torch.manual_seed(1)
    model = Transformer(40, 40, layers=2, width=32, heads=4, hidden=64, share="all").double().eval()
    source = torch.randint(3, 40, (20, 9))
    source[:, -1] = 2
    for beam in (1, 5):
        here = beam_search(model.cpu(), source, beam)
        there = beam_search(model.to(CUDA), source.to(CUDA), beam)
        assert there.lists() == here.lists()
        torch.testing.assert_close(there.scores.cpu(), here.scores)
