"""What the recipes of translation take from the authors' scripts: updates of several batches, a limit of pieces."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from torch.nn import functional as F

from encouraging.data import Clock
from encouraging.data.pieces import PAD
from encouraging.engine import RunDir
from encouraging.engine.distributed import World
from encouraging.engine.meter import HostMeter
from encouraging.engine.update import Update
from encouraging.models.transformer import Transformer
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from encouraging.tasks.translation import translate_pieces
from task_laws import assert_same_bits, train, train_with_kills
from translation_toys import RECIPE

CPU = torch.device("cpu")
FOUR = ("train.accumulate=4", "train.batch_size=24", "options.lengths=4", "model_options.dropout=0")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "numbers.toml"
    path.write_text(RECIPE)
    return path


def as_one(batches):
    """Batches of several lengths as one, padded to the longest."""
    width = max(source.shape[1] for source, _ in batches)
    return (torch.cat([F.pad(source, (0, width - source.shape[1]), value=PAD) for source, _ in batches]),
            torch.cat([F.pad(target, (0, width + 1 - target.shape[1]), value=PAD) for _, target in batches]))


@pytest.mark.parametrize("arm", ["ce_ls", "el_ls"])
def test_batches_of_different_lengths_are_one_update_divided_by_all_their_tokens(recipe, arm):
    whole = read_recipe(recipe, FOUR)
    task = build_task("translation", whole.task_spec(arm))
    batches = {source.shape[1]: (source, target) for source, target in task.source(1).batches(Clock(), 0, 0, 1)}
    group = list(batches.values())
    assert len(group) == 4
    tokens = [int((target[:, 1:] != PAD).sum()) for _, target in group]
    assert len(set(tokens)) > 1, "else a mean of means would be the same"

    torch.manual_seed(0)
    model = task.build().double()
    twin, objective = copy.deepcopy(model), task.objective(Clock())
    meter = HostMeter(1e4, task.sums)
    update = Update(task, model, torch.optim.SGD(model.parameters(), lr=0.0), whole.stages_of(arm)[0].train, meter,
                    None, World(), CPU)
    update(group, objective, True)
    loss = task.loss(twin, as_one(group), objective)
    loss.mean.backward()
    assert int(loss.count) == sum(tokens) == int(meter.size)
    assert meter.loss / meter.size == pytest.approx(float(loss.mean.detach()))
    expected = dict(twin.named_parameters())
    for name, param in model.named_parameters():
        torch.testing.assert_close(param.grad, expected[name].grad, rtol=1e-5, atol=1e-7, msg=name)


def test_a_run_with_such_updates_counts_them_and_is_resumed_at_any_of_them(recipe, tmp_path):
    words = [*FOUR, "train.checkpoint_seconds=0", "train.max_steps=11"]
    whole = train(read_recipe(recipe, words), tmp_path / "whole", "el_ls")
    task = build_task("translation", read_recipe(recipe, words).task_spec("el_ls"))
    per_epoch = math.ceil(task.source(1).length(Clock()) / 4)
    steps = [line["step"] for line in RunDir(whole).metrics()]
    assert steps[-1] == 11
    assert steps[0] == per_epoch < 11, "an epoch ends with what is left, in an update of fewer batches"
    cut = train_with_kills([read_recipe(recipe, words)] * 2, (3, 9), tmp_path / "cut", "el_ls")
    assert json.loads((cut / "timing.json").read_text())["resumed"] == 2
    assert_same_bits(cut, whole)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("most", [1, 3, 30])
def test_translations_have_at_most_so_many_pieces_whatever_their_sentences_have(beam, most):
    torch.manual_seed(1)
    model = Transformer(24, 24, layers=1, width=16, heads=2, hidden=32, share="all").eval()
    sentences = [[5], [7, 9, 4, 8, 11, 15, 6, 13, 22, 20, 17, 3]]
    lengths = [len(said) for said in translate_pieces(model, sentences, CPU, beam, 1.0, most)]
    assert max(lengths) <= most
    if most == 30:  # this model does not end by itself: by default it would have 1.2 times as many as the sentence + 10
        assert lengths != [len(said) for said in translate_pieces(model, sentences, CPU, beam, 1.0)]


def test_only_the_test_sentences_have_this_limit(recipe, tmp_path, monkeypatch):
    limits: list[int | None] = []

    def noted(model, sentences, device, beam=5, length_penalty=1.0, most_pieces=None):
        limits.append(most_pieces)
        return translate_pieces(model, sentences, device, beam, length_penalty, most_pieces)

    monkeypatch.setattr("encouraging.tasks.translation.translate_pieces", noted)
    train(read_recipe(recipe, ["train.epochs=1", "options.most_pieces=2"]), tmp_path, "ce_ls")
    assert limits[0] is None
    assert limits[-1] == 2
