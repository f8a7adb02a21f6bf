"""The loss over a split vocabulary against the unsplit definition, in real processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from encouraging import curves, parallel_curve_loss
from encouraging.engine.distributed import leave
from encouraging.errors import ArgumentError, DtypeError, ShapeError
from forked import forkserver
from split_vocabulary import CASES, run_rank

WORLDS = (2, 4)
TIMEOUT = 240


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], list[str]]:
    """How every case went on every rank of both worlds, which run side by side."""
    folders = {world: tmp_path_factory.mktemp(f"world{world}") for world in WORLDS}
    context = forkserver()
    processes = [context.Process(target=run_rank, args=(rank, world, folder))
                 for world, folder in folders.items() for rank in range(world)]
    for process in processes:
        process.start()
    end = time.monotonic() + TIMEOUT
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))  # what was not written down by then has failed
    for process in processes:
        process.kill()
        process.join()
    found: dict[tuple[int, str], list[str]] = {}
    for world, folder in folders.items():
        for rank in range(world):
            record = folder / f"rank{rank}.jsonl"
            went = dict(map(json.loads, record.read_text().splitlines())) if record.exists() else {}
            errors = folder / f"stderr{rank}"
            missing = "did not finish\n" + (errors.read_text()[-2000:] if errors.exists() else "")
            for case in CASES:
                found.setdefault((world, case.__name__), []).append(went.get(case.__name__, missing))
    return found


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_split_over_processes(outcomes: dict[tuple[int, str], list[str]], world: int, case: str) -> None:
    for rank, outcome in enumerate(outcomes[world, case]):
        assert outcome == "passed", f"rank {rank} of {world}:\n{outcome}"


def test_without_a_process_group_it_says_what_to_use() -> None:
    with pytest.raises(ArgumentError, match="curve_loss"):
        parallel_curve_loss(torch.zeros(1, 2), torch.tensor([0]), curves.normal())


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    leave()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("changed", "error", "words"), [
    ({"logits": [[0.0, 1.0]]}, DtypeError, "logits is a list: expected a tensor"),
    ({"logits": torch.zeros(1, 2).to_sparse()}, ArgumentError, r"logits\.to_dense"),
    ({"logits": torch.zeros(1, 2, dtype=torch.long)}, DtypeError, "expected floating-point logits"),
    ({"logits": torch.tensor(0.0), "target": torch.tensor(0)}, ShapeError, "logits are a single number"),
    ({"target": [0]}, DtypeError, "target is a list: expected a tensor"),
    ({"target": torch.tensor([0], device="meta")}, ArgumentError, "move one of them"),
    ({"ignore_index": 1.5}, ArgumentError, "ignore_index=1.5: expected an integer"),
    ({"ignore_index": "a"}, ArgumentError, "ignore_index='a': expected an integer"),
    ({"class_offset": 1.5}, ArgumentError, "class_offset=1.5: expected an integer"),
    ({"weight": [1.0, 1.0]}, DtypeError, "weight is a list: expected a tensor"),
    ({"weight": torch.ones(2, dtype=torch.long)}, DtypeError, "weight is torch.int64: expected a floating-point"),
    ({"weight": torch.ones(2, device="meta")}, ArgumentError, "weight is on meta"),
    ({"weight": torch.ones(3)}, ShapeError, r"expected \(2,\), the weights of the classes that this rank holds"),
    ({"reduction": "average"}, ArgumentError, "reduction='average'"),
    ({"label_smoothing": 2.0}, ArgumentError, "label_smoothing=2.0"),
])
def test_arguments_are_checked_as_in_curve_loss(changed: dict[str, Any], error: type, words: str) -> None:
    arguments = {"logits": torch.zeros(1, 2), "target": torch.tensor([0]), "curve": curves.normal()}
    with pytest.raises(error, match=words):
        parallel_curve_loss(**arguments | changed)
