"""Two hundred hostile recipes, records and logits: each ends in a worded line, with nothing written elsewhere."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import synthetic_runs as synthetic
from encouraging.cli import app

RECIPE = '''
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
threads = 1
options = { validation = 100 }
train = { epochs = 1, max_steps = 1, lr = 0.1, batch_size = 64, milestones = [1] }
[arms.ce]
curve = "cross_entropy"
[arms.el]
curve = "encouraging"
log_end = 0.5
[[claims]]
metric = "accuracy"
arm = "el"
beats = "ce"
'''
ODD = ["-1", "0", "1e400", "nan", "true", "[]", "{}", '""', '"\\u0000"', '"../../x"', "[[1]]", "9" * 40, '"a:b"',
       '"folder:/nowhere"', '"timm/nothing"', "[1, 'x']", "{ a = 1 }", '"' + "x" * 300 + '"', "1979-05-27", "inf"]


def outside(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def hostile_recipe(rng: random.Random) -> str:
    lines = RECIPE.strip().splitlines()
    kind = rng.randrange(5)
    at = rng.randrange(len(lines))
    if kind == 0 and "=" in lines[at]:
        lines[at] = lines[at].split("=")[0] + "= " + rng.choice(ODD)
    elif kind == 1:
        lines[at] = "".join(rng.choice(string.printable) for _ in range(rng.randrange(40)))
    elif kind == 2:
        lines.insert(at, f"{rng.choice(['train', 'options', 'stages', 'arms', 'model_options', 'x', 'claims'])} = "
                         f"{rng.choice(ODD)}")
    elif kind == 3:
        del lines[at]
    else:
        lines = [line.replace("0.1", rng.choice(ODD)).replace("ce", rng.choice(["ce", "../ce", "c e", "é"]))
                 for line in lines]
    return "\n".join(lines)


def damaged(tree: object, rng: random.Random) -> object:
    """The tree with one of its leaves or branches replaced by something odd."""
    odd = rng.choice([None, -1, 1e308, float("nan"), "x" * 200, [], {}, [[[]]], True, "../../x", {"a": {"b": 1}}])
    if isinstance(tree, dict) and tree and rng.random() < 0.85:
        key = rng.choice(list(tree))
        if rng.random() < 0.1:
            return {k: v for k, v in tree.items() if k != key}
        return {**tree, key: damaged(tree[key], rng)}
    if isinstance(tree, list) and tree and rng.random() < 0.85:
        at = rng.randrange(len(tree))
        return [*tree[:at], damaged(tree[at], rng), *tree[at + 1 :]]
    return odd


def hostile_logits(rng: random.Random, path: Path) -> None:
    draw = np.random.default_rng(rng.randrange(10**6))
    logits = draw.normal(size=(rng.choice([0, 1, 7]), rng.choice([0, 1, 2, 5]))).astype(
        rng.choice(["float16", "float32", "float64", "int64", "complex64", "bool"]))
    labels = rng.choice([np.zeros(len(logits), int), np.full(len(logits), 99), np.array(["a"]), np.zeros((2, 2)),
                         np.array(3), np.full(len(logits), -1)])
    if rng.random() < 0.3 and logits.size and logits.dtype.kind == "f":
        logits.flat[0] = rng.choice([np.nan, np.inf, -np.inf, 1e30])
    names = {"logits": logits, "labels": labels}
    if rng.random() < 0.3:
        names["ood_logits"] = logits[:, :1]
    if rng.random() < 0.2:
        del names[rng.choice(list(names))]
    np.savez(path, **names)
    if rng.random() < 0.3:
        content = bytearray(path.read_bytes())
        for _ in range(5):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content[: rng.randrange(1, len(content) + 1)])


def check(words: list[str], folder: Path, allowed: tuple[str, ...]) -> int:
    before = outside(folder)
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, repr(done.exception))
    assert done.exit_code in (0, 1, 2), (words, done.output)
    assert "Traceback" not in done.output, (words, done.output)
    if done.exit_code == 2:
        assert done.output.strip(), words
    new = {path for path in outside(folder) - before if not path.startswith(allowed)}
    assert not new, (words, new)
    return done.exit_code


@pytest.mark.parametrize("part", range(4))
def test_hostile_recipes_end_in_words(tmp_path, part):
    rng, codes = random.Random(part), []
    for number in range(20):
        path = tmp_path / f"r{number}.toml"
        path.write_text(hostile_recipe(rng))
        out = tmp_path / "out" / str(number)
        codes.append(check(["run", str(path), "--out", str(out), "--device", "cpu", "--jobs", "1"], tmp_path,
                           (str(tmp_path / "out"),)))
    assert codes.count(2) >= 8, "hardly any was refused: the cases are too tame"


@pytest.mark.parametrize("part", range(3))
def test_hostile_records_end_in_words(tmp_path, part):
    rng, codes = random.Random(100 + part), []
    good = synthetic.shipped("digits", 2, examples=60)
    for number in range(20):
        folder = tmp_path / f"records{number}"
        folder.mkdir()
        for place, record in enumerate(good[:3]):
            tree = {"schema": 1, "asked": record.config, "environment": record.environment, "final": record.final,
                    "timing": record.timing, "epochs": record.epochs, "diagnosis": record.diagnosis}
            text = json.dumps(damaged(tree, rng) if place == 0 else tree)
            (folder / f"{place}.json").write_text(text[: rng.randrange(len(text))] if rng.random() < 0.1 else text)
        page = str(tmp_path / "page.md")
        codes.append(check(["results", str(folder), "-o", page], tmp_path, (page,)))
        codes.append(check(["collect", str(folder), "-o", str(tmp_path / "collected" / str(number))], tmp_path,
                           (str(tmp_path / "collected"),)))
    assert codes.count(2) >= 4


@pytest.mark.parametrize("part", range(3))
def test_hostile_logits_end_in_words(tmp_path, part):
    rng, codes = random.Random(200 + part), []
    for number in range(20):
        path = tmp_path / f"l{number}.npz"
        hostile_logits(rng, path)
        page = str(tmp_path / "page.html")
        codes.append(check(["diagnose", str(path), "--out", page, "--json", str(tmp_path / "page.json")], tmp_path,
                           (str(tmp_path / "page"),)))
    assert codes.count(2) >= 8
