"""The matrix of the benchmark: every case is right, its parts make the whole, and a record reads as measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from encouraging.commands import bench_matrix
from encouraging.commands.bench_cases import CALLS, Case, check, inputs, losses, matrix, random_cases
from encouraging.errors import ArgumentError
from kernel_cases import MARKS

# Odd and even class counts of each call, curve and type, once: rows and large sizes make no difference to a check.
KINDS = sorted({(case.call, case.curve, case.dtype): case.small() for case in matrix()}.values(), key=str)


def test_the_matrix_has_cases_of_every_kind() -> None:
    cases = matrix()
    assert len(cases) == len(set(cases)) >= 80
    assert {case.call for case in cases} == set(CALLS)
    assert {case.dtype for case in cases} == {"float32", "bfloat16", "float16"}
    assert any(case.classes % 2 for case in cases)
    assert any(case.rows * case.classes * 4 < bench_matrix.SMALL_BYTES for case in cases)


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_a_case_is_its_formula_in_float64(case: Case) -> None:
    tolerance = {"float32": 2e-4, "bfloat16": 2.0**-6, "float16": 2.0**-8}[case.dtype]
    assert check(case, "cpu") <= tolerance


test_a_case_is_its_formula_in_float64.pytestmark = [*MARKS, *test_a_case_is_its_formula_in_float64.pytestmark]


def test_random_cases_follow_from_their_seed() -> None:
    first, again, other = random_cases(40, 1), random_cases(40, 1), random_cases(40, 2)
    assert first == again != other
    assert len(first) == 40
    for case in first:
        assert case.rows * case.classes <= 2**28
        logits, target = inputs(case.small(), "cpu")
        loss = losses(case.small(), "cpu")[1](logits, target)
        assert loss.sum().isfinite()


def test_parts_make_the_whole() -> None:
    cases = matrix()
    parts = [bench_matrix.part_of(cases, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(str(case) for part in parts for case in part) == sorted(map(str, cases))
    for part in ("0/3", "4/3", "x", "1"):
        with pytest.raises(ArgumentError, match="the second of five"):
            bench_matrix.part_of(cases, part)


def record(ratios: list[float], **changed: Any) -> dict[str, Any]:
    cases = [{"case": f"case {ratio}", "ratio": ratio, "measured": "device",
              "milliseconds": {"ours": ratio, "torch": 1.0}} for ratio in ratios]
    return {"device": "a GPU", "torch": "2", "triton": "3", "encouraging": "1", "cases": cases, **changed}


def test_merged_parts_are_sorted_by_the_worst_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for i, ratios in enumerate(([0.5, 1.2], [0.7])):
        files.append(tmp_path / f"{i}.json")
        files[-1].write_text(json.dumps(record(ratios)))
    merged = bench_matrix.run_matrix(merge=files, out=tmp_path / "whole" / "all.json")
    assert [case["ratio"] for case in merged["cases"]] == [1.2, 0.7, 0.5]
    assert (merged["worst_ratio"], merged["median_ratio"]) == (1.2, 0.7)
    assert json.loads((tmp_path / "whole" / "all.json").read_text()) == merged
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(" 1.20 case 1.2: ours 1.200, torch 1.000 ms")
    assert shown[-1] == "3 cases: the worst 1.20, the median 0.70, 1 above 1.03"
    files[1].write_text(json.dumps(record([0.7], device="another GPU")))
    with pytest.raises(ArgumentError, match="one machine"):
        bench_matrix.run_matrix(merge=files)


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentError, match="CUDA device"):
        bench_matrix.run_matrix(count=3)


def test_checks_are_a_record_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_matrix, "check", lambda case, device: 1e-7)
    found = bench_matrix.run_matrix(count=5, seed=3, checks=True, out=tmp_path / "checks.json")
    assert set(found["checks"].values()) == {1e-7}
    assert json.loads((tmp_path / "checks.json").read_text()) == found


def test_a_contender_that_fails_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(bench_matrix, "inputs", lambda case, device: inputs(case, "cpu"))
    monkeypatch.setattr(bench_matrix, "losses", lambda case, device: losses(case, "cpu"))
    monkeypatch.setattr(torch, "compile", lambda *a, **k: refuse)
    monkeypatch.setattr(bench_matrix, "medians", lambda steps, *_: dict.fromkeys(steps, (2.0, 1.0)))
    monkeypatch.setattr(bench_matrix, "_wall", lambda step, seconds: 3.0)
    monkeypatch.setattr(bench_matrix, "copy_time_per_byte", lambda device: 1e-9)
    small = bench_matrix.measure(Case("soft", 4, 9, "float32"), 0.0)
    assert small["measured"] == "wall"
    assert small["ratio"] == 1.0
    assert small["failed"] == {"torch.compile": "RuntimeError: no compiler here"}
    large = bench_matrix.measure(Case("plain", 30000, 10, "float32"), 0.0)
    assert large["measured"] == "device"
    assert large["milliseconds"] == {"ours": 2.0, "torch": 2.0}
    assert math.isclose(large["floor_milliseconds"], (2 * 1200000 + 240000) * 1e-9)
