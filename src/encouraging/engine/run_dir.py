"""A run directory: what is in it, and who may write there.

    config.json          the config, whose fingerprint tells runs apart; the machine; metrics and recipe, for reports
    metrics.jsonl        one line per epoch; no times, so that equal runs have equal files
    checkpoint-*         see checkpoint.py
    branches/            checkpoints from which other runs start; see branches.py
    logits.safetensors   what the model says about the test set, and the labels
    weights.safetensors  the model that the last numbers are about
    diagnosis.json       margins, energies, calibration and the like, as the report draws them
    files/               what else the task keeps
    timing.json          device, memory, seconds, epochs, samples
    final.json           the numbers; written last, so a run that has it is done
    failed.json          what a run said that diverged; it counts unless there is a final.json
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from ..errors import RunError
from .files import read_json, remove_parts, write_json, write_whole
from .task import Conclusion

SCHEMA = 1
ABSENT = "absent"  # of a key that a config does not have


class RunDir:
    """One run's directory, made or found."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def done(self) -> bool:
        return (self.path / "final.json").is_file()

    @property
    def diverged(self) -> bool:
        return (self.path / "failed.json").is_file() and not self.done

    def final(self) -> dict[str, Any]:
        """The final numbers."""
        found = read_json(self.path / "final.json")
        if found.get("schema") != SCHEMA:
            raise RunError(f"{self.path / 'final.json'}: schema {found.get('schema')}, expected {SCHEMA}: it was "
                           "written by another version. Read it with that version, or move the folder away to train "
                           "again.")
        return found

    def open(self, config: Mapping[str, Any], environment: Mapping[str, Any],
             about: Mapping[str, Any] | None = None) -> str:
        """Start or continue this run; the directory of another run that was trained is refused. Returns the
        fingerprint."""
        mark = fingerprint(config)
        self.refuse_other(config)
        path = self.path / "config.json"
        if not path.exists() or read_json(path).get("fingerprint") != mark:
            write_json(path, {"schema": SCHEMA, "fingerprint": mark, "asked": config, "environment": environment,
                              **(about or {})})
        return mark

    @property
    def empty(self) -> bool:
        """Whether nothing has been trained here: no epoch, no checkpoint, no end. A run that is refused for its data,
        for example, leaves only its config."""
        names = ("checkpoint-*", "branches/*", "final.json", "failed.json")
        lines = self.path / "metrics.jsonl"
        return not (any(any(self.path.glob(name)) for name in names) or (lines.is_file() and lines.stat().st_size))

    def refuse_other(self, config: Mapping[str, Any]) -> None:
        """Say so when the directory holds another run than this one, of which something has been trained."""
        path = self.path / "config.json"
        if not path.exists():
            return
        found = read_json(path)
        if found.get("schema") != SCHEMA:
            raise RunError(f"{path}: schema {found.get('schema')}, expected {SCHEMA}: it was written by another "
                           "version. Choose another --out.")
        if found.get("fingerprint") != fingerprint(config) and not self.empty:
            raise RunError(f"{self.path} holds another run: {difference(found.get('asked', {}), config)}. It is "
                           "left as it is; choose another --out, or move it away.")

    def read_config(self) -> dict[str, Any]:
        """All of ``config.json``; the config itself is under ``asked``."""
        return read_json(self.path / "config.json")

    def environment(self) -> dict[str, Any]:
        """The machine that the run was started on."""
        found = self.read_config().get("environment")
        if not isinstance(found, dict) or not {"threads", "instructions"} <= found.keys():
            raise RunError(f"{self.path / 'config.json'}: expected an environment with threads and instructions. Move "
                           "the folder away to start over.")
        return found

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time. The system lets go of the lock when its holder ends, however it ends."""
        lock, holder = FileLock(self.path / "lock", timeout=0), self.path / "lock.pid"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            holder.write_text(str(os.getpid()))
            remove_parts(self.path)
        except Timeout as error:
            other = holder.read_text(errors="replace").strip() if holder.is_file() else "unknown"
            raise RunError(f"{self.path} is in use by another process (number {other}). Wait for it, or choose "
                           "another --out.") from error
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written to ({error}). Make it writable, or choose another "
                           "place.") from error
        try:
            yield
        finally:
            lock.release()

    def rewrite_metrics(self, lines: list[dict[str, Any]]) -> None:
        """On resuming: exactly the epochs that the checkpoint knows."""
        write_whole(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        try:
            with open(self.path / "metrics.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise RunError(f"{self.path / 'metrics.jsonl'}: cannot be written to ({error}). The last checkpoint is "
                           "untouched; make room and run again to continue.") from error

    def metrics(self, say: Callable[[str], None] = lambda words: None) -> list[dict[str, Any]]:
        """A line per epoch; a torn last line (a crash of the machine can leave one) is skipped, and ``say`` is told."""
        path = self.path / "metrics.jsonl"
        text = path.read_text(errors="replace").splitlines() if path.is_file() else []
        lines = []
        for number, line in enumerate(text, 1):
            try:
                lines.append(dict(json.loads(line)))
            except (ValueError, TypeError) as error:
                if number < len(text):
                    raise RunError(f"{path}: line {number} is not a JSON object ({error}).") from error
                say(f"{path}: the last line is torn and was skipped.")
        return lines

    def finish(self, final: Mapping[str, Any], timing: Mapping[str, Any], end: Conclusion,
               weights: Mapping[str, Tensor]) -> None:
        """Everything else first; ``final.json`` last."""
        for name, tensors in (("logits", end.tensors), ("weights", weights)):
            plain = {key: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
                     for key, tensor in tensors.items()}
            if plain:
                write_whole(self.path / f"{name}.safetensors", safetensors.torch.save(plain))
        for name, content in end.files.items():
            if Path(name).name != name or name.startswith("."):
                raise RunError(f"a task keeps a file called {name!r}: expected a plain name without folders.")
            (self.path / "files").mkdir(exist_ok=True)
            write_whole(self.path / "files" / name, content)
        if end.diagnosis is not None:
            write_json(self.path / "diagnosis.json", dict(end.diagnosis))
        self.sync_metrics()
        write_json(self.path / "timing.json", {"schema": SCHEMA, **timing})
        write_json(self.path / "final.json", {"schema": SCHEMA, **final})

    def note_divergence(self, error: Exception) -> None:
        """A run that diverged leaves a trace, so that tables and verdicts can count it."""
        write_json(self.path / "failed.json", {"schema": SCHEMA, "kind": type(error).__name__, "message": str(error)})

    def sync_metrics(self) -> None:
        """The lines of all epochs reach the disk before ``final.json`` says that the run is done."""
        path = self.path / "metrics.jsonl"
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def fingerprint(config: Mapping[str, Any]) -> str:
    """A digest of a run's config."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def difference(found: Mapping[str, Any], config: Mapping[str, Any], most: int | None = 3) -> str:
    """The keys in which two configs differ, in words: the first few and how many more there are, or all of them.

    >>> difference({"train": {"epochs": 3}, "seed": 0}, {"train": {"epochs": 2}, "seed": 0})
    'there train.epochs = 3, here 2'
    >>> difference({"batch": 6}, {"seed": 0})
    'there batch = 6, here it is not set; there seed is not set, here 0'
    """
    every = [f"there {key} {'is not set' if there == ABSENT else f'= {there!r}'}, "
             f"here {'it is not set' if here == ABSENT else repr(here)}"
             for key, there, here in differing(found, config)]
    more = [] if most is None or len(every) <= most else [f"and {len(every) - most} more"]
    return "; ".join([*every[:most], *more]) or "its configuration differs"


def differing(found: Mapping[str, Any], config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two configs differ, with what stands there and here; ABSENT where a key is missing."""
    for key in sorted({*found, *config}):
        there, here = _table(found.get(key, ABSENT)), _table(config.get(key, ABSENT))
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            yield from differing(there, here, f"{path}{key}.")
        elif there != here:
            yield f"{path}{key}", there, here


def _table(value: Any) -> Any:
    """A list of tables (the stages) as a table by number, so that the key inside it is named; a single one as it is."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        if len(value) == 1:
            return value[0]
        return {str(number): item for number, item in enumerate(value, 1)}
    return value
