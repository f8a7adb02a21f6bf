"""A last batch of one example, and a batch norm."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from encouraging.engine import Train, execute
from encouraging.errors import RunError
from toy_tasks import Blobs, run_spec


class Normed(Blobs):
    def build(self) -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16)), nn.Linear(16, 3))


@pytest.mark.parametrize("probe_every", [0, 1])
def test_the_error_names_the_settings_of_the_recipe(tmp_path: Path, probe_every: int) -> None:
    train = Train(epochs=1, lr=0.1, batch_size=16, probe_every=probe_every)
    with pytest.raises(RunError, match=r"a batch of one example .*torch.Size\(\[1, 16\]\).*batch_size \(here 16\)"):
        execute(run_spec(tmp_path, Normed(count=17), (train,)))


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    class Wrong(Blobs):
        def loss(self, *given: object) -> None:
            raise ValueError("something else")

    with pytest.raises(ValueError, match=r"^something else$"):
        execute(run_spec(tmp_path, Wrong(), (Train(epochs=1, lr=0.1, batch_size=16),)))
