"""``benchmarks/translation_speed.py``: what it writes, and that a trained run keeps its own vocabulary there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from forked import run_python
from translation_toys import write_multi30k

ROOT = Path(__file__).parents[1]
SMALL = ("model_options.layers=1", "model_options.width=16", "model_options.hidden=16", "train.epochs=1",
         "train.probe_every=0")


def call(tmp_path: Path, *words: object) -> None:
    done = run_python(*words, "--data", tmp_path / "data", "--device", "cpu",
                      *(part for word in SMALL for part in ("--set", word)), TOKENIZERS_PARALLELISM="false")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_measures_training_beside_a_bare_loop_and_the_search_of_a_trained_run(tmp_path):
    for path in list((write_multi30k(tmp_path / "data") / "multi30k").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    call(tmp_path, "-m", "encouraging", "run", "multi30k-de-en", "--out", tmp_path / "runs", "--seeds", "1", "--arm",
         "ce_ls", "--set", "options.vocabulary=60")
    out = tmp_path / "bench" / "translation.json"
    call(tmp_path, ROOT / "benchmarks" / "translation_speed.py", "--out", out, "--run",
         tmp_path / "runs" / "multi30k-de-en" / "ce_ls" / "seed0", "--steps", 1, "--warm", 1, "--set",
         "options.vocabulary=120")
    found = json.loads(out.read_text())
    assert found["tokens_per_second"].keys() == {"engine", "engine, eager", "bare loop"}
    assert min(found["tokens_per_second"].values()) > 0
    assert (found["search"]["sentences"], found["search"]["beam"]) == (10, 5)
    assert "Self CPU" in out.with_suffix(".txt").read_text()
