"""A run directory: what is in it, and who may write there.

    config.json          what was asked for, and on what; its fingerprint tells runs apart
    metrics.jsonl        one line an epoch; no times, so that equal runs have equal files
    checkpoint-*         see checkpoint.py
    logits.safetensors   what the last epoch's model says about the test set, and the labels
    diagnosis.json       margins, energies, calibration and the like, as the report draws them
    timing.json          device, memory, seconds, epochs, samples
    final.json           the numbers; written last, so a run that has it is done
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from ..errors import RunError
from .files import read_json, write_json, write_whole

SCHEMA = 1


class RunDir:
    """One run's directory, made or found."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def done(self) -> bool:
        return (self.path / "final.json").is_file()

    def final(self) -> dict[str, Any]:
        return read_json(self.path / "final.json")

    def open(self, asked: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
        """Start or continue the run that was asked for; another run's directory is refused. Returns the fingerprint."""
        mark = fingerprint(asked)
        self.refuse_other(asked)
        path = self.path / "config.json"
        if not path.exists():
            write_json(path, {"schema": SCHEMA, "fingerprint": mark, "asked": asked, "environment": environment})
        return mark

    def refuse_other(self, asked: Mapping[str, Any]) -> None:
        """Say so when the directory holds another run than the one that was asked for."""
        path = self.path / "config.json"
        if not path.exists():
            return
        found = read_json(path)
        if found.get("schema") != SCHEMA:
            raise RunError(f"{path}: schema {found.get('schema')}, expected {SCHEMA}: it was written by another "
                           "version. Choose another --out.")
        if found.get("fingerprint") != fingerprint(asked):
            raise RunError(f"{self.path} holds another run: {difference(found.get('asked', {}), asked)}. It is "
                           "left as it is; choose another --out, or move it away.")

    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time. The kernel lets go of the lock when its holder ends, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written to ({error}). Choose another --out.") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                raise RunError(f"{self.path} is in use by another process (number {holder}). Wait for it, or choose "
                               "another --out.") from error
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

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

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        lines = []
        for number, line in enumerate(path.read_text(errors="replace").splitlines() if path.is_file() else (), 1):
            try:
                lines.append(dict(json.loads(line)))
            except (ValueError, TypeError) as error:
                raise RunError(f"{path}: line {number} is not a JSON object ({error}).") from error
        return lines

    def finish(self, final: Mapping[str, Any], timing: Mapping[str, Any], kept: Mapping[str, Tensor],
               diagnosis: Mapping[str, Any] | None = None) -> None:
        """Everything else first; ``final.json`` last."""
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in kept.items()}
        if plain:
            write_whole(self.path / "logits.safetensors", safetensors.torch.save(plain))
        if diagnosis is not None:
            write_json(self.path / "diagnosis.json", dict(diagnosis))
        write_json(self.path / "timing.json", {"schema": SCHEMA, **timing})
        write_json(self.path / "final.json", {"schema": SCHEMA, **final})


def fingerprint(asked: Mapping[str, Any]) -> str:
    """A digest of what was asked for."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def difference(found: Mapping[str, Any], asked: Mapping[str, Any], path: str = "") -> str:
    """The first few keys in which two requests differ, in words.

    >>> difference({"train": {"epochs": 3}, "seed": 0}, {"train": {"epochs": 2}, "seed": 0})
    'there train.epochs = 3, here 2'
    """
    return "; ".join(list(_differences(found, asked, path))[:3]) or "its configuration differs"


def _differences(found: Mapping[str, Any], asked: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in sorted({*found, *asked}):
        there, here = _table(found.get(key, "absent")), _table(asked.get(key, "absent"))
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            yield from _differences(there, here, f"{path}{key}.")
        elif there != here:
            yield f"there {path}{key} = {there!r}, here {here!r}"


def _table(value: Any) -> Any:
    """A list of tables (the stages) as a table by number, so that the key inside it is named; a single one as it is."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        if len(value) == 1:
            return value[0]
        return {str(number): item for number, item in enumerate(value, 1)}
    return value
