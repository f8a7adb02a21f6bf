"""The device of ``--device``."""

from __future__ import annotations

import pytest
import torch

from encouraging.engine.environment import choose_device
from encouraging.errors import RunError


@pytest.mark.parametrize("wanted", ["mps", "meta", "xpu:0", "abacus"])
def test_other_kinds_of_devices_are_refused_before_anything_is_trained(wanted: str) -> None:
    with pytest.raises(RunError, match=f"--device {wanted}: expected cpu, cuda or auto"):
        choose_device(wanted)


def test_a_gpu_with_a_number_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and CUDA graphs are made on the current one: a graph of another one would record nothing."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert choose_device("cuda") == torch.device("cuda")
    assert choose_device("auto") == torch.device("cuda")
    assert not current
    assert [choose_device("cuda:1")] == [torch.device("cuda:1")] == current
    with pytest.raises(RunError, match="--device cuda:2: torch sees 2 GPUs here, the last of which is cuda:1"):
        choose_device("cuda:2")
