"""Records: a run without its tensors, as one small JSON file per run or per arm, and how they are read.

Files store the settings of a run under the key ``asked``; here they are called ``config``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import RunError
from . import RunDir
from .arm_records import is_arm_file, pack, text_of, unpack
from .attack_results import read_attacks
from .files import LOOKS_FILE, read_json
from .outputs import make_folder, write_output
from .run_dir import fingerprint

SCHEMA = 1
OTHER_FILES = ("config.json", "timing.json", "diagnosis.json", "attacks.json", LOOKS_FILE)  # of a run, with final.json


@dataclass(frozen=True)
class Record:
    """One finished run: settings, environment, final numbers, cost, epochs and diagnosis; the metrics that its task
    declares, and the recipe with its claims if the run has kept it.

    ``failed`` is the message of a run that diverged, which has no final numbers. ``looks`` is the plan by which the
    recipe's claims are judged, if there is one. ``attacks`` is what ``encouraging attack`` measured later."""

    config: dict[str, Any]
    environment: dict[str, Any]
    final: dict[str, Any]
    timing: dict[str, Any]
    epochs: list[dict[str, Any]] = field(default_factory=list)
    diagnosis: dict[str, Any] | None = None
    metrics: list[dict[str, Any]] | None = None
    recipe_tree: dict[str, Any] | None = None
    failed: str | None = None
    looks: dict[str, Any] | None = None
    attacks: dict[str, Any] | None = None

    @property
    def trained_epochs(self) -> int:
        """The epochs of all stages; 0 if the timing has none. Older timings count those of the last stage alone."""
        last = {line.get("stage", 1): int(line["epoch"]) for line in self.epochs if "epoch" in line}
        return max(sum(last.values()), int(self.timing["epochs"])) if "epochs" in self.timing else 0

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that claims, tables and figures may name: the final ones, and under ``attacks`` the accuracy per
        attack and epsilon."""
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


def read_records(*folders: str | Path, failed: bool = False) -> list[Record]:
    """Every finished run below these folders (run directories and records), sorted by recipe, arm and seed.

    Args:
        folders: where to look.
        failed: whether to include runs that diverged.

    Raises:
        RunError: a folder does not exist, a file is damaged or of another version, or two runs with the same settings
            have different numbers.
    """
    records: dict[tuple[str, str, int, str], Record] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise RunError(f"{folder}: expected a directory of runs or records.")
        for path in sorted(folder.rglob("*.json")):
            for record in _read(path):
                _check(record, path)
                key = (*record.key, fingerprint(record.config))
                earlier = records.get(key)
                if record.failed is not None:
                    if failed and earlier is None:
                        records[key] = record
                    continue
                if earlier is not None and earlier.failed is None and earlier.final != record.final:
                    raise RunError(f"{path}: another run of {record.recipe}, {record.arm}, seed {record.seed} below "
                                   "these folders has other numbers. Pass only one of the two.")
                if earlier is None or record.attacks or not earlier.attacks:
                    records[key] = record
    return [records[key] for key in sorted(records)]


def _read(path: Path) -> list[Record]:
    """The run or runs of a file; an empty list if it is another kind of file."""
    if path.name in ("final.json", "failed.json") and (path.parent / "config.json").is_file():
        return _read_run_dir(path)
    if path.name in OTHER_FILES or path.name.startswith("checkpoint-") or _is_file_of_task(path):
        return []
    content = read_json(path)
    if not {"asked", "environment", "final", "timing"} <= content.keys() and not is_arm_file(content):
        return []
    if content.get("schema") != SCHEMA:
        raise RunError(f"{path}: schema {content.get('schema')}, expected {SCHEMA}: it was written by another version. "
                       "Read it with that version, or collect the run again.")
    if is_arm_file(content):
        return unpack(content, path)
    return [Record(content["asked"], content["environment"], content["final"], content["timing"],
                   content.get("epochs", []), content.get("diagnosis"), content.get("metrics"), content.get("recipe"),
                   content.get("failed"), content.get("looks"), content.get("attacks"))]


def _read_run_dir(path: Path) -> list[Record]:
    """The run of a ``final.json`` or ``failed.json``; an empty list for the latter if the run has finished since."""
    run = RunDir(path.parent)
    config = run.read_config()
    if not {"asked", "environment"} <= config.keys():
        raise RunError(f"{path.parent / 'config.json'}: expected the keys asked and environment. Move the folder away "
                       "to train the run again.")
    recipe = config.get("recipe")
    about: dict[str, Any] = {"metrics": config.get("metrics"), "recipe_tree": recipe, "looks": _looks(path, recipe)}
    if path.name == "failed.json":
        message = str(read_json(path).get("message") or "diverged")
        return [] if run.done else [Record(config["asked"], config["environment"], {}, {}, failed=message, **about)]
    diagnosis = path.parent / "diagnosis.json"
    return [Record(config["asked"], config["environment"], run.final(), read_json(path.parent / "timing.json"),
                   run.metrics(), read_json(diagnosis) if diagnosis.is_file() else None,
                   attacks=read_attacks(path.parent), **about)]


def _is_file_of_task(path: Path) -> bool:
    """Whether the file is in ``files/`` of a run, where a task may write anything."""
    return path.parent.name == "files" and (path.parents[1] / "config.json").is_file()


def _looks(final: Path, recipe: Any) -> dict[str, Any] | None:
    """The planned looks of a run's recipe: from the recipe's folder, or from the recipe that the run has kept."""
    parents = final.resolve().parents
    if len(parents) > 2 and (parents[2] / LOOKS_FILE).is_file():
        return read_json(parents[2] / LOOKS_FILE)
    if isinstance(recipe, dict) and recipe.get("looks"):
        return {"looks": recipe["looks"], "seeds": recipe.get("seeds")}
    return None


def _check(record: Record, path: Path) -> None:
    """Check whatever readers rely on: records come from anywhere, and names in them become folders."""
    config = record.config
    kinds = {"asked": (config, dict), "final": (record.final, dict), "timing": (record.timing, dict),
             "epochs": (record.epochs, list), "diagnosis": (record.diagnosis, dict | None),
             "metrics": (record.metrics, list | None), "recipe": (record.recipe_tree, dict | None),
             "failed": (record.failed, str | None), "looks": (record.looks, dict | None),
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
    """Write one record per run that finished or diverged, ``<out>/<recipe>/<arm>-seed<k>.json``; returns the paths.

    If a record of other settings has this name already, the new one gets its fingerprint as part of the name.
    """
    written = []
    for record in read_records(runs, failed=True):
        path = _free_path(_path_inside(Path(out), record, f"{record.arm}-seed{record.seed}.json"), record)
        if record.failed is not None and path.is_file() and "failed" not in read_json(path):
            continue  # a finished run of the same settings is worth more than one that diverged
        make_folder(path.parent)
        parts = {"schema": SCHEMA, "asked": record.config, "environment": record.environment, "final": record.final,
                 "timing": record.timing, "epochs": record.epochs, "diagnosis": without_text(record.diagnosis)}
        parts |= {name: part for name, part in (("metrics", record.metrics), ("recipe", record.recipe_tree),
                                                ("failed", record.failed), ("looks", record.looks),
                                                ("attacks", record.attacks)) if part}
        write_output(path, _in_lines(parts).encode())
        written.append(path)
    return written


def collect_by_arm(runs: str | Path, out: str | Path) -> list[Path]:
    """Write one file per arm, ``<out>/<recipe>/<arm>-seeds.json``, with all runs that finished or diverged; returns the
    paths.

    Runs of other seeds in an earlier file stay in it. If the earlier file has other settings, the new one gets its
    fingerprint as part of the name.
    """
    arms: dict[tuple[str, str, str], list[Record]] = {}
    for record in read_records(runs, failed=True):
        record = replace(record, diagnosis=without_text(record.diagnosis))
        arms.setdefault((record.recipe, record.arm, _settings(record)), []).append(record)
    written = []
    for (_, arm, settings), records in arms.items():
        path = _path_inside(Path(out), records[0], f"{arm}-seeds.json")
        earlier = _read_arm_file(path)
        if any(_settings(record) != settings for record in earlier):
            path = path.with_stem(f"{path.stem}-{settings[:8]}")
            earlier = _read_arm_file(path)
        finished = {record.seed for record in earlier if record.failed is None}
        records = [record for record in records if record.failed is None or record.seed not in finished]
        new = {record.seed for record in records}
        make_folder(path.parent)
        content = pack([*records, *(record for record in earlier if record.seed not in new)])
        write_output(path, text_of({"schema": SCHEMA, **content}).encode())
        written.append(path)
    return written


def without_text(diagnosis: dict[str, Any] | None) -> dict[str, Any] | None:
    """A diagnosis without the ``sentences`` that its parts quote: records are published, and the text belongs to the
    dataset.

    >>> without_text({"translation": {"signature": "nrefs:1", "sentences": {"best": []}}})
    {'translation': {'signature': 'nrefs:1'}}
    >>> without_text({"summaries": {"best": 3, "sentences": []}, "classes": 10})
    {'summaries': {'best': 3}, 'classes': 10}
    """
    if diagnosis is None:
        return None
    return {name: {key: value for key, value in part.items() if key != "sentences"} if isinstance(part, dict) else part
            for name, part in diagnosis.items()}


def _read_arm_file(path: Path) -> list[Record]:
    """The runs of an arm's file, if it exists; any other file of this name is refused, and not replaced."""
    if not path.is_file():
        return []
    records = _read(path)
    if not records:
        raise RunError(f"{path}: is not a file of records, and was not replaced. Choose another --out.")
    return records


def _settings(record: Record) -> str:
    """The fingerprint of a run's settings without the seed."""
    return fingerprint({**record.config, "seed": None})


def _path_inside(out: Path, record: Record, name: str) -> Path:
    """The path of a record. Names come from anywhere, and must not lead out of the folder."""
    path = out / record.recipe / name
    if not path.resolve().is_relative_to(out.resolve()) or "/" in record.arm or "/" in record.recipe:
        raise RunError(f"the recipe {record.recipe!r} with the arm {record.arm!r} would be written outside of {out}: "
                       "expected names without slashes. Rename them in the record.")
    return path


def _free_path(path: Path, record: Record) -> Path:
    """Where to write a record: over an earlier one of the same settings, and beside one of other settings. A file that
    is not a record of this arm and seed is refused."""
    if not path.is_file():
        return path
    config = read_json(path).get("asked")
    if not isinstance(config, dict) or tuple(map(config.get, ("recipe", "arm", "seed"))) != record.key:
        raise RunError(f"{path}: is not a record of {record.recipe}, {record.arm}, seed {record.seed}, and was not "
                       "replaced. Choose another --out.")
    return path if config == record.config else path.with_stem(f"{path.stem}-{fingerprint(record.config)[:8]}")


def _in_lines(parts: dict[str, Any]) -> str:
    """JSON with one line per part, epoch and metric: short files with readable diffs."""
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
