"""The loss over a split vocabulary against the unsplit definition, in real processes."""

from __future__ import annotations

import json
import time

import pytest
import torch

from encouraging import curves, parallel_curve_loss
from encouraging.errors import ArgumentError
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
