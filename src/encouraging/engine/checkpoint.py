"""Checkpoints: tensors in safetensors, the rest in JSON, one digest over both. Loading one can run no code.

``checkpoint-<step>.safetensors`` is written first and ``checkpoint-<step>.json``, which holds the digest, second: a
checkpoint exists once its JSON does. The newest two stay, the second so that damage to the first costs one interval;
the best epoch's weights are in each (tensors named ``best.*``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from ..errors import CheckpointError
from .files import write_whole

SCHEMA = 1
KEEP = 2
_NAME = re.compile(r"checkpoint-(\d+)\.json")


@dataclass(frozen=True)
class Checkpoint:
    """A whole one: where it was made, its tensors, and the rest."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write a checkpoint, then remove those that are no longer needed."""
    write_checkpoint(folder, step, *snapshot(step, tensors, state))


def snapshot(step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> tuple[dict[str, Tensor], str]:
    """What a checkpoint of this moment holds, apart from all that goes on changing."""
    # safetensors refuses other memory formats and tensors that share memory; a contiguous copy is neither.
    plain = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
             for name, tensor in tensors.items()}
    return plain, json.dumps({"schema": SCHEMA, "step": step, "state": state})


def write_checkpoint(folder: Path, step: int, plain: Mapping[str, Tensor], rest: str) -> None:
    """Write what :func:`snapshot` has returned, then remove the checkpoints that are no longer needed."""
    content = safetensors.torch.save(dict(plain))
    record = {"digest": _digest(content, rest), "content": json.loads(rest)}
    write_whole(folder / f"checkpoint-{step:09d}.safetensors", content)
    write_whole(folder / f"checkpoint-{step:09d}.json", json.dumps(record).encode())
    _prune(folder, step)


def load_checkpoint(folder: Path, fingerprint: str | None, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint of this run; a damaged one is named and the one before it is used."""
    steps = sorted(_steps(folder), reverse=True)
    refused = []
    for step in steps:
        try:
            found = read_checkpoint(folder, step)
            if fingerprint is not None and found.state.get("fingerprint") != fingerprint:
                raise CheckpointError(f"{_json(folder, step)} belongs to another run: its recipe, arm or seed differ.")
        except CheckpointError as error:
            refused.append(str(error))
            continue
        if refused:
            say(" ".join(refused) + f" The previous checkpoint, of step {step}, is used instead.")
        return found
    if refused:
        raise CheckpointError(" ".join(refused) + f" No other checkpoint is left in {folder}: move it away to start "
                              "over.")
    return None


def read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """One checkpoint, refused in words when a byte of it is not what was written."""
    path = _json(folder, step)
    try:
        record = json.loads(path.read_bytes())
        content = path.with_suffix(".safetensors").read_bytes()
        rest = json.dumps(record["content"])
        if record["digest"] != _digest(content, rest):
            raise CheckpointError(f"{path.stem}: the digest does not match: the file was damaged or changed.")
        if record["content"]["schema"] != SCHEMA:
            raise CheckpointError(f"{path.stem}: schema {record['content']['schema']}, expected {SCHEMA}: it was "
                                  "written by another version.")
        return Checkpoint(step, safetensors.torch.load(content), record["content"]["state"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path.stem}: cannot be read ({type(error).__name__}: {error}).") from error


def load_weights(folder: str | Path, which: str = "last") -> dict[str, Tensor]:
    """The state dict of a run's ``last`` epoch, or of its ``best``; the averaged one where it has an EMA."""
    found = load_checkpoint(Path(folder), None, print)
    if found is None:
        raise CheckpointError(f"{folder} has no checkpoint.")
    prefixes = ("best.",) if which == "best" else ("ema.", "model.")
    for prefix in prefixes:
        chosen = {name.removeprefix(prefix): tensor for name, tensor in found.tensors.items()
                  if name.startswith(prefix)}
        if chosen:
            return chosen
    raise CheckpointError(f"{folder}: the checkpoint has no {which!r} weights; there are 'last' and 'best'.")


def _json(folder: Path, step: int) -> Path:
    return folder / f"checkpoint-{step:09d}.json"


def _steps(folder: Path) -> list[int]:
    return [int(match[1]) for path in folder.glob("checkpoint-*.json") if (match := _NAME.fullmatch(path.name))]


def _digest(content: bytes, rest: str) -> str:
    return hashlib.sha256(hashlib.sha256(content).digest() + rest.encode()).hexdigest()


def _prune(folder: Path, newest: int) -> None:
    """Keep the newest ones. A higher step than the one just written is a damaged leftover: it goes first."""
    kept = sorted(step for step in _steps(folder) if step <= newest)[-KEEP:]
    for path in folder.glob("checkpoint-*"):
        match = re.match(r"checkpoint-(\d+)\.", path.name)
        if match and int(match[1]) not in kept:
            path.unlink(missing_ok=True)
