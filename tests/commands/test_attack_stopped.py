"""``encouraging attack`` that is stopped: what is kept, and that the same command goes on there."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from attack_calls import call, content
from encouraging.attacks import Attack
from encouraging.commands import attack as command
from encouraging.commands import attack_plan


def test_a_stopped_command_goes_on_where_it_was(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs / "ce/seed0"
    words = [run, "--attack", "fgsm", "--attack", "pgd", "--examples", "30", "--eps", "0.1,0.2", "--device", "cpu"]
    whole = Path(shutil.copytree(run, runs / "other"))
    call(whole, *words[1:])
    true = command._Counter.__call__
    steps = []

    def stop(self: Any, step: Any) -> None:
        true(self, step)
        if step.accuracy is not None:
            steps.append((step.attack, step.eps))
            if len(steps) == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command._Counter, "__call__", stop)
        said = call(*words, code=130)
    assert "run the same command again to continue" in said
    assert not (run / "attacks.json").exists()
    assert list(run.glob("attacks-*.state"))
    again = []
    true_attack = attack_plan.KNOWN["pgd"].attack.__class__.__call__
    monkeypatch.setattr(Attack, "__call__", lambda self, model, x, y, eps, **how: (
        again.append((self.name, eps)), true_attack(self, model, x, y, eps, **how))[1])
    call(*words)
    assert set(again) == {("pgd", 0.2)}
    assert content(run)["attacks"] == content(whole)["attacks"]


def stopped_after(cells: int, monkeypatch: pytest.MonkeyPatch, *words: Any) -> None:
    """The command, stopped after so many accuracies."""
    true, known = command._Counter.__call__, []

    def stop(self: Any, step: Any) -> None:
        true(self, step)
        if step.accuracy is not None:
            known.append(step)
            if len(known) == cells:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command._Counter, "__call__", stop)
        call(*words, code=130)


@pytest.mark.parametrize("between", [["--seed", "1", "--attack", "pgd", "--examples", "30"],
                                     ["--attack", "pgd", "--examples", "10"],
                                     ["--attack", "fgsm", "--examples", "30"],
                                     ["--attack", "fgsm", "--examples", "40"]],
                         ids=["seed", "images", "attack", "attack and images"])
def test_another_measurement_in_between_keeps_what_a_stopped_one_has(runs: Path, monkeypatch: pytest.MonkeyPatch,
                                                                     between: list[str]) -> None:
    run, common = runs / "ce/seed0", ["--eps", "0.1,0.2", "--device", "cpu"]
    words = [run, "--attack", "pgd", "--examples", "30", *common]
    stopped_after(1, monkeypatch, *words)
    call(run, *between, *common)
    again = []
    true = Attack.__call__
    monkeypatch.setattr(Attack, "__call__", lambda self, model, x, y, eps, **how: (
        again.append(eps), true(self, model, x, y, eps, **how))[1])
    call(*words)
    assert again == [0.2]
    assert not list(run.glob("*.state*"))


def test_what_more_images_have_measured_is_no_longer_kept_for_fewer(runs: Path, monkeypatch: pytest.MonkeyPatch
                                                                    ) -> None:
    run, common = runs / "ce/seed0", ["--attack", "pgd", "--eps", "0.1,0.2", "--device", "cpu"]
    stopped_after(1, monkeypatch, run, "--examples", "20", *common)
    (run / "attacks-pixels-00000000-20-0.state").write_text("{}")  # of weights that were replaced
    call(run, "--examples", "30", *common)
    assert not list(run.glob("*.state*"))


def test_half_an_autoattack_is_continued_after_another_attack(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, common = runs / "ce/seed0", ["--examples", "6", "--eps", "0.1", "--device", "cpu"]
    true = command._Counter.__call__

    def stop(self: Any, step: Any) -> None:
        true(self, step)
        if step.attack == "autoattack" and step.accuracy is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command._Counter, "__call__", stop)
        call(run, "--attack", "autoattack", *common, code=130)
    (half,) = run.glob("*.state*")
    content_before = half.read_bytes()
    call(run, "--attack", "fgsm", *common)
    assert half.read_bytes() == content_before
    call(run, "--attack", "autoattack", *common)
    assert not list(run.glob("*.state*"))


def test_sigterm_stops_it_as_ctrl_c_does(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def stop(self: Any, step: Any) -> None:
        assert signal.getsignal(signal.SIGTERM) != before  # or the signal would end the tests
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(command._Counter, "__call__", stop)
        said = call(runs, "--attack", "fgsm", "--examples", "30", "--eps", "0.1", "--device", "cpu", code=130)
    assert "stopped with 2 of 2 runs unfinished. What was measured is kept" in said
    assert signal.getsignal(signal.SIGTERM) == before
