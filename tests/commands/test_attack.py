"""``encouraging attack``: numbers beside the run, once, and a warning where they flatter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from rich.console import Console
from typer.testing import CliRunner

from attack_calls import FEW, accuracy_of, call, content
from encouraging.attacks import Attack, accuracy_over_eps, fgsm
from encouraging.cli import app
from encouraging.commands import attack as command
from encouraging.commands import attack_plan
from encouraging.commands.attack_plan import JUDGES, KNOWN
from encouraging.commands.run import run_recipe
from encouraging.data.augment import resize_center_crop
from encouraging.engine.attack_results import Measured
from encouraging.engine.records import read_records
from encouraging.recipes import grid
from encouraging.recipes.trained import load_trained

CPU = torch.device("cpu")


def test_every_attack_is_measured_once_and_as_the_library_does(runs: Path) -> None:
    before = (runs / "ce/seed0/final.json").read_bytes()
    said = call(runs, *FEW)
    assert "pgd_l2_scale_free" in said
    found = content(runs / "ce/seed0")["attacks"]
    assert set(attack_plan.GRID) <= set(found)
    assert {tuple(found[name]["accuracy"]) for name in attack_plan.GRID} == {("0", "0.1"), ("0", "1")}
    trained = load_trained(runs / "ce/seed0", CPU)
    x, y = trained.task.unit(trained.task.test[0][:40]), trained.task.test[1][:40]
    mine = accuracy_over_eps(trained.unit_model, x, y, [Attack("pgd", loss="margin")], [0.1])
    assert found["pgd_margin"]["accuracy"]["0.1"] == mine.accuracy("pgd_margin", 0.1)
    perturbed = fgsm(trained.unit_model, x, y, 0.1)
    right = (trained.unit_model(x).argmax(1) == y) & (trained.unit_model(perturbed).argmax(1) == y)
    assert found["fgsm"]["accuracy"]["0.1"] == pytest.approx(100 * right.double().mean().item())
    assert "everything was measured before" in call(runs, *FEW)
    assert (runs / "ce/seed0/final.json").read_bytes() == before
    assert not list(runs.rglob("*.state*"))


def test_the_model_that_is_attacked_is_the_one_that_was_trained(runs: Path) -> None:
    trained = load_trained(runs / "el/seed0", CPU)
    kept = safetensors.torch.load_file(runs / "el/seed0/logits.safetensors")
    with torch.no_grad():
        logits = trained.unit_model(trained.task.unit(trained.task.test[0]))
    torch.testing.assert_close(logits, kept["logits"], rtol=1e-4, atol=1e-4)
    assert torch.equal(trained.task.test[1], kept["labels"])


def test_more_images_more_epsilons_and_other_attacks_are_added(runs: Path) -> None:
    run = runs / "ce/seed0"
    common = ["--device", "cpu", "--threads", "1", "--attack", "fgsm"]
    call(run, "--examples", "10", "--eps", "0.1", *common)
    assert content(run)["attacks"]["fgsm"]["examples"] == 10
    call(run, "--examples", "20", "--eps", "0.1", *common)
    call(run, "--examples", "20", "--eps", "0.2", *common)
    call(run, "--examples", "20", "--eps", "0.1", *common, "--attack", "fgsm_margin")
    attacks = content(run)["attacks"]
    assert attacks["fgsm"]["examples"] == 20
    assert list(attacks["fgsm"]["accuracy"]) == ["0.1", "0.2"]
    assert list(attacks["fgsm_margin"]["accuracy"]) == ["0.1"]
    whole = accuracy_of(run, "fgsm", 0.1)
    call(run, "--examples", "5", "--eps", "0.1", *common)  # fewer images than are known: nothing to do
    assert accuracy_of(run, "fgsm", 0.1) == whole


def test_logits_that_are_only_scaled_are_caught(runs: Path) -> None:
    """Powers of two are exact: decisions and scale-free attacks stay, and the one by cross-entropy finds less."""
    run, scaled = runs / "ce/seed0", runs / "scaled/ce/seed0"
    shutil.copytree(run, scaled)
    weights = safetensors.torch.load_file(scaled / "weights.safetensors")
    for name in ("head.weight", "head.bias"):
        weights[name] *= 64
    safetensors.torch.save_file(weights, scaled / "weights.safetensors")
    options = ["--examples", "60", "--eps", "0,0.2", "--attack", "pgd", "--attack", "pgd_margin", "--attack", "pgd_dlr",
               "--device", "cpu"]
    call(run, *options)
    said = call(scaled, *options)
    plain, large = content(run), content(scaled)
    for name in ("pgd_margin", "pgd_dlr", "pgd_scale_free"):
        assert plain["attacks"][name]["accuracy"] == large["attacks"][name]["accuracy"]
    assert plain["attacks"]["pgd"]["accuracy"]["0"] == large["attacks"]["pgd"]["accuracy"]["0"]
    assert large["attacks"]["pgd"]["accuracy"]["0.2"] > plain["attacks"]["pgd"]["accuracy"]["0.2"] + 5
    assert [verdict["robust"] for verdict in plain["verdicts"]] == [verdict["robust"] for verdict in large["verdicts"]]
    assert large["verdicts"][0]["flattered"]
    assert "Warning: PGD by cross-entropy makes ce look more robust than it is. At epsilon 0.2" in said


def test_epsilon_counts_the_pixels_of_the_data_where_the_model_takes_larger_images(tmp_path: Path) -> None:
    """Images of 8 pixels that the network sees enlarged to 12: an attack changes 64 numbers, not 144."""
    overrides = ["options.augment=resized_crop", "options.train_size=12", "model=resnet20", "train.max_steps=20"]
    assert run_recipe("digits", arms=("ce",), seeds="1", overrides=overrides, device="cpu", threads=1, jobs=1,
                      out=tmp_path, console=Console(quiet=True)) == 0
    run = tmp_path / "digits/ce/seed0"
    call(run, "--attack", "pgd_l2_margin", "--attack", "fgsm", "--examples", "30", "--eps", "0,0.1", "--eps-l2", "1",
         "--device", "cpu")
    trained = load_trained(run, CPU)
    images, y = trained.task.test[0][:30], trained.task.test[1][:30]
    x = images / trained.task.data.highest

    def model(x: torch.Tensor) -> torch.Tensor:
        return trained.unit_model(resize_center_crop(x, 14, 12))

    for name, attack, eps in (("fgsm", Attack("fgsm"), 0.1), ("pgd_l2_margin", Attack("pgd_l2", loss="margin"), 1.0)):
        assert accuracy_of(run, name, eps) == accuracy_over_eps(model, x, y, {name: attack}, [eps]).accuracy(name, eps)
    rounded = trained.task.unit(images)  # as evaluations see them: whole grey levels, of which there are 16
    assert float((rounded - resize_center_crop(x, 14, 12)).abs().max()) <= 0.5 / 16 + 1e-6


@pytest.mark.parametrize(("piece", "words", "batch"), [(2000, (), 1000), (7, (), 7), (7, ("--batch-size", "9"), 9)])
def test_large_images_are_attacked_a_few_at_a_time(runs: Path, monkeypatch: pytest.MonkeyPatch, piece: int,
                                                   words: tuple[str, ...], batch: int) -> None:
    sizes = []
    monkeypatch.setattr(command, "load_trained", lambda *how: with_piece(load_trained(*how), piece))
    monkeypatch.setattr(command, "accuracy_over_eps", lambda *how, **settings: (
        sizes.append(settings["batch_size"]), accuracy_over_eps(*how, **settings))[1])
    call(runs / "ce/seed0", "--attack", "fgsm", "--examples", "20", "--eps", "0.1", "--device", "cpu", *words)
    assert sizes == [batch]


def with_piece(trained: Any, piece: int) -> Any:
    trained.task.piece = piece
    return trained


def test_epsilon_in_normalised_pixels_without_clipping_is_the_authors_attack(runs: Path) -> None:
    run = runs / "ce/seed0"
    call(run, "--attack", "fgsm_normalised", "--examples", "50", "--eps", "0.5", "--device", "cpu")
    trained = load_trained(run, CPU)
    x = trained.task.normalise(trained.task.unit(trained.task.test[0][:50])).requires_grad_()
    y = trained.task.test[1][:50]
    logits = trained.model(x)
    (gradient,) = torch.autograd.grad(torch.nn.functional.nll_loss(logits, y), x)
    after = trained.model(x + 0.5 * gradient.sign())
    right = (logits.argmax(1) == y) & (after.argmax(1) == y)
    assert accuracy_of(run, "fgsm_normalised", 0.5) == pytest.approx(100 * right.double().mean().item())
    assert content(run)["attacks"]["fgsm_normalised"]["units"] == "normalised"


def test_autoattack_is_added_and_judges(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_judges(monkeypatch)
    run = runs / "ce/seed0"
    call(run, "--attack", "pgd", "--autoattack", "--examples", "8", "--eps", "0.1", "--eps-l2", "1", "--device", "cpu")
    found = content(run)
    assert list(found["attacks"]) == ["pgd", "autoattack", "autoattack_l2"]
    assert found["verdicts"][0]["compared_with"] == ["autoattack"]


def quick_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyautoattack")
    quick = {name: Measured(Attack("autoattack", norm=KNOWN[name].attack.norm, parts=["apgd-ce"])) for name in JUDGES}
    monkeypatch.setattr(attack_plan, "KNOWN", {**KNOWN, **quick})


def test_the_batch_size_of_autoattack_is_written_down_and_kept(runs: Path, monkeypatch: pytest.MonkeyPatch,
                                                               tmp_path: Path) -> None:
    quick_judges(monkeypatch)
    run = runs / "ce/seed0"
    words = ["--attack", "autoattack", "--attack", "pgd", "--examples", "8", "--device", "cpu"]
    call(run, *words, "--eps", "0.1", "--batch-size", "3")
    assert content(run)["attacks"]["autoattack"]["batch_size"] == 3
    assert "batch_size" not in content(run)["attacks"]["pgd"]  # its numbers do not depend on it
    call(run, *words, "--eps", "0.1,0.2")  # goes on with the same one
    assert content(run)["attacks"]["autoattack"]["batch_size"] == 3
    before = content(run)
    said = call(run, *words, "--eps", "0.3", "--batch-size", "4", code=1)
    assert "autoattack was measured with a batch size of 3, and --batch-size 4 gives other numbers" in said
    assert content(run) == before
    call(run, "--attack", "pgd", *words[4:], "--eps", "0.3", "--batch-size", "4")  # nor does anything else mind
    page = tmp_path / "page.html"
    assert CliRunner().invoke(app, ["report", str(runs), "-o", str(page)]).exit_code == 0
    assert "--attack autoattack --eps 0.1,0.2 --examples 8 --batch-size 3" in page.read_text()


def test_results_of_autoattack_without_a_batch_size_stay_apart(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As earlier versions have written them."""
    quick_judges(monkeypatch)
    run = runs / "ce/seed0"
    words = ["--attack", "autoattack", "--examples", "8", "--device", "cpu"]
    call(run, *words, "--eps", "0.1")
    old = content(run)
    del old["attacks"]["autoattack"]["batch_size"]
    (run / "attacks.json").write_text(json.dumps(old))
    call(run, *words, "--eps", "0.1,0.2", "--batch-size", "4")
    entry = content(run)["attacks"]["autoattack"]
    assert (entry.get("batch_size"), entry["batch_size_at"]) == (None, {"0.2": 4})
    assert entry["accuracy"]["0.1"] == old["attacks"]["autoattack"]["accuracy"]["0.1"]
    (record,) = read_records(run)
    assert record.attacks is not None
    assert record.attacks["attacks"]["autoattack"]["batch_size_at"] == {"0.2": 4}


def test_runs_are_attacked_side_by_side(runs: Path) -> None:
    said = call(runs, "--attack", "fgsm", "--examples", "10", "--eps", "0.1", "--device", "cpu", "--jobs", "2")
    assert "2/2" in said
    assert all((runs / arm / "seed0/attacks.json").is_file() for arm in ("ce", "el"))


def test_data_that_only_detection_needs_is_not_asked_for(runs: Path, tmp_path: Path) -> None:
    path = runs / "ce/seed0/config.json"
    config = json.loads(path.read_text())
    config["recipe"]["options"]["ood"] = ["fashion_mnist"]
    path.write_text(json.dumps(config))
    call(runs / "ce/seed0", "--attack", "fgsm", "--examples", "5", "--eps", "0.1", "--device", "cpu", "--data",
         tmp_path / "nothing")
    assert content(runs / "ce/seed0")["attacks"]["fgsm"]["examples"] == 5  # measured, though fashion_mnist is not there


@pytest.mark.parametrize(("omp", "world", "expected"), [(None, None, 6), ("2", None, 2), ("64", None, 6),
                                                        ("3,2", None, 3), ("many", None, 6), ("0", None, 6),
                                                        ("1", "2", 6)])
def test_threads_per_run_are_at_most_those_of_openmp(monkeypatch: pytest.MonkeyPatch, omp: str | None,
                                                     world: str | None, expected: int) -> None:
    """torchrun sets OMP_NUM_THREADS=1 by itself, so there it says nothing."""
    for name, value in (("OMP_NUM_THREADS", omp), ("WORLD_SIZE", world)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(grid, "cores", lambda: 12)
    assert grid.default_threads(2) == expected


def test_run_and_attack_take_as_many_threads_as_openmp_says(runs: Path, trained: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    seen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    words = ["attack", str(runs / "ce/seed0"), *FEW, "--attack", "fgsm"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert set(seen) == {3}
    said = CliRunner().invoke(app, ["run", str(trained.parent.parent / "hit.toml"), "--dry-run", "--device", "cpu",
                                    "--out", str(runs / "more")]).output
    assert "3 threads" in said
