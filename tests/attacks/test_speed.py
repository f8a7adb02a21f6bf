"""``benchmarks/attack_speed.py`` at a size at which it is quick: what it writes down."""

from __future__ import annotations

import json
from pathlib import Path

from forked import run_python

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "attack_speed.py"


def test_every_case_is_measured_and_kept(tmp_path: Path) -> None:
    out = tmp_path / "bench" / "speed.json"
    words = ["--device", "cpu", "--images", "6", "--steps", "1", "--batch", "4", "--model", "attack_cnn",
             "--model", "resnet20"]
    run_python(SCRIPT, *words, "--out", out).check_returncode()
    cases = json.loads(out.read_text())["cases"]
    assert [(case["model"], case["layout"], case["what"], case["images"]) for case in cases] == [
        ("attack_cnn", "contiguous", "evaluate", 6),
        ("attack_cnn", "contiguous", "attack ce", 6),
        ("attack_cnn", "contiguous", "attack dlr", 6),
        ("attack_cnn", "channels_last", "evaluate", 6),
        ("attack_cnn", "channels_last", "attack ce", 6),
        ("resnet20", "contiguous", "evaluate", 6),
        ("resnet20", "contiguous", "attack ce", 1),
        ("resnet20", "channels_last", "evaluate", 6),
        ("resnet20", "channels_last", "attack ce", 1),
    ]
    assert all(case["seconds"] > 0 for case in cases)
