"""A diagnosis does not depend on how its examples came: whole, in blocks, from several readers or from ranks.

This file is also the program that each of two processes runs.
"""

from __future__ import annotations

import itertools
import json
import math
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from encouraging import curves
from encouraging.curves import focal
from encouraging.engine.distributed import leave
from encouraging.errors import ArgumentError, ShapeError
from encouraging.metrics import Reader, ece, fit_temperature, margin, read, summary
from encouraging.metrics import _diagnosis as diagnosis
from forked import ForkedPython


def examples(n: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels, and logits from outside."""
    g = torch.Generator().manual_seed(seed)
    logits, target = 2 * torch.randn(n, classes, generator=g), torch.randint(classes, (n,), generator=g)
    logits[torch.arange(n), target] += 4
    return logits, target, torch.randn(n // 2, classes, generator=g)


def whole(logits: Tensor, target: Tensor, outside: Tensor, **options: Any) -> Reader:
    reader = Reader(logits.shape[1], **options)
    reader.update(logits, target)
    reader.update_outside(outside)
    return reader


def same(one: Any, other: Any, path: str = "") -> None:
    """Equal but for the order in which sums were taken."""
    if isinstance(one, Mapping):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{path}[{number}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-7, nan_ok=True), path
    else:
        assert one == other, path


def without_temperature(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "calibration": {k: v for k, v in found["calibration"].items() if k != "temperature"}}


def as_sorted(reader: Reader) -> Tensor:
    found = reader.readings
    return torch.stack([getattr(found, name) for name in found.__dataclass_fields__])[:, found.score.argsort()]


@given(cuts=st.lists(st.integers(0, 90), max_size=6), classes=st.sampled_from([2, 5, 40]))
def test_streamed_is_whole(cuts: list[int], classes: int) -> None:
    logits, target, outside = examples(90, classes)
    ends = [0, *sorted(cuts), 90]
    streamed = Reader(classes)
    for low, high in itertools.pairwise(ends):  # empty blocks among them
        streamed.update(logits[low:high], target[low:high])
        streamed.update_outside(outside[low // 2 : high // 2])
    same(streamed.diagnosis(), whole(logits, target, outside).diagnosis())


@given(order=st.permutations(range(4)), classes=st.sampled_from([3, 40]))
def test_readers_merge_in_any_order(order: list[int], classes: int) -> None:
    logits, target, outside = examples(100, classes)
    readers = [whole(logits[k::4], target[k::4], outside[k::4], seed=k) for k in range(4)]
    merged = Reader(classes, seed=9)
    for k in order:
        merged.merge(readers[k])
    all_at_once = whole(logits, target, outside)
    torch.testing.assert_close(as_sorted(merged), as_sorted(all_at_once))
    same(without_temperature(merged.diagnosis()), without_temperature(all_at_once.diagnosis()))


def test_the_sample_for_the_temperature_is_the_same_however_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "KEPT_ROWS", 64)
    logits, target, _ = examples(2000, 6)
    found = []
    for size in (2000, 700, 64, 33, 1):
        reader = Reader(6, seed=3)
        for low in range(0, 2000, size):
            reader.update(logits[low : low + size], target[low : low + size])
        chance, rows, labels = reader.sample.thin()
        assert len(chance) == 64
        found.append((rows, labels))
    for rows, labels in found[1:]:
        assert torch.equal(rows, found[0][0])
        assert torch.equal(labels, found[0][1])


def test_every_example_is_as_likely_to_be_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "KEPT_ROWS", 50)
    drawn = torch.zeros(1000)
    logits, target = torch.arange(1000.0)[:, None] * torch.tensor([1.0, 0.0]), torch.zeros(1000, dtype=torch.int64)
    for seed in range(100):
        first, second = (Reader(2, seed=2 * seed + k) for k in range(2))
        for reader, half in ((first, slice(0, 300)), (second, slice(300, 1000))):
            for rows, labels in zip(logits[half].split(90), target[half].split(90), strict=True):
                reader.update(rows, labels)
        drawn[first.merge(second).sample.thin()[1][:, 0].long()] += 1
    assert drawn.sum() == 5000
    # 300 of 1000 examples get 1500 of 5000 draws, give or take four deviations.
    assert abs(float(drawn[:300].sum()) - 1500) < 4 * math.sqrt(5000 * 0.3 * 0.7)
    assert abs(float(drawn[::2].sum()) - 2500) < 4 * math.sqrt(5000 * 0.25)


def test_a_reader_survives_pickling_and_goes_on_as_it_would_have() -> None:
    logits, target, outside = examples(300, 5)
    reader = whole(logits[:100], target[:100], outside)
    copy = pickle.loads(pickle.dumps(reader))
    for one in (reader, copy):
        one.update(logits[100:], target[100:])
    assert copy.diagnosis() == reader.diagnosis()


def test_a_graph_is_not_kept() -> None:
    logits, target, outside = examples(50, 5)
    reader = whole(logits.requires_grad_(), target, outside)
    pickle.dumps(reader)
    assert not any(total.requires_grad for total, *_ in reader.profiles.sums.values())


@pytest.mark.timeout(120)
def test_ranks_gather_what_all_have_seen(tmp_path: Path) -> None:
    started = [ForkedPython(__file__, rank, tmp_path, OMP_NUM_THREADS="1") for rank in range(2)]
    for rank in [process.wait(100) for process in started]:
        assert rank.returncode == 0, rank.stdout + rank.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    expected = json.loads(json.dumps(whole(*examples(120, 5)).diagnosis()))
    same(without_temperature(first), without_temperature(expected))


def gather(rank: int, folder: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    logits, target, outside = examples(120, 5)
    half = slice(0, 30) if rank == 0 else slice(30, 120)
    reader = whole(logits[half], target[half], outside[rank::2], seed=rank).gather()
    (folder / f"{rank}.json").write_text(json.dumps(reader.diagnosis()))
    leave()


def test_numbers_are_those_of_the_plain_functions() -> None:
    logits, target, outside = examples(500, 5)
    counts = torch.tensor([500, 50, 5, 5, 5])
    found = whole(logits, target, outside).diagnosis(counts=counts, curves={"mine": focal(2.0)})
    right = logits.argmax(1) == target
    assert found["accuracy"] == pytest.approx(100 * float(right.double().mean()))
    assert found["margin"]["mean"] == pytest.approx(float(margin(logits, target).double().mean()))
    assert found["margin"]["wrong"] == pytest.approx(1 - found["accuracy"] / 100)
    assert found["class_accuracy"][2] == pytest.approx(100 * float(right[target == 2].double().mean()))
    assert found["shots"]["many"] == pytest.approx(found["class_accuracy"][0])
    assert found["class_counts"] == counts.tolist()
    assert found["class_margin"][1] == pytest.approx(float(margin(logits, target)[target == 1].double().mean()))
    for same in (counts.tolist(), counts.numpy()):
        again = whole(logits, target, outside).diagnosis(counts=same, curves={"mine": focal(2.0)})
        assert (again["shots"], again["class_counts"]) == (found["shots"], found["class_counts"])
    other = whole(logits, target, outside).diagnosis(counts=counts, many=10, few=6)["shots"]
    assert other["many"] == pytest.approx(100 * float(right[target < 2].double().mean()))
    assert set(found["teaching"]["shares"]) == {"examples", "mine"}
    profile = found["energy"]["profiles"]["3"]
    assert profile["examples"] == int((target == 3).sum())
    assert profile["energies"] == pytest.approx((-logits[target == 3]).double().mean(0).tolist())


def test_training_readings_teach_where_they_are_given() -> None:
    logits, target, outside = examples(100, 5)
    reader = whole(logits, target, outside)
    taught = reader.diagnosis(taught=read(logits * 10, target))["teaching"]
    assert taught["of"] == "train"
    assert taught["shares"]["examples"]["0.9"] > reader.diagnosis()["teaching"]["shares"]["examples"]["0.9"]


def test_one_profile_of_many_classes_and_whichever_is_asked_for() -> None:
    logits, target, outside = examples(400, 40)
    assert list(whole(logits, target, outside).diagnosis()["energy"]["profiles"]) == ["0"]
    assert list(whole(logits, target, outside, profile=17).diagnosis()["energy"]["profiles"]) == ["17"]
    with pytest.raises(ArgumentError, match="expected a class, 0 to 39"):
        Reader(40, profile=40)


def test_masked_classes_leave_numbers_that_json_can_hold() -> None:
    logits, target, outside = examples(60, 3)
    logits[:, 1:] = logits[:, 1:].masked_fill(torch.nn.functional.one_hot(target, 3)[:, 1:] == 0, -torch.inf)
    found = whole(logits, target, outside).diagnosis()
    assert found["energy"]["profiles"]["0"]["energies"][1] is None
    assert found["margin"]["infinite"] == int((target == 0).sum())
    json.dumps(found, allow_nan=False)


def test_a_single_example_and_two_classes() -> None:
    reader = Reader(2)
    reader.update(torch.tensor([[3.0, 1.0]]), torch.tensor([1]))
    found = reader.diagnosis()
    assert "temperature" not in found["calibration"]
    assert (found["accuracy"], found["margin"]["median"], found["margin"]["wrong"]) == (0.0, -2.0, 1.0)
    json.dumps(found, allow_nan=False)


def test_a_summary_holds_numbers_alone() -> None:
    logits, target, outside = examples(200, 5)
    reader = whole(logits, target, outside)
    short = summary(reader.diagnosis())
    assert short["ood"]["min_energy"].keys() == {"auroc", "aupr", "fpr95", "openood"}
    assert short["margin"].keys() == {"mean", "median", "median_zeroed"}
    reader.update_outside(outside, "another")
    assert summary(reader.diagnosis())["ood"].keys() == {"outside", "another"}


def test_what_does_not_fit_is_refused() -> None:
    logits, target, outside = examples(20, 5)
    reader = whole(logits, target, outside)
    with pytest.raises(ShapeError, match=r"expected the shape \(examples, 5\), got \(2, 4\)"):
        reader.update(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ShapeError, match=r"got \(2, 6\)"):
        reader.update_outside(torch.zeros(2, 6))
    with pytest.raises(ShapeError, match="5 classes cannot merge one of 4"):
        reader.merge(Reader(4))
    with pytest.raises(ShapeError, match="expected 5 numbers, one per class, got 3"):
        reader.diagnosis(counts=torch.ones(3))
    assert reader.diagnosis(counts=dict(enumerate([9, 8, 7, 6, 5]))) == reader.diagnosis(counts=[9, 8, 7, 6, 5])
    with pytest.raises(ShapeError, match="at least one example"):
        Reader(5).diagnosis()

def test_arrays_are_as_good_as_tensors():
    logits, labels = torch.randn(50, 4), torch.randint(4, (50,))
    one, two = Reader(4), Reader(4)
    one.update(logits, labels)
    one.update_outside(logits + 1)
    two.update(logits.numpy(), labels.numpy().astype("int16"))
    two.update_outside(logits.numpy() + 1)
    assert one.diagnosis() == two.diagnosis()
    frozen = logits.numpy().copy()
    frozen.flags.writeable = False  # as arrays of JAX are
    assert torch.equal(read(frozen, labels).score, read(logits, labels).score)
    assert fit_temperature(logits.numpy(), labels.numpy()) == fit_temperature(logits, labels)
    assert ece(logits.numpy(), labels.numpy()) == ece(logits, labels)


def test_pulls_say_how_much_gradient_there_is():
    logits, labels = torch.randn(30, 4, dtype=torch.float64), torch.randint(4, (30,))
    reader = Reader(4)
    reader.update(logits, labels)
    found = reader.diagnosis(curves={"ce": curves.cross_entropy()})["teaching"]["pulls"]
    p = logits.softmax(1).gather(1, labels[:, None])
    assert found == {"ce": pytest.approx((1 - p).mean().item())}


if __name__ == "__main__":
    gather(int(sys.argv[1]), Path(sys.argv[2]))
