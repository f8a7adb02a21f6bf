"""The tests of the kernels have few logits, whose gradient is made later; most of them are about the other way."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from torch import Tensor

MANY_BYTES = 16 << 20  # more than the logits of any test have


@pytest.fixture(autouse=True)
def gradients_are_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for many logits. Tests with the fixture ``few`` take both ways."""
    if find_spec("triton"):
        from encouraging.ops.triton import autograd

        monkeypatch.setattr(autograd, "few_bytes", 0)


@pytest.fixture(params=["few logits", "many logits"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the logits of a test count as few."""
    from encouraging.ops.triton import autograd

    monkeypatch.setattr(autograd, "few_bytes", MANY_BYTES if request.param == "few logits" else 0)
    return bool(request.param == "few logits")


@pytest.fixture(autouse=True)
def launches_are_those_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a prepared launch keeps which arguments are tensors and of which types, and hands addresses to the
    compiled kernel. The interpreter gets the tensors themselves, so that each launch checks here what it would hand
    over there."""
    if not find_spec("triton"):
        return
    from encouraging.ops.triton import cached_launch

    launched = cached_launch.Prepared.__call__
    types: dict[int, tuple[cached_launch.Prepared, list[object]]] = {}

    def checked(self: cached_launch.Prepared, device: int, *tensors: Tensor | None) -> None:
        now = [None if tensor is None else tensor.dtype for tensor in tensors]
        _, first = types.setdefault(id(self), (self, now))
        assert now == first, f"{self._kernel}: a launch that was prepared for {first} is called with {now}"
        if self._given is None:
            self._see_which_are_given(tensors)
        addresses = [tensor.data_ptr() for tensor in self._given(tensors)]
        expected = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        assert list(self._places((None, *addresses))) == expected
        launched(self, device, *tensors)

    monkeypatch.setattr(cached_launch.Prepared, "__call__", checked)
