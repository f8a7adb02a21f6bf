"""``benchmarks/show.py``: what records of speeds become in docs/performance.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FACTS = {"device": "a card", "torch": "2.13", "date": "2026-01-01"}


def test_speeds_stand_on_the_page_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "docs/performance.md"
    page.parent.mkdir()
    before = (ROOT / "docs/performance.md").read_text()
    page.write_text(before)
    rates = {"bare": 5000.0, "bare, recorded": 6800.0, "engine": 6460.0, "input": 68000.0}
    images = {**FACTS, "cases": [{"model": "torchvision/resnet50", "size": 224, "batch": 64, "precision": "bf16",
                                  "graph": "recorded", "images_per_second": rates}]}
    how = {"model": "attack_cnn", "layout": "channels_last", "algorithms": "by trial", "images": 10000}
    attacks = {**FACTS, "cases": [{**how, "what": "evaluate", "seconds": 0.01},
                                  {**how, "what": "attack dlr", "steps": 40, "epsilons": 7, "batch": 1000,
                                   "seconds": 8.125}]}
    for name, content in (("images", images), ("attacks", attacks)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    subprocess.run([sys.executable, ROOT / "benchmarks/show.py", "--images", "images.json", "--attacks",
                    "attacks.json"], check=True, cwd=tmp_path, timeout=120)
    after = page.read_text()
    for line in ("a card, torch 2.13, 2026-01-01: `images.json`.", "a card, torch 2.13, 2026-01-01: `attacks.json`.",
                 "| torchvision/resnet50 at 224 pixels, batch 64, bf16 | 6800 | 6460 | 68000 | 0.95 | 10.00 |",
                 "| a forward pass over all images | attack_cnn | 10000 | channels last | by trial | 0.01 |",
                 "| PGD by dlr, 40 steps at 7 epsilons | attack_cnn | 10000 | channels last | by trial | 8.12 |"):
        assert f"\n{line}\n" in after, line
    begin, end = "<!-- images: begin -->", "<!-- attacks: end -->"
    assert after[: after.index(begin)] == before[: before.index(begin)]
    assert after[after.index(end):] == before[before.index(end):]


def test_the_speed_of_translation_stands_beside_a_bare_loop_s(tmp_path: Path) -> None:
    page = tmp_path / "docs/performance.md"
    page.parent.mkdir()
    page.write_text((ROOT / "docs/performance.md").read_text())
    record = {"recipe": "multi30k-de-en", "precision": "tf32", "environment": {"device": "a card", "torch": "2.13"},
              "tokens_per_second": {"engine": 300_000.0, "engine, eager": 90_000.0, "bare loop": 100_000.0},
              "search": {"sentences": 1000, "beam": 5, "seconds": 2.25}}
    (tmp_path / "translation.json").write_text(json.dumps(record))
    subprocess.run([sys.executable, ROOT / "benchmarks/show.py", "--translation", "translation.json"], check=True,
                   cwd=tmp_path, timeout=120)
    after = page.read_text()
    for line in ("a card, torch 2.13, `multi30k-de-en` in tf32: `translation.json`.", "| engine | 300000 | 3.00 |",
                 "| engine, eager | 90000 | 0.90 |", "| bare loop | 100000 | 1.00 |",
                 "1000 sentences with beam 5 take 2.2 s; `translation.txt` shows where the time goes."):
        assert f"\n{line}\n" in after, line


def test_the_matrix_stands_by_argument_and_by_its_slowest_calls(tmp_path: Path) -> None:
    page = tmp_path / "docs/performance.md"
    page.parent.mkdir()
    page.write_text((ROOT / "docs/performance.md").read_text())
    cases = [{"call": call, "curve": curve, "case": f"{call} of {curve}", "ratio": ratio, "measured": "device",
              "milliseconds": {"ours": ratio, "torch": 2.0, "torch.compile": 1.0}}
             for call, curve, ratio in (("plain", "own", 1.25), ("plain", "focal", 0.5), ("soft", "focal", 0.375),
                                        ("plain", "normal", 0.25), ("new", "normal", 0.125))]
    record = {**FACTS, "triton": "3", "encouraging": "0", "median_ratio": 0.375, "worst_ratio": 1.25,
              "cases": [*cases, {"call": "plain", "curve": "normal", "failed": {"ours": "an error"}}]}
    (tmp_path / "matrix.json").write_text(json.dumps(record))
    subprocess.run([sys.executable, ROOT / "benchmarks/show.py", "--matrix", "matrix.json"], check=True, cwd=tmp_path,
                   timeout=120)
    after = page.read_text()
    for line in ("| labels | 2 | 0.38 | 0.50 |\n| soft targets | 1 | 0.38 | 0.38 |\n| a curve of your own | 1 | 1.25 | "
                 "1.25 |\n| new | 1 | 0.12 | 0.12 |",
                 "| 1.25 | plain of own | 1.250 | 2.000 | 1.000 | device |\n| 0.50 | plain of focal |"):
        assert f"\n{line}" in after, line
    summary = " ".join(after[after.index("<!-- matrix: begin"):after.index("| what |")].split())
    assert "Of 5 calls that we chose, 1 takes more than 1.03 of the time of the same formula in torch" in summary
    assert "The median takes **0.38** of it, the slowest **1.25**. Measured forward and backward on one a card" \
           in summary


def test_where_no_call_is_slower_than_torch_the_page_says_so_first(tmp_path: Path) -> None:
    page = tmp_path / "docs/performance.md"
    page.parent.mkdir()
    page.write_text((ROOT / "docs/performance.md").read_text())
    case = {"call": "plain", "curve": "focal", "case": "plain of focal", "ratio": 0.5, "measured": "device",
            "milliseconds": {"ours": 0.5, "torch": 2.0, "torch.compile": 1.0}}
    record = {**FACTS, "triton": "3", "encouraging": "0", "median_ratio": 0.5, "worst_ratio": 0.5, "cases": [case]}
    (tmp_path / "matrix.json").write_text(json.dumps(record))
    subprocess.run([sys.executable, ROOT / "benchmarks/show.py", "--matrix", "matrix.json"], check=True, cwd=tmp_path,
                   timeout=120)
    after = " ".join(page.read_text().split())
    assert "<!-- matrix: begin --> None of 1 calls that we chose takes more than 1.03 of the time" in after


def test_newer_times_of_ours_replace_older_ones_on_logits_alone(tmp_path: Path) -> None:
    page = tmp_path / "docs/performance.md"
    (tmp_path / "docs/images").mkdir(parents=True)
    page.write_text((ROOT / "docs/performance.md").read_text())

    def record(milliseconds: float, **facts: object) -> str:
        result = {"milliseconds": milliseconds, "share_of_floor": 0.5, "extra_mib": 8.0, "host_milliseconds": 0.25}
        cases = [{"shape": shape, "width": width, "floor_milliseconds": 1.0,
                  "results": {"ours, EL": result, "torch CE": result}}
                 for shape, width in (("8 x 10", 0), ("8, 4, 10", 4))]
        return json.dumps({**FACTS, **facts, "cases": cases})

    (tmp_path / "all.json").write_text(record(4.0, encouraging="1"))
    (tmp_path / "ours.json").write_text(record(2.0, encouraging="2", date="2026-02-02"))
    (tmp_path / "other.json").write_text(record(2.0, encouraging="2", device="another card"))
    case = {"rows": 256, "classes": 10, "ratio": 1.5, "cross_entropy_peak_bytes": 2**20,
            "encouraging_peak_bytes": 2**21}
    for name, limit in (("cpu", 2.5), ("smoothed", None)):
        (tmp_path / f"{name}.json").write_text(json.dumps(
            {**FACTS, "threads": 1, "capability": "AVX2", "cases": [{**case, "limit": limit}]}))
    command = [sys.executable, ROOT / "benchmarks/show.py", "all.json", "cpu.json", "smoothed.json", "--ours"]
    assert subprocess.run([*command, "other.json"], cwd=tmp_path, timeout=120, capture_output=True).returncode == 1
    subprocess.run([*command, "ours.json"], check=True, cwd=tmp_path, timeout=120)
    after = page.read_text()
    for line in ("| 8 x 10 | ours, EL | 2.000 |", "| 8 x 10 | torch CE | 4.000 |", "| 8, 4, 10 | ours, EL | 4.000 |",
                 "| 256 x 10 | 1.50 | 2.5 | 1 | 2 |", "| 256 x 10 | 1.50 | 1 | 2 |"):
        assert f"\n{line}" in after, line
    assert "*ours* on logits of 2, 2026-02-02: `ours.json`" in " ".join(after.split())


def test_calls_on_a_cpu_are_a_table_per_shape(tmp_path: Path) -> None:
    page = tmp_path / "docs/performance.md"
    page.parent.mkdir(parents=True)
    page.write_text((ROOT / "docs/performance.md").read_text())

    def case(call: str, curve: str, numbers: list[float], ratio: float, rows: int = 256) -> dict[str, object]:
        return {"call": call, "rows": rows, "classes": 10, "curve": curve, "numbers": numbers,
                "eager": {"ratio": ratio}, "compiled": {"ratio": 2 * ratio}}

    cases = [case("plain", "conservative", [0.75], 0.5), case("plain", "focal", [2.0], 0.6),
             case("mse", "square", [1.0], 0.7), case("plain", "conservative", [0.75], 1.1, rows=32)]
    (tmp_path / "cpu.json").write_text(json.dumps({**FACTS, "threads": 1, "capability": "AVX2", "cases": cases}))
    subprocess.run([sys.executable, ROOT / "benchmarks/show.py", "--cpu-matrix", "cpu.json"], check=True, cwd=tmp_path,
                   timeout=120)
    after = page.read_text()
    for line in ("| 256 x 10 | conservative(0.75), eager | conservative(0.75), compiled | focal(2), eager | focal(2), "
                 "compiled |", "| labels | 0.50 | 1.00 | 0.60 | 1.20 |", "| labels | 1.10 | 2.20 |  |  |",
                 "| squared error with its mirror | 0.70 | 1.40 |  |  |"):
        assert f"\n{line}" in after, line
    assert "compiled beside compiled: median 1.30, slowest 2.20, 3 of 4 above 1.03" in " ".join(after.split())
