"""The figures about integrations in the documentation are those of the record, and its script runs."""

from __future__ import annotations

import importlib
import json
import os
import re
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RECORD = json.loads((REPOSITORY / "results/bench/integrations-cpu.json").read_text())
NAMES = {"the model's own": "the model's own", "with_curve": "`with_curve(model, curve)`", "fused": "`fused=True`",
         "fused, 64 MiB": "`fused=True, chunk_bytes=64 << 20`"}


def test_the_table_of_transformers_is_the_record() -> None:
    page = (REPOSITORY / "docs/transformers.md").read_text()
    steps = RECORD["llama"]["steps"]
    own = steps["the model's own"]["cpu_seconds"]
    for name, step in steps.items():
        seconds, memory = step["cpu_seconds"], step["peak_bytes"] / 2**20
        ratio = "1" if name == "the model's own" else f"{seconds / own:.2f}"
        assert f"| {NAMES[name]} | {seconds:.2f} | {ratio} | {memory:.0f} |" in page


def test_the_ranges_of_jax_are_the_record() -> None:
    page = " ".join((REPOSITORY / "docs/jax.md").read_text().split())
    found = [(name, ratio) for ratios in RECORD["jax"].values() for name, ratio in ratios.items()]
    for pattern, before in (("labels", "integer labels take "), ("probabilities, [ce]", "CE and EL take "),
                            ("smoothed, [ce]", "with label smoothing "),
                            ("(probabilities|smoothed), focal", "such as focal loss, ")):
        some = [ratio for name, ratio in found if re.match(pattern, name)]
        assert f"{before}{min(some):.2f} to {max(some):.2f}" in page


def test_the_script_measures_what_the_record_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # the script would set it for all that follows
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    script = importlib.import_module("integrations")
    sizes = (1, 8, 16, 40)
    assert script.STEPS.keys() == RECORD["llama"]["steps"].keys()
    seconds = script.interleaved({name: script.llama(name, *sizes) for name in script.STEPS}, 1, time.process_time)
    assert all(len(all_of) == 1 and all_of[0] > 0 for all_of in seconds.values())
    assert script.peak("fused", *sizes) > 0
    ratios = script.ratios(4, 10, 1)
    assert ratios.keys() == RECORD["jax"]["256 x 10"].keys()
    assert all(ratio > 0 for ratio in ratios.values())
