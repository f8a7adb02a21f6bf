"""The matrix of the benchmark: every case is right, its parts make the whole, and a record reads as measured."""

from __future__ import annotations

import json
import math
import os
import re
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("triton")

from encouraging.cli import app
from encouraging.commands import bench_matrix, bench_records, bench_timing
from encouraging.commands.bench_cases import CALLS, TOLERANCE, Case, check, inputs, losses, matrix, random_cases
from encouraging.commands.bench_workers import Workers
from encouraging.errors import ArgumentError
from kernel_cases import MARKS
from pool_jobs import end_at_2_after_3, pid_and_seen, remember, too_large_beside_others

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
    assert check(case, "cpu") <= TOLERANCE[case.dtype]


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
    with pytest.raises(ArgumentError, match="Ask for at most 2 parts"):
        bench_matrix.part_of(cases[:2], "3/3")


def record(ratios: list[float], **changed: Any) -> dict[str, Any]:
    cases = [{"case": f"case {ratio}", "ratio": ratio, "measured": "device",
              "milliseconds": {"ours": ratio, "torch": 1.0}} for ratio in ratios]
    return {"device": "a GPU", "torch": "2", "triton": "3", "encouraging": "1", "drawn": [], "cases": cases, **changed}


def bench(*words: object) -> Any:
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def test_merged_parts_are_sorted_by_the_worst_ratio(tmp_path: Path) -> None:
    first, second, out = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "whole" / "all.json"
    first.write_text(json.dumps(record([0.5, 1.2], drawn=[{"count": 2, "seed": 0}])))
    second.write_text(json.dumps(record([0.7, 0.5])))
    shown = bench("--merge", first, "--merge", second, "--out", out)
    assert shown.exit_code == 0, shown.output
    merged = json.loads(out.read_text())
    assert [case["ratio"] for case in merged["cases"]] == [1.2, 0.7, 0.5]
    assert (merged["worst_ratio"], merged["median_ratio"]) == (1.2, 0.7)
    assert merged["drawn"] == [{"count": 2, "seed": 0}]
    lines = shown.output.splitlines()
    assert lines[0].startswith(" 1.20 case 1.2: ours 1.200, torch 1.000 ms")
    assert lines[-1] == "3 cases: the worst 1.20, the median 0.70, 1 above 1.03"
    second.write_text(json.dumps(record([0.7], device="another GPU")))
    with pytest.raises(ArgumentError, match="one machine"):
        bench_records.merge([first, second])


def test_a_case_slower_than_before_is_named_and_sets_the_exit_code(tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    old = record([0.5, 1.0])
    old["cases"].append({"shape": "8 x 5", "results": {"ours, EL": {"milliseconds": 2.0}, "torch CE": {
        "milliseconds": 1.0}, "ours, CE": {"failed": "no"}}})
    before.write_text(json.dumps(old))
    new = json.loads(before.read_text())
    new["cases"][0]["milliseconds"]["ours"] *= 1.02
    new["cases"][2]["results"]["torch CE"]["milliseconds"] = 9.0  # not ours
    after.write_text(json.dumps(new))
    same = bench("--compare", before, after)
    assert same.exit_code == 0, same.output
    assert same.output.splitlines()[-1] == "3 times in both records, 0 slower by more than 3%"
    new["cases"][2]["results"]["ours, EL"]["milliseconds"] = 2.1
    after.write_text(json.dumps(new))
    slower = bench("--compare", before, after)
    assert slower.exit_code == 1
    assert slower.output.splitlines()[0] == " 1.05 8 x 5: ours, EL: 2.000 ms, now 2.100  SLOWER"
    again = bench("--compare", before, after, "--again", before)  # each case as fast as it was once
    assert again.exit_code == 0
    assert again.output.splitlines()[-1] == "3 times in both records, 0 slower by more than 3%"


@pytest.mark.parametrize(("words", "message"), [
    (["--compare", "none.json", "none.json"], "none.json: there is no such file"),
    (["--merge", "broken.json"], "broken.json: expected a record that `encouraging bench --out FILE` wrote"),
    (["--merge", "list.json"], "list.json: this is not a record"),
    (["--merge", "shapes.json"], "expected a record of --matrix or --random"),
    (["--compare", "shapes.json", "other.json"], "Expected records of one device"),
    (["--compare", "shapes.json", "empty.json"], "have no case in common"),
    (["--merge", "shapes.json", "--out", "shapes.json"], "this file is read by the command itself"),
    (["--matrix", "--random", "3"], "--matrix and --random: expected one of them at a time"),
    (["--part", "1/2"], "--part belongs to --matrix or --random"),
    (["--matrix", "--seed", "2"], "--seed belongs to --random"),
    (["--matrix", "--shape", "8x5"], "--shape belongs to a measurement without --matrix"),
    (["--check"], "--check belongs to --matrix or --random"),
    (["--only", "thiers"], "--only thiers: expected the beginning of one of these names: "),
    (["--random", "3", "--check", "--part", "9/9"], "Ask for at most 3 parts"),
])
def test_wrong_words_are_answered_in_one_line(words: list[str], message: str, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shapes = {"device": "a GPU", "cases": [{"shape": "8 x 5", "results": {"ours, EL": {"milliseconds": 2.0}}}]}
    for name, content in (("list", "[]"), ("broken", "{"), ("shapes", json.dumps(shapes)),
                          ("other", json.dumps(record([1.0], device="another"))), ("empty", json.dumps(record([])))):
        Path(f"{name}.json").write_text(content)
    result = bench(*words)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.output.count("\n") == 1
    assert message in result.output


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "on a CUDA device, and there is none" in bench("--matrix").output
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "Set TRITON_INTERPRET=1" in bench("--matrix", "--check").output


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="runs in Triton's interpreter")
def test_checks_print_every_case_and_a_wrong_one_sets_the_exit_code(tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "checks.json"
    right = bench("--random", 3, "--seed", 5, "--check", "--out", out)
    assert right.exit_code == 0, right.output
    assert right.output.splitlines()[-1] == "3 cases, 0 of them wrong"
    assert len(json.loads(out.read_text())["share_of_allowed_error"]) == 3
    monkeypatch.setattr(bench_matrix, "check", lambda case, device: math.nan)
    wrong = bench("--random", 3, "--seed", 5, "--check")
    assert (wrong.exit_code, wrong.output.splitlines()[-1]) == (1, "3 cases, 3 of them wrong")


def test_random_cases_are_measured_in_parts_and_one_that_breaks_is_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(case: Case, seconds: float, longer_above: float) -> dict[str, Any]:
        if case == random_cases(4, 7)[2]:
            raise RuntimeError("the device is lost")
        return {**case._asdict(), "case": str(case), "ratio": 0.5, "measured": "device", "milliseconds": {"ours": 1.0}}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(bench_matrix, "measure", measured)
    out = tmp_path / "part.json"
    shown = bench("--random", 4, "--seed", 7, "--part", "1/2", "--out", out)
    assert shown.exit_code == 0, shown.output
    record = json.loads(out.read_text())
    assert [case.get("ratio") for case in record["cases"]] == [0.5, None]
    assert record["cases"][1]["skipped"] == "RuntimeError: the device is lost"
    assert record["drawn"] == [{"count": 4, "seed": 7}]


def test_an_item_comes_back_to_the_process_that_prepared_it() -> None:
    with Workers(2) as workers:
        workers.prepare(remember, [1, 2, 3])
        answers = {item: workers.result(pid_and_seen, item, 10) for item in (1, 2, 3)}
    assert all(10 * item in seen for item, (_, seen) in answers.items())
    assert sum(len(seen) for seen in dict(answers.values()).values()) == 3
    assert os.getpid() not in {pid for pid, _ in answers.values()}
    with Workers(1) as alone:
        alone.prepare(remember, [4])
        assert alone.result(pid_and_seen, 4, 10)[0] == os.getpid()


def test_a_process_that_ends_takes_no_other_item_with_it() -> None:
    with Workers(2) as workers:
        workers.prepare(end_at_2_after_3, [1, 2, 3, 4, 5, 6])
        answers = {}
        for item in range(1, 7):
            with suppress(BrokenProcessPool):
                answers[item] = workers.result(pid_and_seen, item, 1)
    assert answers.keys() == {1, 3, 4, 5, 6}
    assert all(item in seen for item, (_, seen) in answers.items())


def test_what_found_no_memory_has_a_second_turn_and_what_breaks_its_process_has_none(capsys) -> None:
    with Workers(1, apart=True) as workers:
        workers.prepare(too_large_beside_others, [1, 2, 4, 3, 5], again_after=(MemoryError,), report_every=2)
        assert re.search(r"^prepared 2 of 5 in \d+ s$", capsys.readouterr().out, re.MULTILINE)
        for item in (1, 4, 5):
            pid, seen = workers.result(pid_and_seen, item, 1)
            assert item in seen
            assert pid != os.getpid()
        with pytest.raises(MemoryError, match="2 is too large"):
            workers.result(pid_and_seen, 2, 1)
        with pytest.raises(ZeroDivisionError, match="the device is lost"):
            workers.result(pid_and_seen, 3, 1)


@pytest.mark.parametrize(("limit", "expected"), [(math.inf, [0.5]), (0.9, [0.5, 2.0]), (1.0, [0.5])])
def test_a_case_near_the_limit_is_measured_longer(limit: float, expected: list[float],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def walls(steps: dict[str, Any], seconds: float) -> dict[str, float]:
        asked.append(seconds)
        return {name: (0.95 if seconds < 1 else 0.8) if name == "ours" else 1.0 for name in steps}

    monkeypatch.setattr(bench_matrix, "inputs", lambda case, device: inputs(case, "cpu"))
    monkeypatch.setattr(bench_matrix, "losses", lambda case, device: losses(case, "cpu"))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(bench_matrix, "walls", walls)
    monkeypatch.setattr(bench_matrix, "copy_time_per_byte", lambda device: 1e-9)
    result = bench_matrix.measure(Case("soft", 4, 9, "float32"), 0.5, limit)
    assert asked == expected
    assert result["ratio"] == (0.8 if len(expected) == 2 else 0.95)


def test_a_contender_that_fails_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(bench_matrix, "inputs", lambda case, device: inputs(case, "cpu"))
    monkeypatch.setattr(bench_matrix, "losses", lambda case, device: losses(case, "cpu"))
    monkeypatch.setattr(torch, "compile", lambda *a, **k: refuse)
    monkeypatch.setattr(bench_matrix, "medians", lambda steps, *_: dict.fromkeys(steps, (2.0, 1.0)))
    monkeypatch.setattr(bench_matrix, "walls", lambda steps, seconds: dict.fromkeys(steps, 3.0))
    monkeypatch.setattr(bench_matrix, "copy_time_per_byte", lambda device: 1e-9)
    small = bench_matrix.measure(Case("soft", 4, 9, "float32"), 0.0)
    assert small["measured"] == "wall"
    assert small["ratio"] == 1.0
    assert small["failed"] == {"torch.compile": "RuntimeError: no compiler here"}
    large = bench_matrix.measure(Case("plain", 30000, 10, "float32"), 0.0)
    assert large["measured"] == "device"
    assert large["milliseconds"] == {"ours": 2.0, "torch": 2.0}
    assert math.isclose(large["floor_milliseconds"], (2 * 1200000 + 240000) * 1e-9)


def test_what_the_clock_measures_takes_turns_in_changing_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that becomes slower while it is measured is as slow for every contender."""
    clock, turns = [0.0], []

    def run(name: str, takes: float) -> None:
        turns.append(name)
        clock[0] += takes * (1 + clock[0])

    monkeypatch.setattr(bench_timing.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    steps = {"a": lambda: run("a", 1e-4), "b": lambda: run("b", 1e-4), "c": lambda: run("c", 2e-4)}
    found = bench_timing.walls(steps, 0.05, in_a_row=2)
    assert turns[9:21] == ["a", "a", "b", "b", "c", "c", "b", "b", "c", "c", "a", "a"]
    assert found["b"] / found["a"] == pytest.approx(1, rel=0.01)
    assert found["c"] / found["a"] == pytest.approx(2, rel=0.01)


def test_every_case_is_compiled_from_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    functions: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: functions.append(function) or function)
    case = Case("smoothed", 4, 9, "float32")
    formula = losses(case, "cpu")[1]
    first, second = bench_matrix._compiled(formula), bench_matrix._compiled(formula)
    assert functions[0].__code__ is not functions[1].__code__
    logits, target = inputs(case, "cpu")
    assert first(logits, target) == second(logits, target) == formula(logits, target)


def test_a_pause_comes_before_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[object] = []
    monkeypatch.setattr(bench_timing.time, "sleep", happened.append)
    taken = bench_timing.medians({"a": lambda: happened.append("a"), "b": lambda: happened.append("b")}, "cpu", 0.0,
                                 rounds=2, pause=0.3)
    assert happened[:6] == ["a"] * 3 + ["b"] * 3  # before anything is measured
    assert happened[6:] == [0.3, "a", 0.3, "b"] * 2
    assert set(taken) == {"a", "b"}
