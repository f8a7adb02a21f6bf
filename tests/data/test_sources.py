"""Sources give the same batches in one piece or resumed, on any number of workers; samplers keep what they promise."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encouraging.data import ByTokens, ClassBalanced, Clock, LoaderSource, ResidentSource, Shuffled, generator
from encouraging.data.samplers import RankBatches
from encouraging.errors import ArgumentError

CPU = torch.device("cpu")
EPOCH = Clock(1, 2)


class Noisy:
    """Everything random that a transform might use, once per example and once per batch."""

    def example(self, index, draw):
        return [index, torch.rand((), generator=draw).item(), torch.rand(()).item(), np.random.rand(), random.random()]

    def collate(self, examples, draw):
        return torch.tensor(examples), torch.rand((), generator=draw).item(), torch.rand(()).item()


def load(workers, clock=EPOCH, start=0, rank=0, world=1, source=None):
    source = source or LoaderSource(Noisy(), Shuffled(10, 4), seed=5, workers=workers)
    return list(source.batches(clock, start, rank, world))


def assert_same(ours, theirs):
    for (a, *more), (b, *expected) in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        assert more == expected


def test_a_loader_gives_the_same_batches_on_any_number_of_workers_and_from_any_batch_on():
    whole = load(0)
    assert sorted(int(index) for batch, *_ in whole for index in batch[:, 0]) == list(range(10))
    with_workers = LoaderSource(Noisy(), Shuffled(10, 4), seed=5, workers=2)
    assert_same(load(2, source=with_workers), whole)
    assert_same(load(2, start=1, source=with_workers), whole[1:])
    other = load(2, Clock(1, 3), source=with_workers)
    assert_same(other, load(0, Clock(1, 3)))
    assert not torch.equal(other[0][0], whole[0][0])


def test_ranks_share_a_batch_and_each_example_is_the_same_on_any_of_them():
    shares = [load(0, rank=rank, world=3) for rank in range(3)]
    for number, (whole, *_) in enumerate(load(0)):
        rows = {int(row[0]): row for rank in range(3) for row in shares[rank][number][0]}
        assert all(torch.equal(rows[int(row[0])], row) for row in whole)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_example_that_comes_again_in_an_epoch_draws_other_numbers(workers):
    """As class-balanced batches take those of rare classes again and again; its first time is that of any sampler."""
    balanced = ClassBalanced(torch.tensor([0] * 12 + [1, 1]), 4)
    whole = load(workers, source=LoaderSource(Noisy(), balanced, seed=5, workers=workers))
    rows = torch.cat([batch for batch, *_ in whole])
    assert torch.bincount(rows[:, 0].long()).max() > 2
    assert len(rows[:, 1:].unique(dim=0)) == len(rows)
    first = {}
    for row in rows:
        first.setdefault(int(row[0]), row)
    once = torch.cat([batch for batch, *_ in load(0, source=LoaderSource(Noisy(), Shuffled(14, 4), seed=5))])
    assert all(torch.equal(first[int(row[0])], row) for row in once if int(row[0]) in first)
    again = LoaderSource(Noisy(), balanced, seed=5, workers=workers)
    assert_same(load(workers, start=2, source=again), whole[2:])
    shares = [load(0, rank=rank, world=3, source=LoaderSource(Noisy(), balanced, seed=5)) for rank in range(3)]
    for number, (batch, *_) in enumerate(whole):
        assert all(batch[rank::3].tolist() == shares[rank][number][0].tolist() for rank in range(3))


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_leaves_the_global_random_states_alone(workers):
    """Else dropout would depend on the number of workers, and on where a run was resumed."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    load(workers)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]


def test_a_resident_source_draws_its_columns_for_the_whole_epoch():
    source = ResidentSource(Shuffled(10, 4), 5, CPU, lambda count, draw: [torch.rand(count, generator=draw)])
    whole = list(source.batches(Clock(1, 2), 0, 0, 1))
    assert [len(index) for index, _ in whole] == [4, 4, 2]
    for ours, theirs in zip(source.batches(Clock(1, 2), 2, 0, 1), whole[2:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    halves = [list(source.batches(Clock(1, 2), 0, rank, 2)) for rank in (0, 1)]
    assert torch.equal(torch.stack([halves[0][0][1], halves[1][0][1]], 1).flatten(), whole[0][1])


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=60), extra=st.integers(0, 60),
       multiple=st.integers(1, 4), seed=st.integers(0, 3))
def test_batches_by_tokens_hold_every_example_once_within_the_budget(lengths, extra, multiple, seed):
    budget = max(lengths) + extra
    batches = ByTokens(torch.tensor(lengths), budget, multiple=multiple).batches(generator(seed))
    assert sorted(torch.cat(list(batches)).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) * max(lengths[index] for index in batch) <= budget


def test_batches_by_tokens_are_of_similar_length_in_random_order():
    lengths = torch.randint(1, 100, (500,), generator=generator(0))
    batches = ByTokens(lengths, 400).batches(generator(1))
    padding = sum(int(lengths[batch].max()) * len(batch) for batch in batches) / int(lengths.sum())
    assert padding < 1.05
    assert [int(lengths[batch].max()) for batch in batches] != sorted(int(lengths[batch].max()) for batch in batches)
    again, other = (ByTokens(lengths, 400).batches(generator(seed)) for seed in (1, 2))
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(batches, other, strict=False))


def test_an_example_above_the_budget_is_refused():
    with pytest.raises(ArgumentError, match="budget=8 tokens per batch: the longest example has 9"):
        ByTokens(torch.tensor([3, 9]), 8)


class Asked:
    """A sampler that keeps which epochs it was asked for."""

    def __init__(self) -> None:
        self.draws: list[int] = []

    def batches(self, draw):
        self.draws.append(draw.initial_seed())
        return torch.split(torch.randperm(10, generator=draw), 4)


def test_workers_begin_with_the_next_epoch_but_not_beyond_the_last():
    source = LoaderSource(Noisy(), Asked(), seed=5, workers=1, epochs=2)
    first = source.batches(Clock(1, 1), 0, 0, 1)
    next(first)
    next(first)
    seeds = [generator(5, 1, epoch).initial_seed() for epoch in (1, 2)]
    assert source.sampler.draws == seeds  # a worker is two batches ahead: the third, and the first of the next epoch
    assert len(list(first)) == 1
    running = source._running
    assert_same(load(1, Clock(1, 2), source=source), load(0, Clock(1, 2)))
    assert source._running is running
    assert source.sampler.draws == seeds


@pytest.mark.parametrize("epochs", [0, 9])
@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_an_epoch_that_was_left_can_be_begun_anew_or_another_instead(epochs, taken):
    source = LoaderSource(Noisy(), Shuffled(10, 4), seed=5, workers=2, epochs=epochs)
    for clock, start, rank, world in ((Clock(1, 1), 0, 0, 1), (Clock(1, 2), 0, 0, 1), (Clock(1, 2), 1, 0, 1),
                                      (Clock(1, 3), 0, 1, 2), (Clock(2, 1), 0, 0, 1)):
        left = source.batches(clock, start, rank, world)
        for _ in range(min(taken, 3 - start)):
            next(left)
        assert_same(load(2, clock, start, rank, world, source), load(0, clock, start, rank, world))


def test_shares_of_ranks_are_whole_batches_of_one_list():
    shares = [RankBatches(7, 2, rank, 2) for rank in (0, 1)]
    batches = [[batch.tolist() for batch in share.batches(generator(0))] for share in shares]
    assert batches == [[[0, 1], [4, 5]], [[2, 3], [6]]]
    assert [list(share.numbers) for share in shares] == [[0, 2], [1, 3]]
    assert not RankBatches(0, 2).batches(generator(0))  # no examples, no batch
