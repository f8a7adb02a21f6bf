"""Checkpoints: tensors in safetensors, the other state in JSON, one digest over both. Loading one never runs code.

``checkpoint-<step>.safetensors`` is written first and ``checkpoint-<step>.json``, which holds the digest, second: a
checkpoint exists once its JSON file does. The newest two are kept, so that a damaged one costs only one interval. Each
has the best epoch's weights (tensors named ``best.*``).
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
    """An intact checkpoint: the step at which it was taken, its tensors, and its other state."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def snapshot(step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> tuple[dict[str, Tensor], str]:
    """Copies of the tensors, and the other state as JSON: training can continue while they are written."""
    return host_copies(tensors), json.dumps({"schema": SCHEMA, "step": step, "state": state})


def host_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU: safetensors refuses other memory formats and tensors that share memory."""
    return {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()}


def write_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], state_json: str) -> None:
    """Write what :func:`snapshot` has returned, then remove the checkpoints that are no longer needed."""
    content = safetensors.torch.save(dict(tensors))
    record = {"digest": _digest(content, state_json), "content": json.loads(state_json)}
    write_whole(folder / f"checkpoint-{step:09d}.safetensors", content)
    write_whole(folder / f"checkpoint-{step:09d}.json", json.dumps(record).encode())
    _prune(folder, step)


def load_checkpoint(folder: Path, fingerprint: str | None, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint of this run, or None. ``say`` is told about newer ones that are damaged."""
    refused = []
    for step in sorted(_steps(folder), reverse=True):
        try:
            checkpoint = read_checkpoint(folder, step)
            if fingerprint is not None and checkpoint.state.get("fingerprint") != fingerprint:
                raise CheckpointError(f"{_json(folder, step)} belongs to another run: its recipe, arm or seed differ.")
        except CheckpointError as error:
            refused.append(str(error))
            continue
        if refused:
            say(" ".join(refused) + f" The previous checkpoint, of step {step}, is used instead.")
        return checkpoint
    if refused:
        raise CheckpointError(" ".join(refused) + f" No other checkpoint is left in {folder}: move it away to start "
                              "over.")
    return None


def read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """Read one checkpoint.

    Raises:
        CheckpointError: a file is missing, damaged or of another version.
    """
    path = _json(folder, step)
    try:
        record = json.loads(path.read_bytes())
        content = path.with_suffix(".safetensors").read_bytes()
        if record["digest"] != _digest(content, json.dumps(record["content"])):
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
    """The state dict of a run's ``last`` or ``best`` epoch; that of the EMA model if the run has one."""
    checkpoint = load_checkpoint(Path(folder), None, print)
    if checkpoint is None:
        raise CheckpointError(f"{folder}: expected the directory of a run with a checkpoint, found no checkpoint.")
    prefixes = ("best.",) if which == "best" else ("ema.", "model.")
    for prefix in prefixes:
        weights = {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items()
                   if name.startswith(prefix)}
        if weights:
            return weights
    raise CheckpointError(f"{folder}: the checkpoint has no {which!r} weights; there are 'last' and 'best'.")


def _json(folder: Path, step: int) -> Path:
    return folder / f"checkpoint-{step:09d}.json"


def _steps(folder: Path) -> list[int]:
    return [int(match[1]) for path in folder.glob("checkpoint-*.json") if (match := _NAME.fullmatch(path.name))]


def _digest(content: bytes, state_json: str) -> str:
    return hashlib.sha256(hashlib.sha256(content).digest() + state_json.encode()).hexdigest()


def _prune(folder: Path, newest: int) -> None:
    """Keep the newest checkpoints. One of a later step than the one just written was damaged, and is removed too."""
    keep = sorted(step for step in _steps(folder) if step <= newest)[-KEEP:]
    for path in folder.glob("checkpoint-*"):
        match = re.match(r"checkpoint-(\d+)\.", path.name)
        if match and int(match[1]) not in keep:
            path.unlink(missing_ok=True)
