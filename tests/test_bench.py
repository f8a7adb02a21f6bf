"""The benchmark runs anywhere and writes down what it saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from encouraging import bench


def test_a_small_run_writes_every_contender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "bench.json"
    shapes = [bench.Shape(8, 5, torch.float32), bench.Shape(8, 5, torch.float32, width=3)]
    record = bench.run(shapes, out, device="cpu", seconds=0.0)
    assert json.loads(out.read_text()) == json.loads(json.dumps(record))
    loss, layer = record["cases"]
    assert {"ours, EL", "ours, CE", "ours, EL smoothed", "torch CE", "published EL"} <= set(loss["results"])
    assert {"ours, EL", "torch linear + CE"} <= set(layer["results"])
    for case in record["cases"]:
        for name, result in case["results"].items():
            assert "failed" not in result, f"{name}: {result}"
            assert result["milliseconds"] > 0
            assert result["share_of_floor"] == pytest.approx(case["floor_milliseconds"] / result["milliseconds"])
    assert "No GPU is measured here" in capsys.readouterr().out


def test_the_published_loss_is_ours_where_it_is_accurate() -> None:
    logits, target = torch.randn(64, 10), torch.randint(10, (64,))
    ours = bench.curve_loss(logits, target, bench.EL)
    torch.testing.assert_close(bench._published(logits, target), ours, rtol=1e-5, atol=1e-5)
