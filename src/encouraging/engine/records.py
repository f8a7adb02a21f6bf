"""Records: what is left of a run when its tensors are gone, one small JSON each, and how runs and records are read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RunError
from . import RunDir
from .files import read_json, write_whole

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """One finished run: what was asked for, what came out, what it cost, how it went, what its model knows."""

    asked: dict[str, Any]
    environment: dict[str, Any]
    final: dict[str, Any]
    timing: dict[str, Any]
    epochs: list[dict[str, Any]] = field(default_factory=list)
    diagnosis: dict[str, Any] | None = None

    @property
    def place(self) -> tuple[str, str, int]:
        return self.asked["recipe"], self.asked["arm"], self.asked["seed"]


def read_records(*folders: str | Path) -> list[Record]:
    """Every finished run below these folders, be it a run directory or a record, in the order of recipe, arm, seed."""
    found: dict[tuple[str, str, int], Record] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise RunError(f"{folder}: expected a directory of runs or records.")
        for path in sorted(folder.rglob("*.json")):
            record = _read(path)
            if record is None:
                continue
            _check(record, path)
            other = found.get(record.place)
            if other is not None and (other.asked, other.final) != (record.asked, record.final):
                recipe, arm, seed = record.place
                raise RunError(f"{path}: another run of {recipe}, {arm}, seed {seed} below these folders has other "
                               "settings or numbers. Give one of the two.")
            found[record.place] = record
    return [found[place] for place in sorted(found)]


def _read(path: Path) -> Record | None:
    if path.name == "final.json" and (path.parent / "config.json").is_file():
        run = RunDir(path.parent)
        config = run.read_config()
        if not {"asked", "environment"} <= config.keys():
            raise RunError(f"{path.parent / 'config.json'}: expected the keys asked and environment.")
        known = path.parent / "diagnosis.json"
        return Record(config["asked"], config["environment"], run.final(), read_json(path.parent / "timing.json"),
                      run.metrics(), read_json(known) if known.is_file() else None)
    if path.name in ("config.json", "timing.json", "diagnosis.json") or path.name.startswith("checkpoint-"):
        return None
    content = read_json(path)
    if not {"asked", "environment", "final", "timing"} <= content.keys():
        return None
    if content.get("schema") != SCHEMA:
        raise RunError(f"{path}: schema {content.get('schema')}, expected {SCHEMA}.")
    return Record(content["asked"], content["environment"], content["final"], content["timing"],
                  content.get("epochs", []), content.get("diagnosis"))


def _check(record: Record, path: Path) -> None:
    """Records come from anywhere, and names in them become folders: whatever a reader relies on is looked at here."""
    asked = record.asked
    kinds = {"asked": (asked, dict), "final": (record.final, dict), "timing": (record.timing, dict),
             "epochs": (record.epochs, list), "diagnosis": (record.diagnosis, dict | None)}
    for name, (value, kind) in kinds.items():
        if not isinstance(value, kind):
            raise RunError(f"{path}: {name} is a {type(value).__name__}, expected {kind}.")
    for name in ("recipe", "arm"):
        if not isinstance(asked.get(name), str) or not asked[name]:
            raise RunError(f"{path}: asked.{name} is {asked.get(name)!r}, expected a name.")
    if not isinstance(asked.get("seed"), int):
        raise RunError(f"{path}: asked.seed is {asked.get('seed')!r}, expected a number.")


def collect(runs: str | Path, out: str | Path) -> list[Path]:
    """Write one record a finished run: ``<out>/<recipe>/<arm>-seed<k>.json``."""
    written = []
    for record in read_records(runs):
        recipe, arm, seed = record.place
        path = Path(out) / recipe / f"{arm}-seed{seed}.json"
        if not path.resolve().is_relative_to(Path(out).resolve()) or "/" in arm or "/" in recipe:
            raise RunError(f"the recipe {recipe!r} with the arm {arm!r} would be written outside of {out}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = {"schema": SCHEMA, "asked": record.asked, "environment": record.environment, "final": record.final,
                 "timing": record.timing, "epochs": record.epochs, "diagnosis": record.diagnosis}
        write_whole(path, _in_lines(parts).encode())
        written.append(path)
    return written


def _in_lines(parts: dict[str, Any]) -> str:
    """JSON with a line a part, an epoch and a metric: short files whose differences can be read."""
    lines = []
    for name, part in parts.items():
        if isinstance(part, dict):
            inner = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in part.items())
            lines.append(f"{json.dumps(name)}: {{\n  {inner}\n }}")
        elif isinstance(part, list):
            inner = ",\n  ".join(json.dumps(item) for item in part)
            lines.append(f"{json.dumps(name)}: [\n  {inner}\n ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(part)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"
