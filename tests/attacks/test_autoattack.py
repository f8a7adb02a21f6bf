"""AutoAttack through pyautoattack: the same result, resumable, and nothing around it disturbed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, ClassVar

import pyautoattack
import pytest
import torch
from torch import Tensor, nn

from encouraging.attacks import Attack, accuracy_over_eps, autoattack, pgd
from encouraging.errors import ArgumentError

FAST = ["apgd-ce", "apgd-t", "fab-t"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real AutoAttack with fewer steps of each part, for tests that are about the parts and not their strength."""
    class Quick(pyautoattack.AutoAttack):  # type: ignore[misc]
        made: ClassVar[list[Any]] = []

        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self.made.append(self)
            assert self.square.n_queries == 5000
            self.square.n_queries = 200
            for part in (self.apgd, self.apgd_targeted, self.fab):
                assert part.n_iter == 100
                part.n_iter = 15

    monkeypatch.setattr(pyautoattack, "AutoAttack", Quick)
    return Quick


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_part_by_part_is_the_standard_evaluation_bit_for_bit(quick: Any, digits: Any, norm: str) -> None:
    x, y = digits.first(14)
    eps = 0.05 if norm == "linf" else 0.3
    theirs = quick(digits.model, norm={"linf": "Linf", "l2": "L2"}[norm], eps=eps, version="standard", seed=3)
    with torch.random.fork_rng():
        expected, _ = theirs.run_standard_evaluation(x, y, batch_size=10)
    digits.model.zero_grad()
    assert torch.equal(autoattack(digits.model, x, y, eps, norm=norm, seed=3, batch_size=10), expected)
    assert {(one.fab.n_target_classes, one.apgd_targeted.n_target_classes) for one in quick.made} == {(9, 9)}
    assert 0 < (expected != x).flatten(1).any(1).double().mean() < 1


def test_its_result_lies_in_the_ball_and_is_stronger_than_pgd(digits: Any) -> None:
    x, y = digits.first(30)
    for norm, eps in (("linf", 0.08), ("l2", 0.5)):
        found = autoattack(digits.model, x, y, eps, norm=norm, parts=FAST)
        assert found.min() >= 0
        assert found.max() <= 1
        moved = (found - x).flatten(1)
        assert (moved.abs().amax(1) if norm == "linf" else moved.norm(dim=1)).max() <= eps + 1e-5
        right = (digits.model(found).argmax(1) == y).sum()
        weaker = pgd(digits.model, x, y, eps) if norm == "linf" else x
        assert right <= (digits.model(weaker).argmax(1) == y).sum()


@pytest.mark.parametrize("stop", [1, 2])
def test_it_goes_on_after_the_last_finished_part(quick: Any, digits: Any, tmp_path: Path, stop: int) -> None:
    x, y = digits.first(15)
    path, seen = tmp_path / "state", []

    def progress(part: str, accuracy: float) -> None:
        seen.append((part, accuracy))
        if len(seen) == stop:
            raise StoppedError

    with pytest.raises(StoppedError):
        autoattack(digits.model, x, y, 0.06, parts=FAST, state_path=path, progress=progress)
    again: list[tuple[str, float]] = []
    found = autoattack(digits.model, x, y, 0.06, parts=FAST, state_path=path,
                       progress=lambda *where: again.append(where))
    assert [part for part, _ in again] == FAST[stop:]
    assert torch.equal(found, autoattack(digits.model, x, y, 0.06, parts=FAST))
    accuracies = [accuracy for _, accuracy in seen + again]
    assert accuracies == sorted(accuracies, reverse=True)
    with pytest.raises(ArgumentError, match="another model"):
        autoattack(digits.model, x, y, 0.07, parts=FAST, state_path=path)
    path.write_bytes(b"torn")
    with pytest.raises(ArgumentError, match="not the state"):
        autoattack(digits.model, x, y, 0.06, parts=FAST, state_path=path)


def test_model_gradients_and_random_state_stay_as_they_were(quick: Any, digits: Any) -> None:
    x, y = digits.first(12)
    model = digits.model
    model.train()
    model[1].weight.requires_grad_(False)
    random, tracer = torch.get_rng_state(), sys.gettrace()
    try:
        one, other = (autoattack(model, x, y, 0.05, parts=FAST) for _ in range(2))
        assert torch.equal(one, other)
        assert not one.requires_grad
        assert all(module.training for module in model.modules())
        assert all(parameter.grad is None for parameter in model.parameters())
        assert [p.requires_grad for p in model.parameters()] == [p is not model[1].weight for p in model.parameters()]
        assert torch.equal(torch.get_rng_state(), random)
        assert sys.gettrace() is tracer
    finally:
        model.eval()
        model[1].weight.requires_grad_(True)


@pytest.mark.parametrize("classes", [2, 3, 4, 7])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fewer_than_ten_classes_have_fewer_targets(caplog: pytest.LogCaptureFixture, classes: int, norm: str) -> None:
    """Separated blobs in the corners of a cube, attacked within the distance of its edges and far below it."""
    g = torch.Generator().manual_seed(classes)
    corners = torch.rand(classes, 16, generator=g).round()
    y = torch.arange(20) % classes
    x = (corners[y] + 0.05 * torch.randn(20, 16, generator=g)).clamp(0, 1)
    weight = nn.Parameter(corners - 0.5)

    def model(batch: Tensor) -> Tensor:
        return (batch - 0.5) @ weight.T

    assert torch.equal(model(x).argmax(1), y)
    with caplog.at_level(logging.WARNING):
        broken = autoattack(model, x, y, 0.9 if norm == "linf" else 3.5, norm=norm, parts=None)
        intact = autoattack(model, x, y, 0.01, norm=norm, parts=["apgd-ce", "fab-t"])
    assert (model(broken).argmax(1) != y).all()
    assert torch.equal(intact, x)
    assert not [record for record in caplog.records if "classes" in record.getMessage()]


def test_epsilon_0_and_no_examples_change_nothing(digits: Any) -> None:
    x, y = digits.first(5)
    assert torch.equal(autoattack(digits.model, x, y, 0), x)
    assert autoattack(digits.model, x[:0], y[:0], 0.1).shape == (0, 1, 8, 8)


@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 8, 8), (1, 1, 8, 8)])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_inputs_of_any_shape_are_attacked(quick: Any, digits: Any, shape: tuple[int, ...], norm: str) -> None:
    x, y = digits.first(10)
    reshaped = x.reshape(10, *shape)

    def model(batch: Tensor) -> Tensor:
        return digits.model(batch.reshape(-1, 1, 8, 8))

    found = autoattack(model, reshaped, y, 0.06, norm=norm, parts=["apgd-ce"])
    assert found.shape == reshaped.shape
    assert torch.equal(found.reshape(x.shape), autoattack(digits.model, x, y, 0.06, norm=norm, parts=["apgd-ce"]))
    found = autoattack(model, reshaped, y, 0.3, norm=norm, parts=["square"])
    assert torch.equal(found.reshape(x.shape), autoattack(digits.model, x, y, 0.3, norm=norm, parts=["square"]))


def test_square_is_left_out_where_images_are_too_small_for_it() -> None:
    x, y, seen = torch.rand(6, 7), torch.zeros(6, dtype=torch.int64), []

    def model(batch: Tensor) -> Tensor:
        return torch.stack([batch.sum(1), batch.sum(1) - 100], 1)

    autoattack(model, x, y, 0.1, norm="l2", progress=lambda part, _: seen.append(part))
    assert seen == ["apgd-ce", "apgd-dlr", "fab-t"]
    with pytest.raises(ArgumentError, match="5 x 5"):
        autoattack(model, x, y, 0.1, norm="l2", parts=["square"])


def test_accuracy_over_eps_resumes_inside_autoattack(quick: Any, digits: Any, tmp_path: Path) -> None:
    x, y = digits.first(20)
    attack, path, calls = Attack("autoattack", parts=FAST), tmp_path / "state.json", []

    def progress(where: Any) -> None:
        calls.append(where)
        if len(calls) == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        accuracy_over_eps(digits.model, x, y, [attack], [0.06], state_path=path, progress=progress)
    assert [file.name for file in tmp_path.iterdir()] == ["state.json.autoattack.0.06.1000"]
    again: list[Any] = []
    resumed = accuracy_over_eps(digits.model, x, y, [attack], [0.06], state_path=path, progress=again.append)
    assert len(again) == 2  # the one part that was left, and the end
    assert resumed.table() == accuracy_over_eps(digits.model, x, y, [attack], [0.06]).table()
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_what_autoattack_found_with_another_batch_size_is_not_taken_over(quick: Any, digits: Any,
                                                                         tmp_path: Path) -> None:
    """It draws per batch; the attacks of this package do not, and keep what they have."""
    x, y = digits.first(20)
    attacks, path = [Attack("autoattack", parts=["apgd-ce"]), Attack("pgd", steps=2)], tmp_path / "state.json"
    measured = []
    for batch_size in (20, 7, 20):
        steps: list[Any] = []
        accuracy_over_eps(digits.model, x, y, attacks, [0.06], batch_size=batch_size, state_path=path,
                          progress=steps.append)
        measured.append({step.attack for step in steps if step.accuracy is None})
    assert measured == [{"autoattack", "pgd"}, {"autoattack"}, set()]
