"""The tests of the kernels have few logits, whose gradient is made later; most of them are about the other way."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True)
def gradients_are_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for many logits. ``test_triton_few_launches.py`` has both ways."""
    if find_spec("triton"):
        from encouraging.ops.triton import autograd

        monkeypatch.setattr(autograd, "few_bytes", 0)
