"""What calls that repeat are made of, for the tests of the kernels' cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from encouraging import curves
from encouraging.ops import dispatch, repeat

EL = curves.conservative(0.75)
OWN = curves.custom(lambda gap: torch.nn.functional.softplus(-gap), lambda gap: torch.sigmoid(-gap), "own")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ROWS = 6
G = torch.Generator().manual_seed(5)
SOFT = torch.rand(ROWS, 37, generator=G).softmax(-1)
WEIGHT, EACH = torch.rand(37, generator=G) + 0.5, torch.rand(ROWS, 37, generator=G) + 0.5
DIVISOR = torch.tensor(7.0)


@contextmanager
def kernels() -> Iterator[None]:
    """Losses of single logits take the kernels, as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeat, "is_on_gpu", lambda input: True)
        patch.setattr(dispatch, "takes_elementwise", lambda *_, **__: True)
        yield
