"""A run directory: its files, and which process may write there.

    config.json          the config, whose fingerprint identifies the run; environment; metrics and recipe, for reports
    metrics.jsonl        one line per epoch; no times, so that equal runs have equal files
    checkpoint-*         see checkpoint.py
    branches/            checkpoints from which other runs start; see branches.py
    logits.safetensors   the model's logits on the test set, and the labels
    weights.safetensors  the weights of the model with the final numbers
    diagnosis.json       margins, energies, calibration and the like, as the report draws them
    files/               other files of the task
    timing.json          device, memory, seconds, epochs, samples
    final.json           the numbers; written last, so a run that has it is finished
    failed.json          the message of a run that diverged; ignored if there is a final.json
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from filelock import FileLock, Timeout
from torch import Tensor

from ..errors import RunError
from .checkpoint import host_copies
from .files import read_json, remove_parts, write_json, write_whole
from .task import Conclusion

SCHEMA = 1
ABSENT = "absent"  # the value of a key that a config does not have


class RunDir:
    """The directory of one run, which need not exist yet."""

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
        numbers = read_json(self.path / "final.json")
        if numbers.get("schema") != SCHEMA:
            raise RunError(f"{self.path / 'final.json'}: schema {numbers.get('schema')}, expected {SCHEMA}: it was "
                           "written by another version. Read it with that version, or move the folder away to train "
                           "again.")
        return numbers

    def open(self, config: Mapping[str, Any], environment: Mapping[str, Any],
             about: Mapping[str, Any] | None = None) -> str:
        """Start or continue this run, and return its fingerprint. See :meth:`refuse_other`."""
        own_fingerprint = fingerprint(config)
        self.refuse_other(config)
        path = self.path / "config.json"
        if self.empty or not path.exists() or read_json(path).get("fingerprint") != own_fingerprint:
            write_json(path, {"schema": SCHEMA, "fingerprint": own_fingerprint, "asked": config,
                              "environment": environment, **(about or {})})
        return own_fingerprint

    @property
    def empty(self) -> bool:
        """Whether nothing has been trained here: no epoch, no checkpoint, no result. A run that was refused because of
        its data, for example, leaves only its config."""
        names = ("checkpoint-*", "branches/*", "final.json", "failed.json")
        lines = self.path / "metrics.jsonl"
        return not (any(any(self.path.glob(name)) for name in names) or (lines.is_file() and lines.stat().st_size))

    def refuse_other(self, config: Mapping[str, Any]) -> None:
        """Raise a RunError if the directory holds a run with another config that has been trained."""
        path = self.path / "config.json"
        if not path.exists():
            return
        existing = read_json(path)
        if existing.get("schema") != SCHEMA:
            raise RunError(f"{path}: schema {existing.get('schema')}, expected {SCHEMA}: it was written by another "
                           "version. Choose another --out.")
        if existing.get("fingerprint") != fingerprint(config) and not self.empty:
            raise RunError(f"{self.path} holds another run: {difference(existing.get('asked', {}), config)}. It is "
                           "left as it is; choose another --out, or move it away.")

    def read_config(self) -> dict[str, Any]:
        """All of ``config.json``; the config itself is under ``asked``."""
        return read_json(self.path / "config.json")

    def environment(self) -> dict[str, Any]:
        """The environment in which the run was started."""
        environment = self.read_config().get("environment")
        if not isinstance(environment, dict) or not {"threads", "instructions"} <= environment.keys():
            raise RunError(f"{self.path / 'config.json'}: expected an environment with threads and instructions. Move "
                           "the folder away to start over.")
        return environment

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process at a time write here. The system releases the lock however its holder ends."""
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
            raise RunError(f"{self.path}: cannot be written to ({error}). Make it writable, or use another "
                           "folder.") from error
        try:
            yield
        finally:
            lock.release()

    def rewrite_metrics(self, lines: list[dict[str, Any]]) -> None:
        """Write exactly the epochs of the checkpoint from which a run resumes."""
        write_whole(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        try:
            with open(self.path / "metrics.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise RunError(f"{self.path / 'metrics.jsonl'}: cannot be written to ({error}). The last checkpoint is "
                           "untouched; free some space and run again to continue.") from error

    def metrics(self) -> list[dict[str, Any]]:
        """One line per epoch. An incomplete last line (after a power loss) is skipped: a run that is continued trains
        this epoch again, and a finished one has all of its lines."""
        path = self.path / "metrics.jsonl"
        text = path.read_text(errors="replace").splitlines() if path.is_file() else []
        lines = []
        for number, line in enumerate(text, 1):
            try:
                lines.append(dict(json.loads(line)))
            except (ValueError, TypeError) as error:
                if number < len(text):
                    raise RunError(f"{path}: line {number} is not a JSON object ({error}).") from error
        return lines

    def finish(self, final: Mapping[str, Any], timing: Mapping[str, Any], conclusion: Conclusion,
               weights: Mapping[str, Tensor]) -> None:
        """Write the results; ``final.json`` is the last file."""
        for name, tensors in (("logits", conclusion.tensors), ("weights", weights)):
            if tensors:
                write_whole(self.path / f"{name}.safetensors", safetensors.torch.save(host_copies(tensors)))
        for name, content in conclusion.files.items():
            if Path(name).name != name or name.startswith("."):
                raise RunError(f"a task keeps a file called {name!r}: expected a plain name without folders.")
            (self.path / "files").mkdir(exist_ok=True)
            write_whole(self.path / "files" / name, content)
        if conclusion.diagnosis is not None:
            write_json(self.path / "diagnosis.json", dict(conclusion.diagnosis))
        self.sync_metrics()
        write_json(self.path / "timing.json", {"schema": SCHEMA, **timing})
        write_json(self.path / "final.json", {"schema": SCHEMA, **final})

    def note_divergence(self, error: Exception) -> None:
        """Write ``failed.json``, so that tables and verdicts can count a run that diverged."""
        write_json(self.path / "failed.json", {"schema": SCHEMA, "kind": type(error).__name__, "message": str(error)})

    def sync_metrics(self) -> None:
        """Flush the lines of all epochs to the disk, before ``final.json`` says that the run is finished."""
        path = self.path / "metrics.jsonl"
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def fingerprint(config: Mapping[str, Any]) -> str:
    """A digest of a run's config."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def difference(other: Mapping[str, Any], config: Mapping[str, Any], most: int | None = 3) -> str:
    """The keys in which two configs differ, in words: the first ``most`` and the number of others, or all of them.

    ``other`` is called "there" and ``config`` "here".

    >>> difference({"train": {"epochs": 3}, "seed": 0}, {"train": {"epochs": 2}, "seed": 0})
    'there train.epochs = 3, here 2'
    >>> difference({"batch": 6}, {"seed": 0})
    'there batch = 6, here it is not set; there seed is not set, here 0'
    """
    differences = [f"there {key} {'is not set' if theirs == ABSENT else f'= {theirs!r}'}, "
                   f"here {'it is not set' if ours == ABSENT else repr(ours)}"
                   for key, theirs, ours in differing(other, config)]
    more = [] if most is None or len(differences) <= most else [f"and {len(differences) - most} more"]
    return "; ".join([*differences[:most], *more]) or "its configuration differs"


def differing(other: Mapping[str, Any], config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two configs differ, each with both values; ABSENT is the value of a missing key."""
    for key in sorted({*other, *config}):
        theirs, ours = _table(other.get(key, ABSENT)), _table(config.get(key, ABSENT))
        if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
            yield from differing(theirs, ours, f"{path}{key}.")
        elif theirs != ours:
            yield f"{path}{key}", theirs, ours


def _table(value: Any) -> Any:
    """A list of tables (the stages) as a table by number, so that differing keys are named; a single table as it is."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        if len(value) == 1:
            return value[0]
        return {str(number): item for number, item in enumerate(value, 1)}
    return value
