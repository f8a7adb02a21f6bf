"""Records: what is kept of a run without its tensors, one small JSON file per run, and how runs and records are read.

The settings of a run are stored under the key ``asked`` in files, and are called ``config`` here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RunError
from . import RunDir
from .attack_results import read_attacks
from .files import read_json, write_whole

SCHEMA = 1
OTHER_FILES = ("config.json", "timing.json", "diagnosis.json", "attacks.json")  # of a run directory, beside final.json


@dataclass(frozen=True)
class Record:
    """One finished run: its settings, the machine, its final numbers, its cost, its epochs and its diagnosis; the
    metrics that its task declares, and the recipe with its claims, where it was kept; and what ``encouraging attack``
    measured later."""

    config: dict[str, Any]
    environment: dict[str, Any]
    final: dict[str, Any]
    timing: dict[str, Any]
    epochs: list[dict[str, Any]] = field(default_factory=list)
    diagnosis: dict[str, Any] | None = None
    metrics: list[dict[str, Any]] | None = None
    recipe_tree: dict[str, Any] | None = None
    attacks: dict[str, Any] | None = None

    @property
    def numbers(self) -> dict[str, Any]:
        """All that claims, tables and figures may name: the final numbers, and under ``attacks`` the accuracy by attack
        and epsilon."""
        if not self.attacks:
            return self.final
        tables = {name: entry["accuracy"] for name, entry in self.attacks.get("attacks", {}).items()}
        return {**self.final, "attacks": {**self.final.get("attacks", {}), **tables}}

    @property
    def recipe(self) -> str:
        return str(self.config["recipe"])

    @property
    def arm(self) -> str:
        return str(self.config["arm"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def key(self) -> tuple[str, str, int]:
        """Which run this is: recipe, arm and seed."""
        return self.recipe, self.arm, self.seed


def read_records(*folders: str | Path) -> list[Record]:
    """Every finished run below these folders, run directory or record, in the order of recipe, arm and seed.

    Raises:
        RunError: a folder does not exist, a file is damaged or of another version, or two runs contradict each other.
    """
    records: dict[tuple[str, str, int], Record] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise RunError(f"{folder}: expected a directory of runs or records.")
        for path in sorted(folder.rglob("*.json")):
            record = _read(path)
            if record is None:
                continue
            _check(record, path)
            other = records.get(record.key)
            if other is not None and (other.config, other.final) != (record.config, record.final):
                raise RunError(f"{path}: another run of {record.recipe}, {record.arm}, seed {record.seed} below these "
                               "folders has other settings or numbers. Pass only one of the two.")
            if other is None or record.attacks or not other.attacks:
                records[record.key] = record
    return [records[key] for key in sorted(records)]


def _read(path: Path) -> Record | None:
    if path.name == "final.json" and (path.parent / "config.json").is_file():
        run = RunDir(path.parent)
        config = run.read_config()
        if not {"asked", "environment"} <= config.keys():
            raise RunError(f"{path.parent / 'config.json'}: expected the keys asked and environment.")
        diagnosis = path.parent / "diagnosis.json"
        return Record(config["asked"], config["environment"], run.final(), read_json(path.parent / "timing.json"),
                      run.metrics(), read_json(diagnosis) if diagnosis.is_file() else None, config.get("metrics"),
                      config.get("recipe"), read_attacks(path.parent))
    if path.name in OTHER_FILES or path.name.startswith("checkpoint-"):
        return None
    content = read_json(path)
    if not {"asked", "environment", "final", "timing"} <= content.keys():
        return None
    if content.get("schema") != SCHEMA:
        raise RunError(f"{path}: schema {content.get('schema')}, expected {SCHEMA}: it was written by another version. "
                       "Read it with that version, or collect the run again.")
    return Record(content["asked"], content["environment"], content["final"], content["timing"],
                  content.get("epochs", []), content.get("diagnosis"), content.get("metrics"), content.get("recipe"),
                  content.get("attacks"))


def _check(record: Record, path: Path) -> None:
    """Records come from anywhere, and names in them become folders: check here whatever a reader relies on."""
    config = record.config
    kinds = {"asked": (config, dict), "final": (record.final, dict), "timing": (record.timing, dict),
             "epochs": (record.epochs, list), "diagnosis": (record.diagnosis, dict | None),
             "metrics": (record.metrics, list | None), "recipe": (record.recipe_tree, dict | None),
             "attacks": (record.attacks, dict | None)}
    for name, (value, kind) in kinds.items():
        if not isinstance(value, kind):
            raise RunError(f"{path}: {name} is a {type(value).__name__}, expected {kind}.")
    for name, entry in (record.attacks or {}).get("attacks", {}).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("accuracy"), dict):
            raise RunError(f"{path}: attacks.{name} has no table of accuracies by epsilon.")
    for name in ("recipe", "arm"):
        if not isinstance(config.get(name), str) or not config[name]:
            raise RunError(f"{path}: asked.{name} is {config.get(name)!r}, expected a name.")
    if not isinstance(config.get("seed"), int):
        raise RunError(f"{path}: asked.seed is {config.get('seed')!r}, expected a number.")


def collect(runs: str | Path, out: str | Path) -> list[Path]:
    """Write one record per finished run, ``<out>/<recipe>/<arm>-seed<k>.json``, and return their paths."""
    written = []
    for record in read_records(runs):
        path = Path(out) / record.recipe / f"{record.arm}-seed{record.seed}.json"
        if not path.resolve().is_relative_to(Path(out).resolve()) or "/" in record.arm or "/" in record.recipe:
            raise RunError(f"the recipe {record.recipe!r} with the arm {record.arm!r} would be written outside of "
                           f"{out}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = {"schema": SCHEMA, "asked": record.config, "environment": record.environment, "final": record.final,
                 "timing": record.timing, "epochs": record.epochs, "diagnosis": record.diagnosis}
        parts |= {name: part for name, part in (("metrics", record.metrics), ("recipe", record.recipe_tree),
                                                        ("attacks", record.attacks)) if part}
        write_whole(path, _in_lines(parts).encode())
        written.append(path)
    return written


def _in_lines(parts: dict[str, Any]) -> str:
    """JSON with one line per part, epoch and metric: short files whose differences can be read."""
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
