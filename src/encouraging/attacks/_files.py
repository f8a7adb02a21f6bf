"""State files of attacks, to continue after a stop: written whole or not at all, each for one model and dataset."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, RunError
from ..whole_file import replace_file
from ._model import modules_of


def digest(model: object, x: Tensor, y: Tensor, *settings: object) -> str:
    """A hash of the data, the settings, and the weights of a module or of the modules that a function calls."""
    sha = hashlib.sha256(repr(settings).encode())
    weights = model.state_dict() if isinstance(model, nn.Module) else {
        f"{number}.{name}": value for number, module in enumerate(modules_of(model))
        for name, value in module.state_dict().items()}
    for name, value in {**weights, "x": x, "y": y}.items():
        sha.update(f"{name} {tuple(value.shape)} {value.dtype}".encode() if isinstance(value, Tensor)
                   else f"{name} {value!r}".encode())
        if isinstance(value, Tensor) and value.numel():
            sha.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:32]


def write_json(path: Path, value: dict[str, Any]) -> None:
    _write(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path, key: str | None = None) -> dict[str, Any]:
    """A state that :func:`write_json` wrote with this ``key`` among its values; with any key if it is None."""
    try:
        value = json.loads(path.read_bytes())
        written = value["key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error
    if key is not None:
        _check_key(path, key, written)
    return dict(value)


def write_tensors(path: Path, key: str, tensors: dict[str, Tensor]) -> None:
    buffer = io.BytesIO()
    torch.save({"key": key, **{name: tensor.cpu() for name, tensor in tensors.items()}}, buffer)
    _write(path, buffer.getvalue())


def read_tensors(path: Path, key: str) -> dict[str, Tensor]:
    """Tensors that :func:`write_tensors` wrote with this key."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        written = state.pop("key")
    except Exception as error:  # torch.load raises errors of many classes
        raise _unreadable(path, error) from error
    _check_key(path, key, written)
    return state


def _write(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise RunError(f"{path}: the results so far could not be written ({error}). The file of before is unchanged: "
                       "make room, or make the folder writable, and attack again.") from error


def _check_key(path: Path, key: str, written: object) -> None:
    if written != key:
        raise ArgumentError(f"{path} is the state of another model, other data or other settings. Give another path, "
                            "or delete the file to begin anew.")


def _unreadable(path: Path, error: Exception) -> ArgumentError:
    return ArgumentError(f"{path} is not the state of an attack ({error}). Give another path, or delete the file to "
                         "begin anew.")
