"""What the checks on a GPU share, without one: how the work is shared out, and what counts as exact."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def gpu_checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_checks")


@pytest.mark.parametrize("turn", range(5))
def test_every_case_belongs_to_one_part(gpu_checks: ModuleType, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "_turn", turn)
    monkeypatch.setattr(gpu_checks, "_parts", 4)
    shares = []
    for part in range(1, 5):
        monkeypatch.setattr(gpu_checks, "_part", part)
        shares.append(gpu_checks.mine(range(11)))
    assert sorted(case for share in shares for case in share) == list(range(11))
    assert {len(share) for share in shares} == {2, 3}


def test_long_checks_are_shared_out_by_their_seconds(gpu_checks: ModuleType) -> None:
    checks = gpu_checks.Checks()
    for name, seconds in (("a", 9), ("b", 5), ("c", 4), ("d", 4), ("e", 1)):
        def run() -> str:
            return ""

        run.__name__ = name
        checks(run, seconds=seconds)
    checks(lambda: "", in_parts=True)
    shares = gpu_checks.share_out(checks, 3)
    assert sorted(check.run.__name__ for share in shares for check in share) == list("abcde")
    assert max(sum(check.seconds for check in share) for share in shares) == 9


def test_a_difference_of_equal_terms_is_sensitive_and_a_product_is_not(gpu_checks: ModuleType) -> None:
    z = torch.zeros(3, 2, dtype=torch.float64)
    t = torch.tensor([[1.0, 0.0], [0.5, 0.4999], [0.5, 0.2]], dtype=torch.float64)

    def difference(logits: Tensor, masses: Tensor) -> Tensor:
        return (masses[:, :1] - masses[:, 1:] * torch.exp(logits[:, 1:])).expand(-1, 2)

    plain, near, far = (gpu_checks.sensitivity(difference, z, t) / gpu_checks.ULP).tolist()
    assert plain == pytest.approx(1, rel=0.01)
    assert near > 5000
    assert far < 5


def test_all_checks_in_one_process_are_those_of_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = [[check.run.__name__ for check in importlib.import_module(name).check]
             for name in ("check_gpu", "check_gpu_calls", "check_gpu_arguments", "check_gpu_in_order",
                          "check_gpu_launches", "check_gpu_split", "check_gpu_streams")]
    assert len({name for some in names for name in some}) == sum(map(len, names))
    assert "check_gpu_all" not in sys.modules


def test_two_that_are_timed_in_turn_are_compared_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    host_time = importlib.import_module("host_time")
    order: list[str] = []
    pace = iter(factor for factor in (1, 1, 5, 5, 1, 1, 7, 7) for _ in range(1))  # the machine's, round by round

    def timer(run: object, steps: int) -> float:
        order.append(run())  # type: ignore[operator]
        return next(pace) * (3.0 if order[-1] == "ours" else 2.0)

    ours, torchs, ratio = host_time.in_turn(lambda: "ours", lambda: "torch", 4, timer=timer)
    assert ratio == pytest.approx(1.5)
    assert ours / torchs == pytest.approx(1.5)
    assert order == ["torch", "ours", "ours", "torch"] * 2
