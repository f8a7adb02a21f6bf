"""The final weights of a finished run."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ..errors import RunError


def load_run_weights(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """The weights with which a finished run was evaluated in the end: those of its last epoch, of its best one, or an
    average, by its ``train.conclude_on``.

    Raises:
        RunError: they cannot be read, or do not fit the model.
    """
    path = folder / "weights.safetensors"
    try:
        weights = safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: the weights cannot be read ({error}). Train the run again with `encouraging run`."
                       ) from error
    own = {name: tensor.shape for name, tensor in model.state_dict().items()}
    other = {name: tensor.shape for name, tensor in weights.items()}
    if own != other:
        names = sorted(name for name in {*own, *other} if own.get(name) != other.get(name))
        raise RunError(f"{path}: the weights are not those of the model that the recipe describes; {names[0]} differs. "
                       "Train the run again with `encouraging run`.")
    return weights
